expect=$(sed 's/Conection/Connection/' "$ORIGINAL/client.js")
prints "$expect" cat client.js
only client.js

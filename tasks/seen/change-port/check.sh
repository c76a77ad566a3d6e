expect=$(sed 's/DEFAULT_PORT: u16 = 8080/DEFAULT_PORT: u16 = 9090/' "$ORIGINAL/main.rs")
prints "$expect" cat main.rs

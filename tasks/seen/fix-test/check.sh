passes python3 -m unittest
prints 32.0 python3 -c 'from temperature import to_fahrenheit; print(to_fahrenheit(0))'
only temperature.py

prints 'Hello, world!' python3 hello.py
only

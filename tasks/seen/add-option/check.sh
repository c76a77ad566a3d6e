prints 'Hello, Ada!' python3 greet.py Ada
prints 'HELLO, ADA!' python3 greet.py --upper Ada
only greet.py README.md

passes python3 -m unittest
prints 12 python3 -c 'from prices import total_price; print(total_price(3, 4))'
lacks prices.py '\bcalc\b'
lacks invoice.py '\bcalc\b'
only prices.py invoice.py

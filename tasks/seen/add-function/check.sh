prints '12 5 2' python3 -c 'from calculator import *; print(multiply(3, 4), add(2, 3), subtract(5, 3))'
has test_calculator.py 'multiply\('
has test_calculator.py 'def test_add'
passes python3 -m unittest
only calculator.py test_calculator.py

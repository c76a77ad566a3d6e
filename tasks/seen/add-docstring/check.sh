passes python3 -c 'import shapes; assert shapes.area.__doc__.strip(); assert round(shapes.area(1), 2) == 3.14'
prints 'Return the length of the circle.' python3 -c 'import shapes; print(shapes.perimeter.__doc__)'
only shapes.py

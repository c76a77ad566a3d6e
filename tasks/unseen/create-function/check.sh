prints 'HI!' python3 -c 'from text import shout; print(shout("hi"))'
only

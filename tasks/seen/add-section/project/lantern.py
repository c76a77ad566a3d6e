import sys

print("serving", sys.argv[1:])

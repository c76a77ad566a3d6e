import math


def area(radius):
    return math.pi * radius**2


def perimeter(radius):
    """Return the length of the circle."""
    return 2 * math.pi * radius

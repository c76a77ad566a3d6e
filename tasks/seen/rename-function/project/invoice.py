from prices import calc


def line(name, price, count):
    return f"{name}: {calc(price, count)}"

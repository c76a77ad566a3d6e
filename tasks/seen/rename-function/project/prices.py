def calc(price, count):
    return price * count


def with_tax(price, count):
    return calc(price, count) * 1.19

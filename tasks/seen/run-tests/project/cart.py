def total(prices, discount=0):
    return sum(prices) - discount


def average(prices):
    return sum(prices) / len(prices)

orders = [420, 588, 756]
print("total:", sum(orders))

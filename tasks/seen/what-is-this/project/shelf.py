"""The stock of a warehouse."""


class Stock:
    def __init__(self):
        self.items = {}

    def add(self, name, count):
        self.items[name] = self.items.get(name, 0) + count

    def to_order(self, minimum):
        return sorted(name for name, count in self.items.items() if count < minimum)

import unittest

from shelf import Stock


class StockTest(unittest.TestCase):
    def test_counts_add_up(self):
        stock = Stock()
        stock.add("bolt", 2)
        stock.add("bolt", 3)
        self.assertEqual(stock.items, {"bolt": 5})

    def test_low_items_are_ordered(self):
        stock = Stock()
        stock.add("nut", 1)
        stock.add("bolt", 9)
        self.assertEqual(stock.to_order(5), ["nut"])


if __name__ == "__main__":
    unittest.main()

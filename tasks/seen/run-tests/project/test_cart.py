import unittest

from cart import average, total


class CartTest(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total([1, 2, 3]), 6)

    def test_discount(self):
        self.assertEqual(total([10], discount=3), 7)

    def test_average(self):
        self.assertEqual(average([2, 4]), 3)

    def test_average_of_nothing(self):
        self.assertEqual(average([]), 0)


if __name__ == "__main__":
    unittest.main()

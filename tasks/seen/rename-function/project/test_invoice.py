import unittest

from invoice import line


class InvoiceTest(unittest.TestCase):
    def test_line(self):
        self.assertEqual(line("bolt", 2, 3), "bolt: 6")


if __name__ == "__main__":
    unittest.main()

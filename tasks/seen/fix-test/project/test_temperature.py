import unittest

from temperature import to_celsius, to_fahrenheit


class TemperatureTest(unittest.TestCase):
    def test_water_boils(self):
        self.assertEqual(to_fahrenheit(100), 212)

    def test_water_freezes(self):
        self.assertEqual(to_celsius(32), 0)


if __name__ == "__main__":
    unittest.main()

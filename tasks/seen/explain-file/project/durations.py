import re

PART = re.compile(r"(\d+)([hms])")
FACTORS = {"h": 3600, "m": 60, "s": 1}


def convert(text):
    parts = PART.findall(text)
    if not parts:
        raise ValueError(text)
    return sum(int(number) * FACTORS[unit] for number, unit in parts)

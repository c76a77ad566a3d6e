from durations import convert


def total(entries):
    return sum(convert(entry) for entry in entries)

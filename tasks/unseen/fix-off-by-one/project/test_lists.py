from lists import last

assert last([1, 2, 3]) == 3

passes python3 test_lists.py
only lists.py

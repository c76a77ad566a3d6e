lacks tally.py 'cnt'
prints '3' python3 tally.py
only tally.py

[ ! -e old_report.py ] || fail "old_report.py still exists"
prints new python3 main.py
only old_report.py

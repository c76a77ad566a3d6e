SHIPS = ["Aurora", "Borealis"]

for ship in SHIPS:
    print(ship)

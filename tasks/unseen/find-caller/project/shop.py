from prices import load_prices

print(load_prices()["tea"])

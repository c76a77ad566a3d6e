import json

with open("config.json") as file:
    CONFIG = json.load(file)

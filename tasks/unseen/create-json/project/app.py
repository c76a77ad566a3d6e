import json

print(json.load(open("settings.json"))["theme"])

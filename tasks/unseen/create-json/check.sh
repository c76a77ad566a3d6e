prints '{"size": 12, "theme": "dark"}' python3 -c 'import json; print(json.dumps(json.load(open("settings.json")), sort_keys=True))'
only

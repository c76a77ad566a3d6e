prints '{"drinks": ["water", "tea"], "open": true, "salad": 6, "soup": 4.5}' \
    python3 -c 'import json; print(json.dumps(json.load(open("menu.json")), sort_keys=True))'
only menu.json

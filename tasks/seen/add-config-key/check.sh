prints '{"host": "127.0.0.1", "log": {"level": "info"}, "port": 4000, "timeout": 30}' \
    python3 -c 'import json; print(json.dumps(json.load(open("config.json")), sort_keys=True))'
only config.json

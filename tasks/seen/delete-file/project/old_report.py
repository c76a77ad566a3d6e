def report():
    return "old"

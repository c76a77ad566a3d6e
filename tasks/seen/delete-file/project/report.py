def report():
    return "new"

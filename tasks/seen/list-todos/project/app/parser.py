def parse(text):
    # TODO: accept comments
    return text.split()

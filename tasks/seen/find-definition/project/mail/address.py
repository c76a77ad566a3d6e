def parse_address(text):
    return text.split("@")

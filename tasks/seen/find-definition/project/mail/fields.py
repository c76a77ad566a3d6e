def parse_body(text):
    return text.splitlines()


def parse_header(line):
    name, value = line.split(":", 1)
    return name.strip(), value.strip()

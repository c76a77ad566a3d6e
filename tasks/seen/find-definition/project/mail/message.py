from mail.fields import parse_header


class Message:
    def __init__(self, text):
        self.subject = parse_header(text)[1]

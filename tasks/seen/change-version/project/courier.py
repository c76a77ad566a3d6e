def send(message):
    return f"sent: {message}"

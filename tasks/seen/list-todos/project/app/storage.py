def save(words, path):
    # TODO: write to a temporary file first
    with open(path, "w") as file:
        file.write(" ".join(words))

def show(words):
    print(*words)

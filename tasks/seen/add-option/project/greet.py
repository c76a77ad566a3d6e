import argparse

parser = argparse.ArgumentParser()
parser.add_argument("name")
arguments = parser.parse_args()

print(f"Hello, {arguments.name}!")

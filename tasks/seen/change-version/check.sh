expect=$(sed 's/^version = .*/version = "2.1.0"/' "$ORIGINAL/pyproject.toml")
prints "$expect" cat pyproject.toml
only pyproject.toml

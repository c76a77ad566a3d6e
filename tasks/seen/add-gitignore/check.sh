has .gitignore '^/?__pycache__/?$'
has .gitignore '^\*\.log$'
only

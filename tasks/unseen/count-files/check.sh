says '(^|[^0-9])(4|four)([^0-9]|$)'
only

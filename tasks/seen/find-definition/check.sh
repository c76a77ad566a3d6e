says 'fields\.py'
only

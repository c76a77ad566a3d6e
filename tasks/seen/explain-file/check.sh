says 'seconds' 'hour|minute|duration|time'
only

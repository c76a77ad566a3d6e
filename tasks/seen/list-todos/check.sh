says 'parser\.py' 'storage\.py'
silent_on 'printer\.py'
only

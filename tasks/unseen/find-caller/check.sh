says 'shop\.py'
only

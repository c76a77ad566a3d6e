says 'warehouse|stock|inventory'
only

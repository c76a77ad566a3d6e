says '\b41\b'
only

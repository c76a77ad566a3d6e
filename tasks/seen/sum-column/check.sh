says '\b705\b'
only

says 'orchid|deploy' 'replica|3|three|port|8443'
only

says 'node +(src/)?server\.js|npm +(run +)?start'
only

has README.md '^# *Harbor'
has README.md '[Ss]hips'
only

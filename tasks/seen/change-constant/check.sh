prints '3 5 4096' python3 -c 'import settings as s; print(s.TIMEOUT, s.MAX_RETRIES, s.CHUNK)'
only settings.py

import settings


def download(fetch):
    for attempt in range(settings.MAX_RETRIES):
        if fetch(attempt):
            return attempt
    return None

"""Asks by HTTP and prints what it was answered; end-to-end tests run this file inside of pods.

    caller.py '[["http://store:8000/", [["a-header", "its value"]]]]'
    caller.py http://store:8000/ 50       ask as often a second until the input ends
    caller.py -s -H 'a-header: its value' http://store:8000/      as curl, for the pages' commands

The standard library is enough for it.
"""

import http.client
import itertools
import json
import sys
import threading
import time
import urllib.parse

THREADS = 5
"""So that one slow answer does not hold up what is asked next."""


def ask(url, headers=(), connection=None):
    """The status of an answer, or 0 where the connection is refused or ended."""
    place = urllib.parse.urlsplit(url)
    own = connection or http.client.HTTPConnection(place.hostname, place.port or 80, timeout=5)
    try:
        own.putrequest(
            "GET", place.path or "/", skip_host=any(name == "host" for name, _ in headers)
        )
        for name, value in headers:
            own.putheader(name, value)
        own.endheaders()
        with own.getresponse() as answer:
            answer.read()
            return answer.status
    except (OSError, http.client.HTTPException):
        own.close()
        return 0
    finally:
        if connection is None:
            own.close()


def hammer(url, rate):
    """Ask so often a second until the input ends; the answers by status, and the seconds."""
    counts, ended, lock = {}, threading.Event(), threading.Lock()
    place = urllib.parse.urlsplit(url)

    def run(number):
        kept = http.client.HTTPConnection(place.hostname, place.port or 80, timeout=5)
        due = time.monotonic() + number / rate
        while not ended.wait(max(0.0, due - time.monotonic())):
            due += THREADS / rate
            status = ask(url, connection=kept)
            with lock:
                counts[status] = counts.get(status, 0) + 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    print("asking", flush=True)
    sys.stdin.read()
    ended.set()
    for thread in threads:
        thread.join()
    return {"answers": counts, "seconds": time.monotonic() - began}


def curl(arguments):
    """Ask as `curl -s -o /dev/null -w '%{http_code}\\n'` does."""
    pairs = itertools.pairwise(arguments)
    headers = [value.split(": ", 1) for flag, value in pairs if flag == "-H"]
    return f"{ask(arguments[-1], headers):03}"


if __name__ == "__main__":
    if sys.argv[1].startswith("-"):
        print(curl(sys.argv[1:]))
    elif len(sys.argv) > 2:
        print(json.dumps(hammer(sys.argv[1], float(sys.argv[2]))))
    else:
        print(json.dumps([ask(url, headers) for url, headers in json.loads(sys.argv[1])]))

"""Waiting for what happens elsewhere: a test says what must become true, and asks for it."""

import http.client
import time


def eventually(check, timeout=60):
    """Return what a check returns as soon as it is true, else what it returned last.

    A check that can't connect is not true yet.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            value = check()
        except (OSError, http.client.HTTPException):
            value = None
        if value or time.monotonic() > deadline:
            return value
        time.sleep(0.1)

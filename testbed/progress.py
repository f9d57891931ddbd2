"""How what takes its time says what it is doing."""

import sys
from collections.abc import Callable

Progress = Callable[[str], None]


def say(line: str) -> None:
    """Write a line to standard error."""
    print(line, file=sys.stderr, flush=True)

"""What the modules behind the commands share."""

from __future__ import annotations

import argparse
from typing import TypeAlias

BAD_INPUT = 2
"""Exit code for a wrong command line or a document that can't be read."""

# argparse has no public name for what `add_subparsers` returns.
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


class InputError(Exception):
    """What was given can't be used; the message names it."""


def names(text: str) -> tuple[str, ...]:
    """Split a comma-separated list as options and annotations have it."""
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def boolean(text: str) -> bool:
    """Read `true` or `false`, as an argparse type."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() == "true"

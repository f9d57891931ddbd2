"""What the modules behind the commands share."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any, TypeAlias

BAD_INPUT = 2
"""Exit code for a wrong command line or a document that can't be read."""

# argparse has no public name for what `add_subparsers` returns.
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


class InputError(Exception):
    """What was given can't be used; the message names it."""


def names(text: str) -> tuple[str, ...]:
    """Split a comma-separated list as options and annotations have it."""
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def texts(description: str, *examples: str) -> dict[str, Any]:
    """Return what a parser is made with to say what a command does, by examples too.

    Args:
        description: One paragraph, or several that are wrapped already.
        examples: Command lines.
    """
    lines = "".join(f"\n  {example}" for example in examples)
    return {
        "description": description if "\n" in description else textwrap.fill(description, 79),
        "epilog": f"examples:{lines}",
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }


def boolean(text: str) -> bool:
    """Read `true` or `false`, as an argparse type."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() == "true"

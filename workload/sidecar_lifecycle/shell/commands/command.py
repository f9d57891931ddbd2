"""What the modules behind the commands share."""

from __future__ import annotations

import argparse
import pathlib
import textwrap
from typing import Any, TextIO, TypeAlias

from sidecar_lifecycle.shell import settings

LONGEST_ERROR = 1000
"""In characters: what is quoted from a file may be long."""
BAD_INPUT = 2
"""Exit code for a wrong command line or a document that can't be read."""

# argparse has no public name for what `add_subparsers` returns.
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


class InputError(Exception):
    """What was given can't be used; the message names it."""


def printable(text: str) -> str:
    """Write in one line what others named; what moves a terminal's cursor is escaped."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def say(line: str, file: TextIO | None = None) -> None:
    """Print a line at once, whatever the names in it are; on standard output without a file."""
    print(printable(line), file=file, flush=True)


def add_settings(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add the option that names the settings file."""
    parser.add_argument(
        "--settings",
        type=pathlib.Path,
        required=required,
        metavar="FILE",
        help="of the service, as the charm writes it",
    )


def read_settings(path: pathlib.Path) -> settings.Settings:
    """Read the settings file.

    Raises:
        InputError: It can't be read.
    """
    try:
        return settings.read(path)
    except ValueError as error:
        raise InputError(str(error)) from error


def texts(description: str, *examples: str) -> dict[str, Any]:
    """Return what a parser is made with to say what a command does, by command lines too."""
    lines = "".join(f"\n  {example}" for example in examples)
    return {
        "description": description if "\n" in description else textwrap.fill(description, 79),
        "epilog": f"examples:{lines}",
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }

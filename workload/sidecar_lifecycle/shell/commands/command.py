"""What the modules behind the commands share."""

from __future__ import annotations

import argparse
import pathlib
import textwrap
from typing import Any, TypeAlias

from sidecar_lifecycle.shell import settings

BAD_INPUT = 2
"""Exit code for a wrong command line or a document that can't be read."""

# argparse has no public name for what `add_subparsers` returns.
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


class InputError(Exception):
    """What was given can't be used; the message names it."""


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

"""What the modules behind the commands share."""

from __future__ import annotations

import argparse
import dataclasses
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, TextIO, TypeAlias

from integrator_contract import service

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


def add_options(
    parser: argparse.ArgumentParser,
    kind: service.Kind = service.Options,
    defaults: Mapping[str, Any] | None = None,
) -> None:
    """Add options that the contract declares.

    Args:
        parser: that gets them.
        kind: Which of them.
        defaults: of this command, where they differ.
    """
    for field in dataclasses.fields(kind):
        argument = service.argument(field)
        is_required = field.default is dataclasses.MISSING
        default = None if is_required else (defaults or {}).get(field.name, field.default)
        parser.add_argument(
            service.flag(field),
            type=_reader(argument.read),
            required=is_required,
            default=default,
            metavar=None if argument.choices else argument.metavar,
            choices=argument.choices or None,
            help=argument.help,
        )


def _reader(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Have argparse say why a value can't be read."""

    def reader(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return int if read is int else reader


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

"""The command line of the workload: `sidecar-lifecycle COMMAND`."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Generator
from typing import Protocol, cast

from integrator_contract import schema
from sidecar_lifecycle import __version__
from sidecar_lifecycle.shell.commands import command

_PACKAGE = "sidecar_lifecycle.shell.commands"
COMMANDS = {
    "run": f"{_PACKAGE}.run",
    "admission": f"{_PACKAGE}.admission",
    "explain": f"{_PACKAGE}.explain",
}
"""The module that brings each command; only the one asked for is imported, to start quickly."""
_AUTHORITIES = "SSL_CERT_FILE"
"""What OpenSSL asks for the file of those that the system trusts."""


class Command(Protocol):
    """What a command's module has; the default `main` of its parser is what runs."""

    def add_parser(self, subparsers: command.Subparsers) -> None:
        """Add the parsers of the module's commands, each with `set_defaults(main=…)`."""
        ...


def parser(wanted: str = "") -> argparse.ArgumentParser:
    """Return the command line of one command, or the whole."""
    root = argparse.ArgumentParser(
        prog="sidecar-lifecycle",
        **command.texts(
            "Sees to it that pods get their Istio sidecar, and get rid of it when done.",
            "sidecar-lifecycle explain --help",
            "kubectl get pods -o json | sidecar-lifecycle explain",
        ),
    )
    version = f"%(prog)s {__version__} (contract {schema.SCHEMA})"
    root.add_argument("--version", action="version", version=version)
    subparsers = root.add_subparsers(title="commands", required=True, metavar="COMMAND")
    modules = [COMMANDS[wanted]] if wanted in COMMANDS else dict.fromkeys(COMMANDS.values())
    with _no_authorities():
        commands = [cast("Command", importlib.import_module(name)) for name in modules]
    for each in commands:
        each.add_parser(subparsers)
    return root


@contextlib.contextmanager
def _no_authorities() -> Generator[None]:
    """Keep aiohttp from reading each authority of the system into a context that nobody uses.

    It does so as it is imported, which takes 2 MB of an idle service's 47.
    """
    before = os.environ.get(_AUTHORITIES)
    os.environ[_AUTHORITIES] = os.devnull
    try:
        yield
    finally:
        del os.environ[_AUTHORITIES]
        if before is not None:
            os.environ[_AUTHORITIES] = before


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    arguments = parser(argv[0] if argv else "").parse_args(argv)
    try:
        return cast("int", arguments.main(arguments))
    except command.InputError as error:
        command.say(f"sidecar-lifecycle: {error}"[: command.LONGEST_ERROR], sys.stderr)
        return command.BAD_INPUT
    except BrokenPipeError:
        # The reader of our output, such as `head`, has seen enough.
        sys.stderr.close()
        return 0


if __name__ == "__main__":
    sys.exit(main())

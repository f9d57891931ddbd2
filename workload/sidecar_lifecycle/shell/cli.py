"""The command line of the workload: `sidecar-lifecycle COMMAND`."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Generator
from typing import cast

from integrator_contract import schema
from sidecar_lifecycle import __version__
from sidecar_lifecycle.shell.commands import command

COMMANDS = ("run", "admission", "explain")
"""Each is a module; only the one asked for is imported, to start quickly."""
LONGEST_ERROR = 1000
"""In characters: what is quoted from a file may be long."""
_AUTHORITIES = "SSL_CERT_FILE"
"""What OpenSSL asks for the file of those that the system trusts."""


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
    with _no_authorities():
        for name in [wanted] if wanted in COMMANDS else COMMANDS:
            module = importlib.import_module(f"sidecar_lifecycle.shell.commands.{name}")
            module.add_parser(subparsers)
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
        print(_printable(f"sidecar-lifecycle: {error}"[:LONGEST_ERROR]), file=sys.stderr)
        return command.BAD_INPUT
    except BrokenPipeError:
        # The reader of our output, such as `head`, has seen enough.
        sys.stderr.close()
        return 0


def _printable(text: str) -> str:
    """Escape what moves a terminal's cursor: others named what is quoted."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


if __name__ == "__main__":
    sys.exit(main())

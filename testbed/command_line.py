"""What the command lines of the project's own programs share."""

import argparse
import re
from collections.abc import Iterable

from testbed import paths

_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)


def version() -> str:
    """Return the product's version, from where the workload has it."""
    source = paths.SOURCE / "workload" / "sidecar_lifecycle" / "__init__.py"
    return _VERSION.findall(source.read_text())[0]


def parser(prog: str, description: str | None, *examples: str) -> argparse.ArgumentParser:
    """Return a program's parser, with `--version` and with examples in its help."""
    root = argparse.ArgumentParser(
        prog=prog,
        description=description,
        epilog=_epilog(examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action="version", version=f"%(prog)s {version()}")
    return root


def add(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    text: str,
    *examples: str,
) -> argparse.ArgumentParser:
    """Add a command to a program that is started by `python -m`.

    Args:
        commands: Of the program, or of a command of it.
        name: The command's.
        text: What it does.
        examples: What follows the command's name; without any, the name is example enough.
    """
    command = commands.add_parser(
        name,
        help=text,
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.epilog = _epilog(
        f"python -m {command.prog} {example}".rstrip() for example in examples or [""]
    )
    return command


def _epilog(examples: Iterable[str]) -> str:
    return "\n  ".join(("examples:", *examples))

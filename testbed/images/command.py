"""`python -m testbed images list`."""

import argparse
from typing import Any

from testbed import command_line, images


def add_parser(subparsers: "argparse._SubParsersAction[Any]") -> None:
    """Add the command to the testbed's."""
    parser = command_line.add(subparsers, "images", "list the images", "list")
    commands = parser.add_subparsers(required=True, metavar="ACTION")
    command_line.add(commands, "list", "list the images and whether they are built")
    parser.set_defaults(main=main)


def main(_: argparse.Namespace) -> int:
    """List the images."""
    for name in (*images.NAMES, *images.ON_DEMAND):
        state = "built" if images.is_built(name) else "not built"
        print(f"{images.reference(name):60} {state}")
    return 0

"""`python -m testbed images build|list|export`."""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from testbed import images


def add_parser(subparsers: "argparse._SubParsersAction[Any]") -> None:
    """Add the command to the testbed's."""
    parser = subparsers.add_parser("images", help="build and list the images")
    commands = parser.add_subparsers(dest="images_command", required=True)
    build = commands.add_parser("build", help="build what the cache lacks")
    build.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    commands.add_parser("list", help="list the images, their size and whether they are built")
    export = commands.add_parser("export", help="write one image as an OCI archive")
    export.add_argument("names", nargs=1, metavar="NAME")
    export.add_argument("file", type=Path)
    parser.set_defaults(main=main, names=[])


def main(args: argparse.Namespace) -> int:
    """Run one of the commands; 0 when it went well, 1 when not, 2 for an unknown image."""
    unknown = sorted(set(args.names) - set(images.NAMES))
    if unknown:
        print(
            f"images: there is no {', '.join(unknown)}; there are {', '.join(images.NAMES)}",
            file=sys.stderr,
        )
        return 2
    try:
        if args.images_command == "list":
            _list()
        else:
            _build(args)
    except images.ImageError as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    return 0


def _build(args: argparse.Namespace) -> None:
    started = time.monotonic()
    built = images.build(args.names or images.NAMES)
    if args.images_command == "export":
        for image in built.values():
            image.export(args.file)
        return
    images.prune()
    for image in built.values():
        print(f"{image.reference}  {image.size / 1e6:.0f} MB")
    print(f"images: {len(built)} ready in {time.monotonic() - started:.1f} s", file=sys.stderr)


def _list() -> None:
    for name in images.NAMES:
        state = "built" if images.is_built(name) else "not built"
        print(f"{images.reference(name):60} {state}")

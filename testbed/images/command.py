"""`python -m testbed images build|list|export`."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from testbed import command_line, images


def add_parser(subparsers: "argparse._SubParsersAction[Any]") -> None:
    """Add the command to the testbed's."""
    text = "build and list the images"
    parser = command_line.add(subparsers, "images", text, "build", "list --output json")
    commands = parser.add_subparsers(dest="images_command", required=True)
    build = command_line.add(commands, "build", "build what the cache lacks", "", "app proxy")
    build.add_argument("names", nargs="*", metavar="NAME", help="default: those of `make setup`")
    text = "list the images and whether they are built"
    listing = command_line.add(commands, "list", text, "", "--output json")
    listing.add_argument("--output", choices=("text", "json"), default="text")
    text = "write one image as an OCI archive"
    export = command_line.add(commands, "export", text, "workload build/workload.tar")
    export.add_argument("names", nargs=1, metavar="NAME")
    export.add_argument("file", type=Path)
    parser.set_defaults(main=main, names=[])


def main(args: argparse.Namespace) -> int:
    """Run one of the commands; 0 when it went well, 1 when not, 2 for an unknown image."""
    known = (*images.NAMES, *images.ON_DEMAND)
    unknown = sorted(set(args.names) - set(known))
    if unknown:
        print(
            f"images: there is no {', '.join(unknown)}; there are {', '.join(known)}",
            file=sys.stderr,
        )
        return 2
    try:
        if args.images_command == "list":
            _list(args)
        else:
            _build(args)
    except images.ImageError as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    return 0


def _build(args: argparse.Namespace) -> None:
    started = time.monotonic()
    built = images.build(args.names or images.DEFAULT)
    if args.images_command == "export":
        for image in built.values():
            image.export(args.file)
        return
    images.prune()
    for image in built.values():
        print(f"{image.reference}  {image.size / 1e6:.0f} MB")
    print(f"images: {len(built)} ready in {time.monotonic() - started:.1f} s", file=sys.stderr)


def _list(args: argparse.Namespace) -> None:
    found = [
        {"name": name, "reference": images.reference(name), "built": images.is_built(name)}
        for name in (*images.NAMES, *images.ON_DEMAND)
    ]
    if args.output == "json":
        print(json.dumps(found, indent=2))
        return
    for image in found:
        print(f"{image['reference']:60} {'built' if image['built'] else 'not built'}")

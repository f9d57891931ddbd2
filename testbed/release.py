"""Tell what is missing to publish a release: `make release-check`."""

import dataclasses
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from testbed import charmcraft, command_line, paths

CHANNELS = ("edge", "stable")
SECRET = "CHARMCRAFT_AUTH"


@dataclasses.dataclass(frozen=True)
class Need:
    """Something that a release needs."""

    what: str
    is_met: bool
    remedy: str


def needs(root: Path, version: str) -> Iterator[Need]:
    """Yield what a release needs.

    Args:
        root: The checkout.
        version: The version to release.
    """
    absent = charmcraft.missing(root)
    for key in charmcraft.ADDRESSES:
        yield Need(f"address: {key}", key not in absent, f"set {key} in metadata.yaml")
    for name, heading in (("README.md", "Contact"), ("SECURITY.md", "Reporting")):
        has_address = "://" in _section((root / name).read_text(), heading)
        yield Need(f"contact: {name}", has_address, f"link the address under {heading}")
    readme = (root / "README.md").read_text()
    yield Need(
        "status: README.md", "**Status: not released.**" not in readme, "describe the release"
    )
    changelog = root / "CHANGELOG.md"
    has_entry = changelog.exists() and bool(_section(changelog.read_text(), f"{version} ("))
    yield Need(f"changelog: {version}", has_entry, "run: make changelog")
    yield Need(
        f"name: {paths.PRODUCT}",
        paths.PRODUCT in _ask("charmcraft", "names"),
        f"run: charmcraft login; charmcraft register {paths.PRODUCT}",
    )
    released = _ask("charmcraft", "status", paths.PRODUCT)
    for risk in CHANNELS:
        row = re.search(rf"^.*\b{risk}\b +(\S+)", released, re.MULTILINE)
        how = "push the tag" if risk == "edge" else "start the workflow Release, from edge up"
        yield Need(f"channel: latest/{risk}", bool(row and row[1].isdigit()), how)
    yield Need(
        f"secret: {SECRET}",
        SECRET in _ask("gh", "secret", "list"),
        f"run: charmcraft login --export=auth; gh secret set {SECRET} <auth",
    )


def _section(page: str, heading: str) -> str:
    return f"\n{page}".partition(f"\n## {heading}")[2].partition("\n## ")[0]


def _ask(*command: str) -> str:
    """Return what a program prints, nothing if it is missing or has no account."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def main(argv: list[str] | None = None) -> int:
    """Print from the command line: `python -m testbed.release`."""
    parser = command_line.parser(
        "testbed.release",
        "Print what is missing to publish a release. Exit with 1 while something is missing.",
        "python -m testbed.release",
    )
    parser.parse_args(argv)
    version = command_line.version()
    found = list(needs(paths.SOURCE, version))
    for need in found:
        remedy = "" if need.is_met else f" → {need.remedy}"
        print(f"{'✓' if need.is_met else '✗'} {need.what:24}{remedy}".rstrip())
    missing = sum(not need.is_met for need in found)
    print(f"{missing} of {len(found)} are missing to publish {version}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())

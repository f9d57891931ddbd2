"""Other revisions of a packed charm."""

import dataclasses
import pathlib
import zipfile
from collections.abc import Mapping

from testbed.kit import juju

SLOW = """\
# Each request to the API server takes longer, as with one that has much to do.
import time

import httpx2

_send = httpx2.Client.send


def _slowly(self, *arguments, **options):
    time.sleep({seconds})
    return _send(self, *arguments, **options)


httpx2.Client.send = _slowly
"""


def with_files(
    charm: juju.Deployable, target: pathlib.Path, files: Mapping[str, str]
) -> juju.Deployable:
    """Pack a charm again with some files added or replaced."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(charm.path) as source, zipfile.ZipFile(target, "w") as copy:
        for entry in source.infolist():
            copy.writestr(entry, files.get(entry.filename) or source.read(entry))
        for name in files.keys() - source.namelist():
            copy.writestr(name, files[name])
    return dataclasses.replace(charm, path=target)


def slow(charm: juju.Deployable, target: pathlib.Path, seconds: float) -> juju.Deployable:
    """Pack a charm whose every request to the API server takes so much longer."""
    entry = "src/charm.py"
    text = read(charm, entry)
    head, future, rest = text.partition("from __future__ import annotations\n")
    text = f"{head}{future}{SLOW.format(seconds=seconds)}{rest}"
    return with_files(charm, target, {entry: text})


def read(charm: juju.Deployable, name: str) -> str:
    """Read a file of a packed charm."""
    with zipfile.ZipFile(charm.path) as source:
        return source.read(name).decode()

"""Where the testbed keeps what it builds, and the state of each running one."""

import os
from pathlib import Path

PRODUCT = "istio-integrator"

SOURCE = Path(__file__).resolve().parent.parent
"""The checkout."""


def _base(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    # The XDG specification tells programs to ignore relative paths.
    return Path(value) if value.startswith("/") else Path.home() / default


def cache() -> Path:
    """Return the directory of built programs and images, shared by all checkouts."""
    return _base("XDG_CACHE_HOME", ".cache") / PRODUCT


def unpacked(program: str = "", package: str = "") -> Path:
    """Return where Debian packages lie unpacked, or a program of one of them."""
    folder = cache() / "debian"
    return folder / (package or program) / "usr" / "bin" / program if program else folder


def states() -> Path:
    """Return the directory that holds one state directory per testbed."""
    return _base("XDG_STATE_HOME", ".local/state") / PRODUCT


def state(name: str) -> Path:
    """Return the state directory of one testbed."""
    return states() / name

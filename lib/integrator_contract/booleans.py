"""Boolean settings as Istio reads them."""

from __future__ import annotations

_VALUES = dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "FALSE", "false", "False"), False
)


def parse(text: str | None, *, default: bool) -> bool:
    """Read a boolean as Go's strconv.ParseBool does, else return the default.

    Istio reads its environment variables (pkg/env/var.go) and its annotations so.
    """
    return _VALUES.get(text or "", default)

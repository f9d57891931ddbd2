"""Boolean settings as Istio reads them."""

from __future__ import annotations

_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")


def parse(text: str | None, *, default: bool) -> bool:
    """Read a boolean as Go's strconv.ParseBool does, else return the default.

    Istio reads its environment variables (pkg/env/var.go) and its annotations this way.
    """
    return text in _TRUE if text in (*_TRUE, *_FALSE) else default

"""Regular expressions of others, tried by the engine that will run them.

Envoy refuses the whole route configuration of a gateway for one expression that RE2 can't read.
"""

from __future__ import annotations

import importlib
from typing import Any

from istio_integrator import texts

LARGEST_PROGRAM = 4096
"""Instructions of a compiled expression. Envoy gives up at 32,768 as Istio sets it
(`re2.max_program_size.error_level`, istio pkg/bootstrap), and runs it for each request."""
_OF_OTHERS = ("/", "/x", "/x/", "/notebook/user/name/", "/unlikely-0123456789/a.b")
"""Paths that no application has for its own; who matches one, matches what is others'."""


def problem(pattern: str) -> str:
    """Say why an expression can't be a path's; empty where it can.

    Args:
        pattern: Whatever somebody wrote, within bounds.
    """
    if not (pattern.isascii() and pattern.isprintable()):
        return "has a regular expression with characters that no path has"
    try:
        # In C++, by which it needs more of the charm's image than all else that we import.
        engine: Any = importlib.import_module("re2")
    except ImportError as error:
        return f"has a regular expression, which can't be tried here ({error})"
    options = engine.Options()
    options.log_errors = False
    try:
        compiled = engine.compile(pattern, options)
    except engine.error as error:
        return f"has a regular expression that RE2 does not take ({_reason(error)})"
    if compiled.programsize > LARGEST_PROGRAM:
        return "has a regular expression that is too complex"
    if any(compiled.fullmatch(path) for path in _OF_OTHERS):
        return "has a regular expression that matches paths of others: begin it with its own path"
    return ""


def _reason(error: Any) -> str:
    said, *_ = error.args
    return texts.plain(said.decode(errors="replace") if isinstance(said, bytes) else str(said))

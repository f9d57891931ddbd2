"""What others wrote, fit to be shown: one line, not too long, and nothing that moves a cursor."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pydantic

LONGEST_PROBLEM = 400
"""Characters of all that is wrong with a message."""
_MOST_PROBLEMS = 3
"""Of one message that are told; the others come when these are mended."""
_MOST_NAMES = 4
"""Names in one message to people; a status is one line."""


def listed(names: Iterable[str]) -> str:
    """Name things for people, not more than they read."""
    found = sorted(set(names))
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    return ", ".join(found[:_MOST_NAMES]) + more


def plain(text: str, longest: int = 0) -> str:
    r"""Write characters that are not printed as escapes, such as `\x1b` and `\n`.

    Args:
        text: Whatever somebody wrote.
        longest: Characters that it may have; 0 for any.
    """
    if longest and len(text) > longest:
        text = f"{text[: longest - 1]}…"
    if text.isprintable():
        return text
    shown = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
    return shown if not longest or len(shown) <= longest else f"{shown[: longest - 1]}…"


def problems(error: pydantic.ValidationError) -> str:
    """Say what is wrong with a message, in one line."""
    found = error.errors(include_url=False)
    more = f"; and {len(found) - _MOST_PROBLEMS} more" if len(found) > _MOST_PROBLEMS else ""
    lines = "; ".join(_line(problem) for problem in found[:_MOST_PROBLEMS])
    return plain(f"{lines}{more}", LONGEST_PROBLEM)


def _line(problem: Any) -> str:
    message = re.sub(r"^(Value error, |Input )", "", problem["msg"])
    place = ".".join(map(str, problem["loc"]))[:80] or "data"
    value = problem.get("input")
    shown = f"={value!r}"[:80] if isinstance(value, str | int) else ""
    return f"{place}{shown} {message[:1].lower()}{message[1:]}"

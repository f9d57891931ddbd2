"""Text from other programs and people, made safe to show: one short line without control codes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pydantic

LONGEST_PROBLEM = 400
"""Characters of all problems of a relation's message."""
_MOST_PROBLEMS = 3
"""Problems shown of one message; the others follow once these are fixed."""
_MOST_NAMES = 4
"""Names in one message; a status is one line."""


def join_names(names: Iterable[str]) -> str:
    """Return the first names and the number of the others."""
    found = sorted(set(names))
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    return ", ".join(found[:_MOST_NAMES]) + more


def escape(text: str, longest: int = 0) -> str:
    r"""Write characters that are not printed as escapes, such as `\x1b` and `\n`.

    Args:
        text: Text from another program or person.
        longest: Maximum characters of the result; 0 for any number.
    """
    if longest and len(text) > longest:
        text = f"{text[: longest - 1]}…"
    if text.isprintable():
        return text
    shown = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
    return shown if not longest or len(shown) <= longest else f"{shown[: longest - 1]}…"


def join_problems(error: pydantic.ValidationError) -> str:
    """Describe the problems of a message in one line."""
    found = error.errors(include_url=False)
    more = f"; and {len(found) - _MOST_PROBLEMS} more" if len(found) > _MOST_PROBLEMS else ""
    lines = "; ".join(_format_problem(problem) for problem in found[:_MOST_PROBLEMS])
    return escape(f"{lines}{more}", LONGEST_PROBLEM)


def _format_problem(problem: Any) -> str:
    message = re.sub(r"^(Value error, |Input )", "", problem["msg"])
    place = ".".join(map(str, problem["loc"]))[:80] or "data"
    value = problem.get("input")
    shown = f"={value!r}"[:80] if isinstance(value, str | int) else ""
    return f"{place}{shown} {message[:1].lower()}{message[1:]}"

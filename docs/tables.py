"""What the pages of docs/reference are made of: tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Write a Markdown table; line breaks inside a cell become spaces."""
    lines = [list(header)]
    lines.append(["---"] * len(lines[0]))
    lines += [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def value(value: object) -> str:
    """Write a default, such as `true`."""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value not in (None, "") else "empty"

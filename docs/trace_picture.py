"""Draw a trace: a line for each span, from left to right as time went by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dashboard_picture as drawn

WIDTH = 1000
NAMES = 330
"""Width of the column of names."""
LINE = 18
INDENT = 12
MOST = 40
"""Spans that are shown, the longest ones."""
LETTERS = 44
"""Of a name."""


def _depth(span: dict[str, Any], spans: Sequence[dict[str, Any]]) -> int:
    parent = span["parent"]
    return 0 if parent is None else 1 + _depth(spans[parent], spans)


def _in_order(
    spans: Sequence[dict[str, Any]], parent: dict[str, Any] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield each span before those within it, and these as they began."""
    within = [s for s in spans if (None if s["parent"] is None else spans[s["parent"]]) is parent]
    for span in sorted(within, key=lambda each: (each["begin"], each["end"])):
        yield span
        yield from _in_order(spans, span)


def _length(span: dict[str, Any]) -> int:
    return span["end"] - span["begin"]


def _lines(spans: Sequence[dict[str, Any]]) -> Iterator[str]:
    longest = sorted(spans, key=lambda each: (_depth(each, spans) > 0, -_length(each)))[:MOST]
    begin, end = min(s["begin"] for s in spans), max(s["end"] for s in spans)
    scale = (WIDTH - NAMES - 90) / max(end - begin, 1)
    shown = [span for span in _in_order(spans) if span in longest]
    for number, span in enumerate(shown):
        depth = _depth(span, spans)
        y = 8 + LINE * number
        x = NAMES + (span["begin"] - begin) * scale
        width = max(_length(span) * scale, 1.5)
        name = span["name"]
        short = name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"
        colour = drawn.COLOURS[min(depth, len(drawn.COLOURS) - 1)]
        yield drawn.text(8 + INDENT * depth, y + 11, short)
        yield (
            f'<rect x="{x:.1f}" y="{y + 2}" width="{width:.1f}" height="{LINE - 6}" rx="2"'
            f' fill="{colour}"/>'
        )
        yield drawn.text(x + width + 6, y + 11, drawn.value(_length(span) / 1e9, "s"), "small")
    if left := len(spans) - len(shown):
        yield drawn.text(8, 8 + LINE * len(shown) + 11, f"and {left} shorter ones", "small")


def draw(spans: Sequence[dict[str, Any]], title: str) -> str:
    """Draw a trace.

    Args:
        spans: Each has `name`, `parent` (which of them, or None), `begin` and `end`.
        title: What is shown, for those who can't see it.
    """
    height = LINE * (min(len(spans), MOST) + (len(spans) > MOST)) + 16
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        f' aria-label="{title}" font-family="system-ui, sans-serif" font-size="12">'
    )
    page = '<rect class="panel" width="100%" height="100%"/>'
    return "\n".join([head, f"<style>{drawn.STYLE}</style>", page, *_lines(spans), "</svg>", ""])

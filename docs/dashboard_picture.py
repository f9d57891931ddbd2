"""Draw the dashboard's panels from what its queries have returned."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Iterator, Sequence
from typing import Any

COLUMN = 38
ROW = 20
GAP = 6
ENTRY = 13
"""Height of a line of a panel's legend."""
SHOWN = 4
"""How many series a panel shows: those that were not 0 throughout come first."""
LETTER = 6.8
SMALL_LETTER = 5.5
"""Width of a letter of a title, and of a legend, about."""
DAY = 86400
COLOURS = ("#2f6fde", "#e0912f", "#2f9e5b", "#cf2f3c", "#7a3fb5", "#8c96a8")
STYLE = (
    ".page{fill:#f3f4f6}.panel{fill:#fff;stroke:#dfe2e7}text{fill:#2a2f38}.title{font-weight:600}"
    ".row{font-weight:600;font-size:13px}.big{font-size:26px;font-weight:600}"
    ".axis{stroke:#e3e6ea}.small,.none{fill:#69707d;font-size:10px}"
    "@media(prefers-color-scheme:dark){.page{fill:#131416}.panel{fill:#1d2127;stroke:#343a43}"
    "text{fill:#e4e7eb}.axis{stroke:#343a43}.small,.none{fill:#a9b1bd}}"
)


@dataclasses.dataclass(frozen=True)
class Place:
    """A panel's rectangle."""

    x: float
    y: float
    width: float
    height: float

    @classmethod
    def of(cls, grid: dict[str, int]) -> Place:
        """Return the rectangle of a place in Grafana's grid of 24 columns."""
        return cls(
            grid["x"] * COLUMN + GAP / 2,
            grid["y"] * ROW + GAP / 2,
            grid["w"] * COLUMN - GAP,
            grid["h"] * ROW - GAP,
        )


def value(number: float, unit: str) -> str:
    """Write a number as Grafana does in its unit, roughly."""
    if math.isnan(number):
        return "no value"
    if unit == "bytes":
        return f"{number / 2**20:.0f} MiB"
    if unit == "s" and number >= 2 * DAY:
        return f"{number / DAY:.0f} days"
    if unit == "s":
        thousandths = f"{number * 1000:.2g}" if number < 0.01 else f"{number * 1000:.0f}"
        return f"{number:.2f} s" if number >= 1 else f"{thousandths} ms"
    suffix = " /s" if unit == "reqps" else ""
    return f"{number:.0f}{suffix}" if number == round(number) else f"{number:.2g}{suffix}"


def text(
    x: float, y: float, words: str, kind: str = "", *, room: float = 0, letter: float = LETTER
) -> str:
    """Write words, no wider than there is room."""
    kind = f' class="{kind}"' if kind else ""
    fitted = f' textLength="{room:.1f}" lengthAdjust="spacingAndGlyphs"'
    narrow = fitted if room and len(words) * letter > room else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{kind}{narrow}>{html.escape(words)}</text>'


def line(values: Sequence[tuple[float, float]], inside: Place, top: float, colour: str) -> str:
    """Draw a series; a gap where there is no number."""
    begin, end = values[0][0], values[-1][0]
    span = max(end - begin, 1)
    steps: list[str] = []
    pen = "M"
    for time, number in values:
        if math.isnan(number):
            pen = "M"
            continue
        x = inside.x + (time - begin) / span * inside.width
        y = inside.y + inside.height * (1 - number / top)
        steps.append(f"{pen}{x:.1f} {y:.1f}")
        pen = "L"
    return f'<path d="{"".join(steps)}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def chart(panel: dict[str, Any], place: Place) -> Iterator[str]:
    """Draw a panel of lines with the last value of each."""
    series = sorted(panel["series"], key=is_idle)[:SHOWN]
    legend = ENTRY * len(series) + 4
    inside = Place(place.x + 8, place.y + 34, place.width - 16, place.height - 40 - legend)
    numbers = [n for each in series for _, n in each["values"] if not math.isnan(n)]
    top = max([*numbers, 0]) or 1
    begin = min(each["values"][0][0] for each in series)
    end = max(each["values"][-1][0] for each in series)
    for share in (0, 0.5, 1):
        y = inside.y + inside.height * share
        yield f'<path class="axis" d="M{inside.x} {y:.1f}h{inside.width}"/>'
    for number, each in enumerate(series):
        # All lines of a panel have one axis of time.
        values = [(begin, math.nan), *each["values"], (end, math.nan)]
        yield line(values, inside, top, COLOURS[number % len(COLOURS)])
    yield text(inside.x, inside.y - 3, value(top, panel["unit"]), "small")
    for number, each in enumerate(series):
        y = place.y + place.height - legend + ENTRY * (number + 0.7)
        colour = COLOURS[number % len(COLOURS)]
        yield f'<rect x="{inside.x}" y="{y - 5:.1f}" width="9" height="3" fill="{colour}"/>'
        last = value(each["values"][-1][1], panel["unit"])
        words = f"{each['name']}: {last}"
        room = inside.width - 14
        yield text(inside.x + 14, y, words, "small", room=room, letter=SMALL_LETTER)


def is_idle(series: dict[str, Any]) -> bool:
    """Whether a series has no other numbers than 0."""
    return not any(number > 0 for _, number in series["values"])


def figures(panel: dict[str, Any], place: Place) -> Iterator[str]:
    """Draw a panel of numbers: the last one of each series."""
    for number, each in enumerate(panel["series"]):
        y = place.y + 58 + 48 * number
        yield text(place.x + 12, y, value(each["values"][-1][1], panel["unit"]), "big")
        if each["name"]:
            yield text(place.x + 12, y + 15, each["name"], "small")


def panel_of(panel: dict[str, Any]) -> Iterator[str]:
    """Draw one panel."""
    place = Place.of(panel["place"])
    if panel["type"] == "row":
        yield text(place.x + 4, place.y + 10, panel["title"], "row")
        return
    yield (
        f'<rect class="panel" x="{place.x}" y="{place.y}" width="{place.width}"'
        f' height="{place.height}" rx="2"/>'
    )
    yield text(place.x + 8, place.y + 14, panel["title"], "title", room=place.width - 16)
    if not panel["series"]:
        yield text(place.x + 12, place.y + place.height / 2, "no data", "none")
        return
    yield from (figures if panel["type"] == "stat" else chart)(panel, place)


def draw(panels: Sequence[dict[str, Any]], label: str) -> str:
    """Draw the dashboard; the label is for those who hear it."""
    bottom = max(panel["place"]["y"] + panel["place"]["h"] for panel in panels)
    width, height = 24 * COLUMN, bottom * ROW + GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
        f' aria-label="{label}" font-family="system-ui, sans-serif" font-size="11">'
    )
    page = '<rect class="page" width="100%" height="100%"/>'
    parts = [part for panel in panels for part in panel_of(panel)]
    return "\n".join([head, f"<style>{STYLE}</style>", page, *parts, "</svg>", ""])

"""Draw timelines as SVG: a row for each container, a bar for each state."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence

from testbed.kit import timeline

SECOND = 8
"""Width of a second, the same in all charts."""
TICK = 10
"""Seconds between two marks of the time axis."""
LETTER = 6.6
"""Width of a letter of a name, about."""
ROW = 17
GAP = 7
LINE = 13
"""Height of a line of the marks' texts."""


@dataclasses.dataclass(frozen=True)
class Bar:
    """One rectangle."""

    x: float
    width: float
    style: str
    hint: str


@dataclasses.dataclass(frozen=True)
class Row:
    """The name of a pod, or a container's name and bars."""

    y: float
    name: str
    bars: tuple[Bar, ...] = ()
    is_pod: bool = False


@dataclasses.dataclass(frozen=True)
class Tick:
    """A mark on the time axis."""

    x: float
    text: str


@dataclasses.dataclass(frozen=True)
class Mark:
    """A moment worth a vertical line, and where its text is centred."""

    x: float
    text: str
    middle: float
    y: float


@dataclasses.dataclass(frozen=True)
class Chart:
    """Everything that the SVG template needs."""

    title: str
    labels: float
    """Where the names of containers end and the time begins."""
    top: float
    """Where the texts of the marks end."""
    width: float
    height: float
    rows: tuple[Row, ...]
    ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...]


def style(role: timeline.Role, state: timeline.State) -> str:
    """Name the CSS class of a bar."""
    if state is timeline.State.RUNNING:
        return f"running-{role}"
    return str(state)


def draw(
    title: str,
    pods: Sequence[timeline.PodLine],
    start: float,
    end: float,
    marks: Iterable[tuple[float, str]] = (),
) -> Chart:
    """Lay out the pods' containers between two moments.

    Times are seconds since the demo's start, as on the lines of the report. Each pod's name has a
    row, so that narrow screens show names and bars.
    """
    names = [len(name) for pod in pods for name in pod.containers]
    labels = round(LETTER * max(names, default=0) + 14)
    wide = [len(pod.name) * LETTER for pod in pods]

    def x(at: float) -> float:
        return round(labels + SECOND * (min(max(at, start), end) - start), 1)

    width = max(x(end) + 20, labels + 200, *wide)
    shown = [(x(at), text) for at, text in marks if start <= at <= end]
    lines = tuple(_marks(shown, width))
    top = y = max((mark.y for mark in lines), default=0) + 4
    rows: list[Row] = []
    for pod in sorted(pods, key=lambda line: (line.created, line.name)):
        rows.append(Row(y, pod.name, is_pod=True))
        y += ROW
        for container in pod.containers.values():
            bars = tuple(
                Bar(
                    x(interval.start),
                    round(max(x(interval.end or end) - x(interval.start), 1.0), 1),
                    style(container.role, interval.seen.state),
                    _hint(container, interval, end),
                )
                for interval in container.intervals
                if (interval.end or end) >= start and interval.start <= end
            )
            rows.append(Row(y, container.name, bars))
            y += ROW
        y += GAP
    first = math.ceil(start / TICK) * TICK
    ticks = tuple(Tick(x(at), f"{at} s") for at in range(first, int(end) + 1, TICK))
    return Chart(title, labels, top, width, y + 18, tuple(rows), ticks, lines)


def _marks(shown: Iterable[tuple[float, str]], width: float) -> Iterator[Mark]:
    """Place each mark's text inside the chart, below those that it would overlap."""
    ends: list[float] = []
    for x, text in sorted(shown):
        half = LETTER * len(text) / 2
        middle = min(max(x, half), width - half)
        level = next((n for n, end in enumerate(ends) if end < middle - half), len(ends))
        ends[level : level + 1] = [middle + half + LETTER]
        yield Mark(x, text, middle, LINE * (level + 1))


def _hint(container: timeline.ContainerLine, interval: timeline.Interval, end: float) -> str:
    seen = interval.seen
    code = f", exit code {seen.exit_code}" if seen.exit_code is not None else ""
    run = f", restart {seen.restarts}" if seen.restarts else ""
    last = interval.end or end
    return f"{container.name}: {seen.state}{code}{run}, {interval.start:.1f} to {last:.1f} s"

"""Draw timelines as SVG: a row for each container, a bar for each state."""

import dataclasses
import math
from collections.abc import Iterable, Sequence

from testbed.kit import timeline

LABELS = 330
WIDTH = 1080
ROW = 17
GAP = 7
TOP = 26


@dataclasses.dataclass(frozen=True)
class Bar:
    """One rectangle."""

    x: float
    width: float
    style: str
    hint: str


@dataclasses.dataclass(frozen=True)
class Row:
    """One container's label and bars."""

    y: float
    pod: str
    container: str
    bars: tuple[Bar, ...]


@dataclasses.dataclass(frozen=True)
class Tick:
    """A mark on the time axis."""

    x: float
    text: str


@dataclasses.dataclass(frozen=True)
class Mark:
    """A moment worth a vertical line."""

    x: float
    text: str


@dataclasses.dataclass(frozen=True)
class Chart:
    """Everything that the SVG template needs."""

    title: str
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


def step_for(span: float, ticks: int = 8) -> float:
    """Return the smallest of 1, 2, 5, 10, … seconds that gives at most `ticks` marks."""
    if span <= ticks:
        return 1.0
    power = 10 ** math.floor(math.log10(span / ticks))
    return next(factor * power for factor in (1, 2, 5, 10) if span / (factor * power) <= ticks)


def draw(
    title: str,
    pods: Sequence[timeline.PodLine],
    start: float,
    end: float,
    marks: Iterable[tuple[float, str]] = (),
) -> Chart:
    """Lay out the pods' containers between two moments."""
    span = max(end - start, 1.0)

    def x(at: float) -> float:
        share = (min(max(at, start), end) - start) / span
        return round(LABELS + share * (WIDTH - LABELS), 1)

    rows: list[Row] = []
    y = float(TOP)
    for pod in sorted(pods, key=lambda line: (line.created, line.name)):
        name = pod.name
        for container in pod.containers.values():
            bars = tuple(
                Bar(
                    x(interval.start),
                    round(max(x(interval.end or end) - x(interval.start), 1.0), 1),
                    style(container.role, interval.seen.state),
                    _hint(container, interval, start, end),
                )
                for interval in container.intervals
                if (interval.end or end) >= start and interval.start <= end
            )
            rows.append(Row(y, name, container.name, bars))
            name = ""
            y += ROW
        y += GAP
    step = step_for(span)
    ticks = tuple(
        Tick(x(start + i * step), f"{i * step:g} s") for i in range(int(span / step) + 1)
    )
    lines = tuple(Mark(x(at), text) for at, text in marks if start <= at <= end)
    return Chart(title, WIDTH + 20, y + 18, tuple(rows), ticks, lines)


def _hint(
    container: timeline.ContainerLine, interval: timeline.Interval, start: float, end: float
) -> str:
    seen = interval.seen
    code = f", exit code {seen.exit_code}" if seen.exit_code is not None else ""
    run = f", restart {seen.restarts}" if seen.restarts else ""
    first, last = interval.start - start, (interval.end or end) - start
    return f"{container.name}: {seen.state}{code}{run}, {first:.1f} to {last:.1f} s"

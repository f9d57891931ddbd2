"""Draw timelines as SVG: a row for each container, a bar for each state."""

import dataclasses
from collections.abc import Iterable, Sequence

from testbed.kit import timeline

SECOND = 8
"""Width of a second, the same in all charts."""
TICK = 10
"""Seconds between two marks of the time axis."""
LETTER = 6.6
"""Width of a letter of a name, about."""
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
    labels: float
    """Where the names end and the time begins."""
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
    """Lay out the pods' containers between two moments."""
    names = [len(f"{pod.name}  {name}") for pod in pods for name in pod.containers]
    labels = round(LETTER * max(names, default=0) + 24)

    def x(at: float) -> float:
        return round(labels + SECOND * (min(max(at, start), end) - start), 1)

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
    ticks = tuple(
        Tick(x(start + second), f"{second} s") for second in range(0, int(end - start) + 1, TICK)
    )
    lines = tuple(Mark(x(at), text) for at, text in marks if start <= at <= end)
    return Chart(title, labels, max(x(end), labels + 200) + 20, y + 18, tuple(rows), ticks, lines)


def _hint(
    container: timeline.ContainerLine, interval: timeline.Interval, start: float, end: float
) -> str:
    seen = interval.seen
    code = f", exit code {seen.exit_code}" if seen.exit_code is not None else ""
    run = f", restart {seen.restarts}" if seen.restarts else ""
    first, last = interval.start - start, (interval.end or end) - start
    return f"{container.name}: {seen.state}{code}{run}, {first:.1f} to {last:.1f} s"

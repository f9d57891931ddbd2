"""What a soak measures: processes by the container that they run in, and whether figures grow."""

import dataclasses
import os
import pathlib
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

PROC = pathlib.Path("/proc")

HOOK_SECONDS = 15.0
"""A process younger than that is a hook or a question, which ends before the next one begins."""

TOLERANCES = {
    # A leak of 20 KiB in each cycle is 2 MiB between the middles of the two quarters that are
    # compared after 200 cycles; Python's arenas come and go by less.
    "MiB": 2.0,
    # Juju's Pebble keeps its last 1000 changes (pruneMaxChanges in its overlord.go), about 25 KiB
    # each: every hook of ours makes two, so the hundredth cycle is the last to add any.
    "MiB of Pebble": 12.0,
    # The same of one in twenty cycles; connections of requests under way are one or two.
    "files": 4.0,
    "sockets": 4.0,
    "objects": 0.0,
}
"""How much more the last quarter may have than the second, by unit."""


@dataclasses.dataclass(frozen=True)
class Usage:
    """What lasting processes hold."""

    resident: float
    """MiB."""
    files: int
    """Open file descriptors, sockets among them."""
    sockets: int

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.resident + other.resident,
            self.files + other.files,
            self.sockets + other.sockets,
        )


def usage(containers: Mapping[str, str], *, young: float = HOOK_SECONDS) -> dict[str, Usage]:
    """Measure containers from outside, as they share this machine's kernel.

    Args:
        containers: A name for each container id; processes of one program in containers of one
            name are added up.
        young: Seconds; younger processes don't count.

    Returns:
        What each program holds, by its container's name and its own, as `name program`.
    """
    found: dict[str, Usage] = defaultdict(lambda: Usage(0.0, 0, 0))
    for process in PROC.iterdir():
        if not process.name.isdecimal():
            continue
        try:
            name = _container(process, containers)
            if name and _age(process) >= young:
                program = (process / "comm").read_text().strip()
                found[f"{name} {program}"] += _of_process(process)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            # It ended while we looked.
            continue
    return dict(found)


def _container(process: pathlib.Path, containers: Mapping[str, str]) -> str:
    cgroup = (process / "cgroup").read_text()
    return next((name for identity, name in containers.items() if identity in cgroup), "")


def _age(process: pathlib.Path) -> float:
    # The fields after the name, which is in brackets and may itself have any character.
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _of_process(process: pathlib.Path) -> Usage:
    pages = int((process / "statm").read_text().split()[1])
    targets = [_target(entry) for entry in (process / "fd").iterdir()]
    return Usage(
        resident=pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        files=len(targets),
        sockets=sum(target.startswith("socket:") for target in targets),
    )


def _target(entry: pathlib.Path) -> str:
    try:
        return str(entry.readlink())
    except FileNotFoundError:
        return ""


@dataclasses.dataclass(frozen=True)
class Trend:
    """How a figure of the second quarter of the samples compares with the last."""

    name: str
    unit: str
    early: float
    late: float

    @property
    def grows(self) -> bool:
        """Whether it is more than it may be."""
        return self.late - self.early > TOLERANCES[self.unit]

    def __str__(self) -> str:
        return f"{self.name}: {self.early:.1f} -> {self.late:.1f} {self.unit}"


def trend(name: str, unit: str, samples: Sequence[float]) -> Trend:
    """Compare medians, so that no single sample decides; the first quarter is for warming up.

    Args:
        name: What was measured.
        unit: One of `TOLERANCES`.
        samples: In the order of time, four at least.
    """
    quarter = len(samples) // 4
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]
    return Trend(name, unit, statistics.median(early), statistics.median(late))


class Record:
    """Samples by name and unit."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str], list[float]] = defaultdict(list)

    def add(self, name: str, unit: str, value: float) -> None:
        """Take in one sample."""
        self._samples[name, unit].append(value)

    def add_usage(self, found: Mapping[str, Usage]) -> None:
        """Take in one sample of several containers."""
        for name, each in found.items():
            self.add(name, "MiB of Pebble" if name.endswith(" pebble") else "MiB", each.resident)
            self.add(name, "files", each.files)
            self.add(name, "sockets", each.sockets)

    def trends(self) -> list[Trend]:
        """Compare early and late of everything that was sampled often enough."""
        return [
            trend(name, unit, samples)
            for (name, unit), samples in sorted(self._samples.items())
            if len(samples) >= 4
        ]

    def latest(self) -> Iterable[str]:
        """Yield the last sample of each figure, for people."""
        for (name, unit), samples in sorted(self._samples.items()):
            yield f"{name} {samples[-1]:.0f} {unit}"

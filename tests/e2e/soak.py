"""What a soak measures: memory and open files of processes, by the container that they run in."""

import os
import pathlib
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping

PROC = pathlib.Path("/proc")
HOOK_SECONDS = 15.0
"""A younger process is a hook or a question, which ends before the next one begins."""
TOLERANCES = {
    # A leak of 20 KiB in each cycle is 2 MiB between the middles of the two quarters that are
    # compared after 200 cycles; Python's arenas come and go by less.
    "MiB": 2.0,
    # Juju's Pebble keeps its last 1000 changes (pruneMaxChanges in its overlord.go), about 25 KiB
    # each: every hook of ours makes two, so the hundredth cycle is the last to add any.
    "MiB of Pebble": 12.0,
    # A leak of one file in twenty cycles; connections of requests under way are one or two.
    "files": 4.0,
    "objects": 0.0,
}
"""How much more the last quarter may have than the second, by unit."""


class Record:
    """Samples by name and unit."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str], list[float]] = defaultdict(list)

    def add(self, name: str, unit: str, value: float) -> None:
        """Take in one sample."""
        self._samples[name, unit].append(value)

    def measure(self, containers: Mapping[str, str]) -> None:
        """Measure containers from outside, as they share this machine's kernel.

        Args:
            containers: A name for each container id; processes of one program in containers of
                one name are added up.
        """
        found: dict[tuple[str, str], float] = defaultdict(float)
        for process in PROC.iterdir():
            try:
                name = process.name.isdecimal() and _container(process, containers)
                if name and _age(process) >= HOOK_SECONDS:
                    program = (process / "comm").read_text().strip()
                    pages = int((process / "statm").read_text().split()[1])
                    unit = "MiB of Pebble" if program == "pebble" else "MiB"
                    size = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
                    found[f"{name} {program}", unit] += size
                    found[f"{name} {program}", "files"] += len(list((process / "fd").iterdir()))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                # It ended while we looked.
                continue
        for key, value in found.items():
            self.add(*key, value)

    def grown(self) -> list[str]:
        """Name the figures whose last quarter has more than their second may explain.

        Medians are compared, so that no single sample decides; the first quarter is for warming
        up.
        """
        grown = []
        for (name, unit), samples in sorted(self._samples.items()):
            quarter = len(samples) // 4
            if quarter:
                early = statistics.median(samples[quarter : 2 * quarter])
                late = statistics.median(samples[-quarter:])
                line = f"{name}: {early:.1f} -> {late:.1f} {unit}"
                print(line)
                if late - early > TOLERANCES[unit]:
                    grown.append(line)
        return grown


def _container(process: pathlib.Path, containers: Mapping[str, str]) -> str:
    cgroup = (process / "cgroup").read_text()
    return next((name for identity, name in containers.items() if identity in cgroup), "")


def _age(process: pathlib.Path) -> float:
    # The fields after the name, which is in brackets and may itself have any character.
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")

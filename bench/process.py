"""What a process takes: its CPU time and its memory."""

from __future__ import annotations

import os
import re
from pathlib import Path


class Process:
    """What a process takes, as the kernel counts it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._since = self.cpu

    @classmethod
    def of(cls, name: str, marker: str) -> Process:
        """Find a program by its name and a word of its command line."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if words[0].endswith(f"/{name}") and marker in " ".join(words):
                return cls(int(path.parent.name))
        raise SystemExit(f"no {name} runs")

    @property
    def words(self) -> str:
        """Its command line."""
        return Path(f"/proc/{self.number}/cmdline").read_bytes().decode().replace("\0", " ")

    @property
    def cpu(self) -> float:
        """Seconds until now."""
        fields = Path(f"/proc/{self.number}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def used(self) -> float:
        """Return the seconds since it was asked last."""
        before, self._since = self._since, self.cpu
        return self._since - before

    def megabytes(self, what: str = "VmRSS") -> float:
        """Return what it holds, or with VmHWM the most that it has held."""
        status = Path(f"/proc/{self.number}/status").read_text()
        found = re.search(rf"{what}:\s+(\d+)", status)
        return int(found[1]) * 1024 / 1e6 if found else 0.0


def profiled(stacks: Path) -> list[str]:
    """Return what goes before a command for py-spy to note where it was, each two milliseconds."""
    from testbed import environments  # noqa: PLC0415

    spy = environments.ensure("profile") / "bin/py-spy"
    stacks.parent.mkdir(parents=True, exist_ok=True)
    return [str(spy), "record", "--rate=500", "--gil", "--format=raw", f"--output={stacks}", "--"]

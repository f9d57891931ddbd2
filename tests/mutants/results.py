"""What is known of changes: kept in a file, shown as a table."""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Iterable, Mapping

import yaml

from tests.mutants import chosen
from tests.mutants.changes import ROOT, Change

EXPLAINED = pathlib.Path(__file__).with_name("explained.yaml")
INGRESS = "src/istio_integrator/ingress"
SHELL = "workload/sidecar_lifecycle/shell"


@dataclasses.dataclass(frozen=True)
class Room:
    """Some files, their tests, and how much of what is changed in them should be noticed."""

    aim: int
    """In percent: more is asked of what decides than of what acts."""
    suite: chosen.Suite
    files: tuple[str, ...]


ROOMS = {
    "rules": Room(95, chosen.WORKLOAD, ("workload/sidecar_lifecycle/decide/*.py",)),
    "convergence": Room(
        *(95, chosen.WORKLOAD, ("workload/sidecar_lifecycle/decide/convergence/*.py",))
    ),
    "converging": Room(85, chosen.WORKLOAD, (f"{SHELL}/convergence/*.py",)),
    "shutdown": Room(85, chosen.WORKLOAD, (f"{SHELL}/shutdown/*.py",)),
    "kube": Room(85, chosen.WORKLOAD, (f"{SHELL}/kube/*.py",)),
    "charm-kube": Room(85, chosen.CHARM, ("src/istio_integrator/kube/*.py",)),
    "admission": Room(85, chosen.WORKLOAD, (f"{SHELL}/admission/*.py",)),
    "charm-admission": Room(
        *(85, chosen.CHARM),
        ("src/istio_integrator/admission/*.py", "!*/certificates.py"),
    ),
    "ingress": Room(
        *(85, chosen.CHARM),
        (f"{INGRESS}/*.py", "!*/authorization.py", "!*/guard*.py", "!*/certificate.py"),
    ),
    "authentication": Room(
        *(95, chosen.CHARM), (f"{INGRESS}/authorization.py", f"{INGRESS}/guard*.py")
    ),
    "membership": Room(85, chosen.CHARM, ("src/istio_integrator/membership/*.py",)),
    "tls": Room(
        *(85, chosen.CHARM),
        (f"{INGRESS}/certificate.py", "src/istio_integrator/relations/certificates.py"),
    ),
    "certificates": Room(85, chosen.CHARM, ("src/istio_integrator/admission/certificates.py",)),
    "templates": Room(95, chosen.CHARM, ("templates/*/*.yaml.j2",)),
}


@dataclasses.dataclass(kw_only=True)
class Record:
    """What became of one change."""

    room: str
    rank: str
    file: str
    line: int
    text: str
    """What the line says."""
    difference: str
    source: str
    """A word for the file that was changed."""
    tests: str
    """A word for the tests that there were."""
    verdict: str = "not run"
    """Noticed by `unit` or `functional` tests, `survived`, or `not run` by any of them."""
    how: str = ""
    by: str = ""
    seconds: float = 0.0
    functional: bool = False
    """Whether functional tests were asked, too."""

    @property
    def place(self) -> str:
        """The file and line."""
        return f"{self.file}:{self.line}"

    @property
    def noticed(self) -> bool:
        """Whether a test failed."""
        return self.verdict in ("unit", "functional")


class Results:
    """The file that they are kept in."""

    def __init__(self, path: pathlib.Path) -> None:
        """Read it, leaving out what was found of files that are others now."""
        self._path = path
        self._sources: dict[str, str] = {}
        self.tests = chosen.digest(ROOT, ("tests/unit", "tests/functional"))
        self.explained = yaml.safe_load(EXPLAINED.read_text()) or {}
        self._records: dict[str, Record] = {}
        self._sample: dict[str, set[str]] = {}
        self.read()

    def read(self) -> None:
        """Read what is in the file by now, other processes' records, too."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        for line in lines:
            record = Record(**json.loads(line))
            self._records[record.rank] = record
        for rank, record in [*self._records.items()]:
            if record.source != self.source(record.file):
                del self._records[rank]

    @property
    def records(self) -> list[Record]:
        """Of the sample, where one was drawn, else all that is known."""
        return [
            record
            for record in self._records.values()
            if record.rank in self._sample.get(record.room, {record.rank})
        ]

    def sampled(self, room: str, ranks: Iterable[str]) -> None:
        """Tell which changes of a room the table is of."""
        self._sample[room] = {*ranks}

    def source(self, file: str) -> str:
        """Return a word for what a file holds."""
        if file not in self._sources:
            path = ROOT / file
            text = path.read_bytes() if path.exists() else b""
            self._sources[file] = hashlib.sha256(text).hexdigest()[:12]
        return self._sources[file]

    def known(self, change: Change, *, functional: bool = False) -> Record | None:
        """Return what is known of a change; tests not asked yet may notice what others did not."""
        record = self._records.get(change.rank)
        if record is None or record.noticed:
            return record
        asked = record.tests == self.tests and record.functional >= functional
        return record if asked else None

    def add(self, record: Record) -> None:
        """Keep what became of a change."""
        self._records[record.rank] = record
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(dataclasses.asdict(record)) + "\n")

    def forget(self, ranks: set[str]) -> None:
        """Keep nothing of some changes."""
        self._records = {k: each for k, each in self._records.items() if k not in ranks}
        lines = [json.dumps(dataclasses.asdict(each)) + "\n" for each in self._records.values()]
        self._path.write_text("".join(lines))


Explained = Mapping[str, Iterable[Mapping[str, str]]]
"""Of each file what its lines say, what they become where it is not any change, and why."""


def explanation(record: Record, explained: Explained) -> str:
    """Return why no test can notice a change, or nothing."""
    for each in explained.get(record.file, ()):
        if each["line"] == record.text and each.get("becomes", "") in record.difference:
            return each["why"]
    return ""


def without_line(explained: Explained, root: pathlib.Path = ROOT) -> list[str]:
    """Return the explanations of lines that are not there any more."""
    gone = []
    for file, entries in explained.items():
        path = root / file
        lines = (
            {line.strip() for line in path.read_text().splitlines()} if path.exists() else set()
        )
        gone += [f"{file}: {each['line']}" for each in entries if each["line"] not in lines]
    return gone


def score(records: Iterable[Record], room: str) -> float:
    """Return how many percent of the changes of a room were noticed."""
    verdicts = [record.noticed for record in records if record.room == room]
    return 100 * sum(verdicts) / len(verdicts) if verdicts else 0.0


def table(records: Iterable[Record], explained: Explained) -> list[str]:
    """Write a line for each room of which something is known."""
    records = list(records)
    heads = ("tried", "unit", "functional", "survived", "explained", "noticed", "aim")
    lines = [f"{'room':16}" + "".join(f"{head:>11}" for head in heads)]
    for room, about in ROOMS.items():
        mine = [record for record in records if record.room == room]
        if not mine:
            continue
        left = [record for record in mine if not record.noticed]
        cells = (
            len(mine),
            sum(record.verdict == "unit" for record in mine),
            sum(record.verdict == "functional" for record in mine),
            len(left),
            sum(bool(explanation(record, explained)) for record in left),
            f"{score(mine, room):.0f} %",
            f"{about.aim} %",
        )
        lines.append(f"{room:16}" + "".join(f"{cell:>11}" for cell in cells))
    return lines


def survivors(records: Iterable[Record], explained: Explained) -> list[str]:
    """Write a line for each change that no test noticed, with why, and what explains nothing."""
    left = sorted(
        (record for record in records if not record.noticed),
        key=lambda record: (record.file, record.line),
    )
    lines = []
    for record in left:
        lines.append(f"{record.place}: {record.difference}")
        why = explanation(record, explained)
        if why or record.verdict == "not run":
            lines.append(f"    {why or 'no test that may be chosen runs it'}")
    lines += [f"explained, and not there any more: {each}" for each in without_line(explained)]
    return lines

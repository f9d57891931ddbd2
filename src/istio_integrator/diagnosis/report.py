"""The report of a diagnosis or a preview."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence

import yaml

from istio_integrator import texts
from istio_integrator.messages import Message, Severity, Template

_LONGEST = 1000
"""Characters in a line of a report."""
_MOST_ODD = 10
"""Unreadable objects that a report names at most."""
ODD_OBJECTS = "odd objects"
"""The name of lines about objects that the checks skipped."""
STATUS = "status"
"""The name of lines about messages of the unit's status that no check reported."""


@functools.cache
def read_symptoms() -> dict[str, dict[str, str]]:
    """Return what users see, its meaning and its remedy, by anchors of docs/how-to/symptoms.md."""
    return yaml.safe_load(pathlib.Path(__file__).with_name("symptoms.yaml").read_text())


class Level(enum.Enum):
    """The level of a line, the worst first."""

    BROKEN = "✗"
    DOUBTFUL = "!"
    FINE = "✓"

    @classmethod
    def from_message(cls, message: Message) -> Level:
        """Return the level of a message."""
        levels = {Severity.BLOCKED: cls.BROKEN, Severity.NOTE: cls.FINE}
        return levels.get(message.severity, cls.DOUBTFUL)


def find_unreported(
    given: Iterable[Message], found: Iterable[Message], *, look: str
) -> Iterable[Message]:
    """Return the problems of the unit's status that no check reported.

    Args:
        given: The messages of the unit's status.
        found: The messages of the checks.
        look: The next command for problems without a command.
    """
    reported = [(each.template, each.about) for each in found]
    for each in given:
        if each.severity is not Severity.NOTE and (each.template, each.about) not in reported:
            yield dataclasses.replace(each, check=STATUS, otherwise=look)


def report_skipped(noted: Mapping[str, str]) -> Iterable[Message]:
    """Report objects that could not be read, with the reason of each."""
    found: list[Message] = []
    for reference, reason in list(noted.items())[:_MOST_ODD]:
        kind, _, path = reference.rpartition(" ")
        namespace, _, name = path.rpartition("/")
        where = f"-n {namespace} " if namespace else ""
        show = f"kubectl {where}get {kind.lower()} {name} -o yaml"
        found.append(Template.OBJECT_PASSED_OVER(reference=reference, reason=reason, command=show))
    if len(noted) > _MOST_ODD:
        found.append(Template.OBJECTS_PASSED_OVER(count=len(noted), shown=_MOST_ODD))
    return (dataclasses.replace(each, check=ODD_OBJECTS) for each in found)


@dataclasses.dataclass(frozen=True)
class Report:
    """The messages of all checks, the worst first, otherwise in the order of the checks."""

    messages: Sequence[Message]
    further: Sequence[str] = ()
    """Commands for parts that no check covers."""

    @property
    def is_broken(self) -> bool:
        """Whether any part is broken."""
        return any(Level.from_message(each) is Level.BROKEN for each in self.messages)

    @property
    def summary(self) -> str:
        """The number of lines at each level, the worst first."""
        words = {Level.BROKEN: "broken", Level.DOUBTFUL: "to look at", Level.FINE: "passed"}
        levels = [Level.from_message(each) for each in self.messages]
        counts = {word: levels.count(level) for level, word in words.items()}
        return ", ".join(f"{count} {word}" for word, count in counts.items() if count)

    def render(self, how: str) -> dict[str, str]:
        """Render the results of an action, as `text` or `json`."""
        written = self.render_json() if how == "json" else self.render_text()
        return {"summary": self.summary, "report": written}

    def render_text(self) -> str:
        """Render the report as text, with meaning and remedy of each symptom once."""
        width = max((len(each.check) for each in self.messages), default=0)
        blank = f"  {'':<{width}}  "
        lines: list[str] = []
        explained: set[str] = set()
        for level, each in self._sort_messages():
            lines.append(f"{level.value} {each.check:<{width}}  {_to_one_line(each.finding)}")
            if each.next_command:
                lines.append(f"{blank}→ {_to_one_line(each.next_command)}")
            new = [] if level is Level.FINE else [a for a in each.symptoms if a not in explained]
            for symptom in map(read_symptoms().__getitem__, new):
                lines.append(f"{blank}{symptom['seen']}: {symptom['meaning']}")
                lines.append(f"{blank}Remedy: {symptom['remedy']}")
            explained.update(new)
        if self.further:
            lines.append(f"See also: {' ; '.join(self.further)}")
        return "\n".join(lines)

    def render_json(self) -> str:
        """Render the report as JSON, in ASCII so that no text in it can control a terminal."""
        rows = [
            {
                "level": level.name.lower(),
                "message": each.template.name,
                "seen": each.finding,
                "next": each.next_command,
                "check": each.check,
                "symptoms": each.symptoms,
            }
            for level, each in self._sort_messages()
        ]
        return json.dumps(rows)

    def _sort_messages(self) -> list[tuple[Level, Message]]:
        levels = list(Level)
        rows = [(Level.from_message(each), each) for each in self.messages]
        return sorted(rows, key=lambda row: levels.index(row[0]))


def _to_one_line(text: str) -> str:
    return texts.escape(" ".join(text.split()), _LONGEST)

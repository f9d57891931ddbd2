"""What checks find, and how a whole diagnosis reads."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence

from istio_integrator import findings, texts
from istio_integrator.findings import Finding, Level
from istio_integrator.messages import Message, Severity

_LONGEST = 1000
"""Characters of a line."""
_MOST = 3
"""Names of a list that a line shows."""
_MOST_ODD = 10
"""Objects that can't be read which a report names."""
SYMPTOMS = "docs/how-to/symptoms.md"
ODD_OBJECTS = "odd objects"
"""The name of lines about objects that the checks passed over."""
STATUS = "status"
"""The name of lines about what the unit's status says and no check does."""


def grant(application: str) -> str:
    """Return the command that gives us our rights."""
    return f"juju trust {application} --scope=cluster, or kubectl apply -f rbac/roles.yaml"


def own_log(application: str) -> str:
    """Return the command that shows what our units wrote."""
    return f"juju debug-log --replay --include {application}"


def of_messages(given: Iterable[Message], otherwise: str) -> list[Finding]:
    """Turn messages into findings.

    Args:
        given: What the unit says.
        otherwise: The next command for those that name none.
    """
    found: list[Finding] = []
    for message in given:
        if message.severity is Severity.NOTE:
            found.append(findings.fine(message.text))
            continue
        make = findings.broken if message.severity is Severity.BLOCKED else findings.doubtful
        told = make(message.seen, message.command or otherwise)
        symptom = message.said.value.symptom
        found.append(dataclasses.replace(told, symptoms=(symptom,) if symptom else ()))
    return found


def unsaid(
    given: Iterable[Message], found: Iterable[Finding], *, application: str
) -> Iterable[Finding]:
    """Return what the unit's status says and no check has found."""
    said = "\n".join(each.seen for each in found)
    for each in of_messages(given, own_log(application)):
        if each.level is not Level.FINE and each.seen not in said:
            yield dataclasses.replace(each, check=STATUS)


def passed_over(noted: Mapping[str, str]) -> Iterable[Finding]:
    """Name objects that could not be read, with the reason of each."""
    for reference, reason in list(noted.items())[:_MOST_ODD]:
        kind, _, path = reference.rpartition(" ")
        namespace, _, name = path.rpartition("/")
        where = f"-n {namespace} " if namespace else ""
        show = f"kubectl {where}get {kind.lower()} {name} -o yaml"
        found = findings.doubtful(f"{reference} is passed over: {reason}", show)
        yield dataclasses.replace(found, check=ODD_OBJECTS)
    if len(noted) > _MOST_ODD:
        text = f"{len(noted)} objects are passed over, of which these are {_MOST_ODD}"
        found = findings.doubtful(text, "delete or mend those above, then look again")
        yield dataclasses.replace(found, check=ODD_OBJECTS)


def listed(names: Iterable[str]) -> str:
    """Name the first few of many, each once: `a, b, c and 4 more`."""
    known = list(dict.fromkeys(names))
    rest = f" and {len(known) - _MOST} more" if len(known) > _MOST else ""
    return ", ".join(known[:_MOST]) + rest


@dataclasses.dataclass(frozen=True)
class Report:
    """A whole diagnosis, the worst first, otherwise in the order of the checks."""

    findings: Sequence[Finding]
    further: Sequence[str] = ()
    """Commands that show what no check looks at."""

    @property
    def is_broken(self) -> bool:
        """Whether anything does not work."""
        return any(each.level is Level.BROKEN for each in self.findings)

    @property
    def summary(self) -> str:
        """Count, the worst first."""
        words = ("broken", "to look at", "as it should be")
        counts = [sum(each.level is level for each in self.findings) for level in Level]
        return ", ".join(
            f"{count} {word}" for count, word in zip(counts, words, strict=True) if count
        )

    def results(self, how: str) -> dict[str, str]:
        """Write it as the results of an action, `text` or `json`."""
        written = self.json() if how == "json" else self.text()
        return {"summary": self.summary, "report": written}

    def text(self) -> str:
        """Write it for people, with each heading of the page of symptoms once."""
        width = max((len(each.check) for each in self.findings), default=0)
        blank = f"  {'':<{width}}  "
        lines: list[str] = []
        pointed: set[str] = set()
        for each in self._sorted():
            lines.append(f"{each.level.value} {each.check:<{width}}  {_one_line(each.seen)}")
            if each.next:
                lines.append(f"{blank}→ {_one_line(each.next)}")
            if each.level is not Level.FINE and not pointed.issuperset(each.symptoms):
                lines.append(f"{blank}{SYMPTOMS}#{', #'.join(each.symptoms)}")
                pointed.update(each.symptoms)
        if self.further:
            lines.append(f"See also: {' ; '.join(self.further)}")
        return "\n".join(lines)

    def json(self) -> str:
        """Write it for programs, in ASCII so that nothing in it moves a terminal's cursor."""
        rows = [
            {**dataclasses.asdict(each), "level": each.level.name.lower()}
            for each in self._sorted()
        ]
        return json.dumps(rows)

    def _sorted(self) -> list[Finding]:
        return sorted(self.findings, key=lambda each: list(Level).index(each.level))


def _one_line(text: str) -> str:
    return texts.plain(" ".join(text.split()), _LONGEST)

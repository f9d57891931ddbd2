"""How a check is made known, and how it is run.

A check is a function under `@registry.check(...)` in a module of `checks/`. That is all it takes:
the action, its report and docs/reference/checks.md have it from here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from istio_integrator import findings, statuses
from istio_integrator.findings import Finding
from istio_integrator.kube import errors

from . import report
from .facts import Facts

Find = Callable[[Facts], Iterable[Finding]]


@dataclasses.dataclass(frozen=True)
class Check:
    """One question of a diagnosis, and what answers it."""

    name: str
    """What the lines of its findings begin with."""
    place: int
    """Where its lines stand: a request meets earlier what has a lower one."""
    question: str
    """What it asks, as the reference page has it."""
    reads: str
    """What it looks at for that, as the reference page has it."""
    feeds_status: bool
    """Whether the leader runs it at every event, so that what is broken blocks the unit."""
    find: Find
    symptoms: tuple[str, ...] = ()
    """Headings of docs/how-to/symptoms.md, as anchors, below which people find what it finds."""
    unfelt: str = ""
    """Why there is none."""

    def run(self, facts: Facts) -> list[Finding]:
        """Return its findings, up to where the cluster does not answer, and why it does not."""
        found: list[Finding] = []
        try:
            for each in self.find(facts):
                found.append(each)  # noqa: PERF402 - what was found before an error counts
        except errors.ForbiddenError as error:
            right = statuses.missing_right(error) or error.message
            remedy = report.grant(facts.application)
            found.append(findings.doubtful(f"not known: missing permission to {right}", remedy))
        except errors.CharmError as error:
            found.append(
                findings.doubtful(f"not known: {error}", report.own_log(facts.application))
            )
        # What a status says may belong below another heading than what else the check finds.
        return [
            dataclasses.replace(each, check=self.name, symptoms=each.symptoms or self.symptoms)
            for each in found
        ]


_checks: dict[str, Check] = {}


def check(
    name: str,
    *,
    place: int,
    question: str,
    reads: str,
    feeds_status: bool = False,
    symptoms: tuple[str, ...] = (),
    unfelt: str = "",
) -> Callable[[Find], Find]:
    """Make a function a check; what it yields names the command to run next."""

    def known(find: Find) -> Find:
        _checks[name] = Check(
            name, place, question, reads, feeds_status, find, symptoms=symptoms, unfelt=unfelt
        )
        return find

    return known


def known() -> Mapping[str, Check]:
    """Return the checks by their names, in the order of a report."""
    return dict(sorted(_checks.items(), key=lambda pair: pair[1].place))

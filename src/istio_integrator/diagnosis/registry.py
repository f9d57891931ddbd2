"""The checks of a diagnosis: functions under `@registry.check(...)` in the modules of `checks/`.

The action, its report and docs/reference/checks.md have them from here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from istio_integrator import error_messages, findings
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
    """Its place in a report: a request meets earlier what has a lower one."""
    find: Find
    """What looks at facts; docs/reference/checks.md has its docstring."""
    feeds_status: bool = False
    """Whether the leader runs it at every event, so that what is broken blocks the unit."""
    symptoms: tuple[str, ...] = ()
    """Anchors of docs/how-to/symptoms.md."""
    unfelt: str = ""
    """Why there is none."""

    def run(self, facts: Facts) -> list[Finding]:
        """Return its findings, up to where the cluster does not answer, and why it does not."""
        found: list[Finding] = []
        try:
            for each in self.find(facts):
                found.append(each)  # noqa: PERF402 - what was found before an error counts
        except errors.ForbiddenError as error:
            right = error_messages.missing_right(error) or error.message
            remedy = report.grant(facts.application)
            found.append(findings.doubtful(f"not known: missing permission to {right}", remedy))
        except errors.CharmError as error:
            remedy = report.own_log(facts.application)
            found.append(findings.doubtful(f"not known: {error}", remedy))
        # What a status says may belong below another heading than what else the check finds.
        return [
            dataclasses.replace(each, check=self.name, symptoms=each.symptoms or self.symptoms)
            for each in found
        ]


_checks: dict[str, Check] = {}


def check(name: str, **described: Any) -> Callable[[Find], Find]:
    """Make a function a check, described by the fields of `Check`."""

    def known(find: Find) -> Find:
        _checks[name] = Check(name=name, find=find, **described)
        return find

    return known


def known() -> Mapping[str, Check]:
    """Return the checks by their names, in the order of a report."""
    return dict(sorted(_checks.items(), key=lambda pair: pair[1].place))

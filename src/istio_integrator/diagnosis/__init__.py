"""Why is it not working? The action `diagnose`, and what the status takes from it.

`Facts` are what the checks look at, each module of `checks/` is one subject, and a `Report` is
what all of them found. What one check may not read, that check says, and the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable

import ops

from istio_integrator.kube import fences

from . import checks, report
from .concerns import Concerns
from .facts import Facts
from .report import Report

__all__ = ["Concerns", "Facts", "Report", "answer", "diagnose"]


def answer(event: ops.ActionEvent, facts: Facts, statuses: Iterable[ops.StatusBase]) -> None:
    """Answer the action; what is broken fails it."""
    found = diagnose(facts, statuses)
    event.set_results(found.results(event.params.get("format", "text")))
    if found.is_broken:
        event.fail(found.summary)


def diagnose(facts: Facts, statuses: Iterable[ops.StatusBase] = ()) -> Report:
    """Run every check.

    Args:
        facts: What the checks look at.
        statuses: Of this unit; what they say and no check does is added.
    """
    found = [each for check in checks.known().values() for each in check.run(facts)]
    # After all that looks at objects.
    found += report.passed_over(fences.noted())
    found += report.unsaid(statuses, found, application=facts.application)
    return Report(found, (f"istioctl analyze -n {facts.model}", "istioctl proxy-status"))

"""Why is it not working? The action `diagnose`, and what the status takes from it.

A check is a pure function over what `Look` read. What one check may not read, that check says, and
the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable

import ops

from . import checks, finding, running
from .concerns import Concerns
from .finding import Finding, Report
from .look import Look

__all__ = ["Concerns", "Look", "Report", "answer", "diagnose"]


def answer(event: ops.ActionEvent, look: Look, said: Iterable[ops.StatusBase]) -> None:
    """Answer the action; what is broken fails it."""
    params = event.params
    report = diagnose(look, said, source=params.get("source", ""), target=params.get("target", ""))
    event.set_results(report.results(params.get("format", "text")))
    if report.is_broken:
        event.fail(report.summary)


def diagnose(
    look: Look,
    said: Iterable[ops.StatusBase] = (),
    *,
    source: str = "",
    target: str = "",
) -> Report:
    """Run every check.

    Args:
        look: What to look at.
        said: The statuses of this unit: what no check says is added.
        source: An application that is to call another; empty: nobody does.
        target: The Service to call.
    """
    wanted = dict(checks.CHECKS)
    if source or target:
        wanted["call"] = lambda look: checks.call(look, source, target)
    found: list[Finding] = []
    for name, check in wanted.items():
        found += [_named(each, name) for each in running.run(check, look)]
    shown = "\n".join(each.seen for each in found)
    rest = [
        each
        for each in finding.of_statuses(said, finding.own_log(look.application))
        if each.level is not finding.Level.FINE and each.seen not in shown
    ]
    return Report([*found, *(_named(each, "status") for each in rest)])


def _named(each: Finding, check: str) -> Finding:
    return Finding(each.level, each.seen, each.next, check)

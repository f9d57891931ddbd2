"""Why is it not working? The action `diagnose`, and what the status takes from it.

`Facts` are what the checks look at, each module of `checks/` is one subject, and a `Report` is
what all of them found. What one check may not read, that check says, and the others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import ops

from istio_integrator import findings
from istio_integrator.kube import fences
from istio_integrator.messages import Message, Said
from istio_integrator.situation import situation

from . import checks, report
from .facts import Facts
from .report import Report

logger = logging.getLogger(__name__)

__all__ = ["Concerns", "Facts", "Report", "answer", "diagnose"]


def answer(event: ops.ActionEvent, facts: Facts, messages: Iterable[Message]) -> None:
    """Answer the action; what is broken fails it."""
    found = diagnose(facts, messages)
    event.set_results(found.results(event.params.get("format", "text")))
    if found.is_broken:
        event.fail(found.summary)


def diagnose(facts: Facts, messages: Iterable[Message] = ()) -> Report:
    """Run every check.

    Args:
        facts: What the checks look at.
        messages: Of this unit; what they say and no check does is added.
    """
    found = [each for check in checks.known().values() for each in check.run(facts)]
    # After all that looks at objects.
    found += report.passed_over(fences.noted())
    found += report.unsaid(messages, found, application=facts.application)
    return Report(found, (f"istioctl analyze -n {facts.model}", "istioctl proxy-status"))


class Concerns(situation.Component):
    """Runs the checks that feed the status, whose objects no other part of the charm looks at."""

    name = "diagnosis"

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def reconcile(self) -> list[Message]:
        """Look again, and return what is broken; nothing is written."""
        said: list[Message] = []
        if not self._facts.is_leader:
            return said
        for check in checks.known().values():
            for each in check.run(self._facts) if check.feeds_status else ():
                if each.level is findings.Level.BROKEN:
                    said.append(Said.FOUND_BROKEN(finding=each.seen, command=each.next))
                elif each.level is findings.Level.DOUBTFUL:
                    logger.info("%s: %s.", check.name, each.seen)
        return said

"""The action `diagnose`, and the checks that feed the status.

`Facts` are what the checks look at, each module of `checks/` is one subject, and a `Report` shows
the messages of all. A check that lacks a right says so, and the others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import ops

from istio_integrator.kube import fences
from istio_integrator.messages import LOG, Message, Severity
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
    """Run every check, and add the messages of the unit that no check has."""
    found = [each for check in checks.known().values() for each in check.run(facts)]
    # After all that looks at objects.
    found += report.passed_over(fences.noted())
    found += report.unsaid(messages, found, look=LOG.format(application=facts.application))
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
                if each.severity is Severity.BLOCKED:
                    said.append(each)
                elif each.severity is not Severity.NOTE:
                    logger.info("%s: %s.", check.name, each.seen)
        return said

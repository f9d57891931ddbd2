"""The action `diagnose`, and the checks that feed the status.

`Facts` are the input of the checks. Each module of `checks/` has one subject. A `Report` shows the
messages of all checks. A check without a required permission reports this, and the others go on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import ops

from istio_integrator import order
from istio_integrator.kube import fences
from istio_integrator.messages import LOG, Message, Severity
from istio_integrator.situation import situation

from . import checks, report
from .facts import Facts


def answer(event: ops.ActionEvent, parts: order.Parts, messages: Iterable[Message]) -> None:
    """Run every check, and add the messages of the unit's status that no check reported.

    The action fails if a check finds a broken part.
    """
    facts = Facts(parts)
    found = [each for check in checks.known().values() for each in check.run(facts)]
    # Only after every check has read its objects.
    found += report.passed_over(fences.noted())
    look = LOG.format(application=parts.situation.application)
    found += report.unsaid(messages, found, look=look)
    model = parts.situation.model
    shown = report.Report(found, (f"istioctl analyze -n {model}", "istioctl proxy-status"))
    event.set_results(shown.results(event.params.get("format", "text")))
    if shown.is_broken:
        event.fail(shown.summary)


class Concerns(situation.Component):
    """Runs the checks that feed the status, whose objects no other part of the charm reads."""

    name = "diagnosis"

    def __init__(self, parts: order.Parts) -> None:
        self._parts = parts

    def reconcile(self) -> list[Message]:
        """Run the checks, and return the messages that block the unit; nothing is written."""
        if not self._parts.situation.leader:
            return []
        facts = Facts(self._parts)
        feeding = (each for each in checks.known().values() if each.feeds_status)
        found = itertools.chain.from_iterable(check.run(facts) for check in feeding)
        return [message for message in found if message.severity is Severity.BLOCKED]

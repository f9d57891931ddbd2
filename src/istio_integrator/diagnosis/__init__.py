"""The action `diagnose`, and the checks that feed the status.

Each module of `checks/` has one subject. A `Report` shows the messages of all checks. A check
without a required permission reports this, and the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable

import ops

from istio_integrator.facts import Facts
from istio_integrator.kube import fences
from istio_integrator.messages import LOG, Message, Severity

from . import checks, report


def answer_action(event: ops.ActionEvent, facts: Facts, messages: Iterable[Message]) -> None:
    """Run every check, and add the messages of the unit's status that no check reported.

    The action fails if a check finds a broken part.
    """
    found = [each for check in checks.list_checks().values() for each in check.run(facts)]
    # Only after every check has read its objects.
    found += report.report_skipped(fences.read_notes())
    look = LOG.format(application=facts.situation.application)
    found += report.find_unreported(messages, found, look=look)
    model = facts.situation.model
    shown = report.Report(found, (f"istioctl analyze -n {model}", "istioctl proxy-status"))
    event.set_results(shown.render(event.params.get("format", "text")))
    if shown.is_broken:
        event.fail(shown.summary)


def find_concerns(facts: Facts) -> list[Message]:
    """Run the checks that feed the status, and return the messages that block the unit.

    No other part of the charm reads their objects.
    """
    if not facts.situation.leader:
        return []
    feeding = (each for each in checks.list_checks().values() if each.feeds_status)
    found = (message for check in feeding for message in check.run(facts))
    return [message for message in found if message.severity is Severity.BLOCKED]

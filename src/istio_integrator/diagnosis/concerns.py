"""What the status takes from the diagnosis: faults in objects of other teams."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import ops

from istio_integrator import findings

from . import checks
from .facts import Facts

logger = logging.getLogger(__name__)


class Concerns:
    """Runs the checks that feed the status, whose objects no other part of the charm looks at."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._statuses: list[ops.StatusBase] = []

    def reconcile(self) -> None:
        """Look again; nothing is written."""
        self._statuses = []
        if not self._facts.is_leader:
            return
        for check in checks.known().values():
            for each in check.run(self._facts) if check.feeds_status else ():
                if each.level is findings.Level.BROKEN:
                    self._statuses.append(ops.BlockedStatus(f"{each.seen}; run: {each.next}"))
                elif each.level is findings.Level.DOUBTFUL:
                    logger.info("%s: %s.", check.name, each.seen)

    def statuses(self) -> Iterable[ops.StatusBase]:
        """Say what is broken, and how it is repaired."""
        return tuple(self._statuses)

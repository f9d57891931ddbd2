"""What the status takes from the diagnosis: the faults of others that break the model."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import ops

from . import checks, finding, running
from .look import Look

logger = logging.getLogger(__name__)

WATCHED = ("webhooks", "profiles")
"""The checks that are cheap enough for every event, and that no component makes itself."""


class Concerns:
    """Looks whether what others wrote keeps API servers or users from the model."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._statuses: list[ops.StatusBase] = []

    def reconcile(self) -> None:
        """Look again; nothing is written."""
        self._statuses = []
        if not self._look.scope.leader:
            return
        for name in WATCHED:
            for each in running.run(checks.CHECKS[name], self._look):
                if each.level is finding.Level.BROKEN:
                    self._statuses.append(ops.BlockedStatus(f"{each.seen}; run: {each.next}"))
                elif each.level is finding.Level.DOUBTFUL:
                    logger.info("%s: %s.", name, each.seen)

    def remove(self) -> None:
        """Nothing is ours to remove."""

    def statuses(self) -> Iterable[ops.StatusBase]:
        """Say what is broken, and how it is repaired."""
        return tuple(self._statuses)

"""Ends of containers that seem older than their pod: doubted for a while, then believed.

A kubelet that restarts mends an old status within seconds. On a node whose clock was set back the
same is true for ever, and such a pod would never come to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from sidecar_lifecycle.decide import finished, payload

from .view import Tracked

log = structlog.get_logger(__name__)

STALE_FOR = 300.0
"""Seconds for which such an end is taken for an old status: many times a kubelet's restart."""


class Doubts:
    """A timer for each pod in doubt."""

    def __init__(self, believed: Callable[[Tracked], None]) -> None:
        """Have `believed` called with each pod about which there is no doubt any more."""
        self._believed = believed

    def considered(self, tracked: Tracked) -> None:
        """Begin or end to doubt, as the decision about a pod says."""
        if tracked.decision.reason == payload.STALE:
            if tracked.doubt is None:
                loop = asyncio.get_running_loop()
                tracked.doubt = loop.call_later(STALE_FOR, self._believe, tracked)
        elif tracked.decision.action is finished.Action.WAIT:
            end(tracked)

    def _believe(self, tracked: Tracked) -> None:
        node = tracked.pod.spec.nodeName
        log.warning("the node's clock was set back", pod=tracked.name, node=node)
        tracked.clock_stepped = True
        self._believed(tracked)


def end(tracked: Tracked) -> None:
    """Forget what was doubted, or believed, about a pod."""
    if tracked.doubt is not None:
        tracked.doubt.cancel()
    tracked.doubt, tracked.clock_stepped = None, False

"""Events about pods, and the deletion of broken pods if `delete-broken-pods` is set."""

from __future__ import annotations

import asyncio
from collections import Counter

import structlog

from integrator_contract.reasons import Reason
from sidecar_lifecycle.decide import eligible, finished, payload
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell import metrics
from sidecar_lifecycle.shell.kube import client, errors, events
from sidecar_lifecycle.shell.kube.fence import Fence
from sidecar_lifecycle.shell.settings import Live

from . import stop
from .tracked import Tracked

log = structlog.get_logger(__name__)

FAILURES_BEFORE_EVENT = 3
"""Failed tries until an Event is written; the log has each one."""
MOST_REPLACED = 3
"""Limit of deleted pods per owner while the service runs."""


class Reporter:
    """Writes Events about pods, and deletes broken ones."""

    def __init__(
        self, connection: client.Client, recorder: events.Recorder, fence: Fence, live: Live
    ) -> None:
        self._client = connection
        self._recorder = recorder
        self._fence = fence
        self._live = live
        self._replaced: Counter[str] = Counter()
        """Number of deleted pods by the UID of their controller."""

    def stopped(
        self, tracked: Tracked, decision: finished.ProxyDecision, way: stop.Transport
    ) -> None:
        """Report that a proxy was stopped."""
        message = f"Stopped the Istio proxy ({way}): {decision.message}."
        if decision.holding:
            holding = ", ".join(decision.holding)
            message += f" The pod does not complete before {holding} ends."
        self._recorder.record(tracked.pod, Reason.PROXY_STOPPED, message)

    def failed(self, tracked: Tracked, outcome: stop.Outcome, failures: int) -> None:
        """Report that a stop fails, once it has failed several times."""
        if failures < FAILURES_BEFORE_EVENT:
            return
        message = f"Could not stop the Istio proxy ({outcome.transport}, {outcome.result})"
        if outcome.result is stop.Result.FORBIDDEN:
            rights = "pods/portforward, or pods/exec," if tracked.decision.port else "pods/exec"
            message += f"; grant the application {rights} here"
        self._once(tracked, Reason.PROXY_STOP_FAILED, f"{message}. Retrying.")

    def considered(self, tracked: Tracked, *, lasts: bool) -> None:
        """Report the problems of a pod; some count only when the decision lasts long enough."""
        decision, pod = tracked.decision, tracked.pod
        if decision.unknown:
            message = f"The pod's annotations name no container: {', '.join(decision.unknown)}"
            self._once(tracked, Reason.UNKNOWN_CONTAINER, message)
        if decision.action is not finished.Action.REPORT or not lasts:
            return
        message, is_lost = decision.message, decision.reason == Reason.PROXY_LOST
        if is_lost:
            message = f"The pod has no network through the mesh: {message}."
        if self._once(tracked, Reason(decision.reason), message) and is_lost:
            metrics.LOST.inc()
            owner = eligible.controller(pod.metadata.ownerReferences)
            if self._live.current.delete_broken_pods and owner:
                tracked.deletion = asyncio.create_task(self._replace(pod, owner.uid))

    def _once(self, tracked: Tracked, reason: Reason, message: str) -> bool:
        if reason in tracked.told:
            return False
        tracked.told += (reason,)
        log.warning("pod reported", pod=tracked.name, reason=reason, message=message)
        self._recorder.record(tracked.pod, reason, message, "Warning")
        return True

    async def _replace(self, pod: types.Pod, owner: str) -> None:
        with self._fence.around("report", pod):
            if why := await self._delete(pod, owner):
                message = f"The pod is not replaced: {why}."
                self._recorder.record(pod, Reason.POD_NOT_REPLACED, message, "Warning")

    async def _delete(self, pod: types.Pod, owner: str) -> str:
        """Delete a pod so that its controller replaces it.

        A pod is kept if a new one would repeat finished work, or if deleting did not help before.

        Returns:
            Why the pod is kept, if its owner must be told; else an empty text.
        """
        if done := payload.succeeded(pod):
            return f"{payload.some(done, ', ')} succeeded, and a new pod would run it again"
        if self._replaced[owner] >= MOST_REPLACED:
            return f"{MOST_REPLACED} pods of the same controller were deleted for this already"
        meta = pod.metadata
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            # Delete only the pod, and the version of it, that the decision is about.
            "preconditions": {"uid": meta.uid, "resourceVersion": meta.resourceVersion},
        }
        try:
            await self._client.request(
                "DELETE", client.path(types.Pod, meta.namespace, meta.name), body=body
            )
        except errors.KubeError as error:
            log.warning("broken pod not replaced", pod=meta.name, error=str(error))
            code = error.code if isinstance(error, errors.StatusError) else 0
            return "missing permission to delete pods here" if code in (401, 403) else ""
        self._replaced[owner] += 1
        metrics.REPLACED.inc()
        log.info("broken pod deleted for its controller to replace", pod=meta.name)
        return ""

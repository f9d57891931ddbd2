"""What people are told about a pod, and the replacement of broken ones if they asked for it."""

from __future__ import annotations

import asyncio

import structlog

from sidecar_lifecycle import metrics, names
from sidecar_lifecycle.kube import client, errors, events, types
from sidecar_lifecycle.rules import finished

from . import stop
from .view import Tracked

log = structlog.get_logger(__name__)

SETTLE = 10.0
"""Seconds that a lost proxy must stay lost: containers of a pod that is ended go one by one."""
FAILURES_BEFORE_EVENT = 3
"""Tries that may fail in silence; the log has each."""


class Reporter:
    """Writes the Events."""

    def __init__(
        self,
        connection: client.Client,
        recorder: events.Recorder,
        *,
        replace_broken_pods: bool = False,
        configured: tuple[str, ...] = (),
        settle: float = SETTLE,
    ) -> None:
        """Report by Events.

        Args:
            connection: for the replacement of broken pods.
            recorder: of the Events.
            replace_broken_pods: whether to do that.
            configured: container names in the options, to be logged once if a pod lacks one.
            settle: seconds that a lost proxy must stay lost.
        """
        self._client = connection
        self._recorder = recorder
        self._replace = replace_broken_pods
        self._unmatched = set(configured)
        self._settle = settle

    def stopped(self, tracked: Tracked, decision: finished.Decision, way: stop.Transport) -> None:
        """Say that a proxy was stopped."""
        self._recorder.post(
            tracked.pod, names.EventReason.PROXY_STOPPED, stop.event_message(decision, way)
        )

    def failed(self, tracked: Tracked, outcome: stop.Outcome) -> None:
        """Say that stopping fails, when it has failed some times."""
        if tracked.failures < FAILURES_BEFORE_EVENT:
            return
        message = f"Could not stop the Istio proxy ({outcome.transport}, {outcome.result})"
        if outcome.result is stop.Result.FORBIDDEN:
            message += "; grant the application pods/portforward, or pods/exec, here"
        self._once(tracked, names.EventReason.PROXY_STOP_FAILED, f"{message}. Trying on.")

    def considered(self, tracked: Tracked) -> None:
        """Say what a decision calls for beside acting."""
        decision = tracked.decision
        self._note_options(tracked)
        if decision.unknown:
            named = ", ".join(decision.unknown)
            self._once(
                tracked,
                names.EventReason.UNKNOWN_CONTAINER,
                f"The pod's annotations name no container: {named}",
            )
        if decision.action is not finished.Action.REPORT:
            if tracked.report is not None:
                tracked.report.cancel()
                tracked.report = None
        elif decision.reason != names.EventReason.PROXY_LOST:
            self._once(tracked, names.EventReason(decision.reason), decision.message)
        elif tracked.report is None:
            tracked.report = asyncio.create_task(self._lost(tracked))

    def _note_options(self, tracked: Tracked) -> None:
        """Log once for each container name in the options that a pod does not have."""
        if not self._unmatched or tracked.decision.action is finished.Action.IGNORE:
            return
        present = {container.name for container in tracked.pod.spec.containers}
        for name in sorted(self._unmatched - present):
            log.info("pod has no container that an option names", pod=tracked.name, container=name)
            self._unmatched.discard(name)

    def _once(self, tracked: Tracked, reason: names.EventReason, message: str) -> None:
        if reason not in tracked.told:
            tracked.told += (reason,)
            self._recorder.post(tracked.pod, reason, message, "Warning")

    async def _lost(self, tracked: Tracked) -> None:
        await asyncio.sleep(self._settle)
        metrics.LOST.inc()
        decision = tracked.decision
        log.warning("proxy lost", pod=tracked.name, reason=decision.message)
        message = f"The pod has no network through the mesh: {decision.message}."
        await self._recorder.record(tracked.pod, names.EventReason.PROXY_LOST, message, "Warning")
        if self._replace and _has_controller(tracked.pod):
            await self._delete(tracked.pod)

    async def _delete(self, pod: types.Pod) -> None:
        meta = pod.metadata
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            # Nothing but the very pod, in the very state, that was judged.
            "preconditions": {"uid": meta.uid, "resourceVersion": meta.resourceVersion},
        }
        try:
            await self._client.transport.request(
                "DELETE", client.path(types.Pod, meta.namespace, meta.name), body=body
            )
        except errors.KubeError as error:
            log.warning("broken pod not replaced", pod=meta.name, error=str(error))
            code = error.code if isinstance(error, errors.StatusError) else 0
            if code in (401, 403):
                message = "The pod is not replaced: the application may not delete pods here."
                await self._recorder.record(
                    pod, names.EventReason.POD_NOT_REPLACED, message, "Warning"
                )
            return
        metrics.REPLACED.inc()
        log.info("broken pod deleted for its controller to replace", pod=meta.name)


def _has_controller(pod: types.Pod) -> bool:
    return any(owner.controller for owner in pod.metadata.ownerReferences)

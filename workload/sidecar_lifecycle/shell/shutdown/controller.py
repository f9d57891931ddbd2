"""Watch pods, decide about them and stop the proxies of finished workloads.

Every unit stops proxies, each some seconds after the unit with the next lower number. The units
need no coordination, because a second stop of a proxy does no harm. Only Juju's leader reports
pods and deletes broken ones.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Mapping

import structlog

from integrator_contract import answers, namespaces, refusals
from integrator_contract.reasons import Reason
from sidecar_lifecycle.decide import eligible, finished, payload
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell import metrics
from sidecar_lifecycle.shell.kube import client, errors, events, watch
from sidecar_lifecycle.shell.kube.fence import Fence
from sidecar_lifecycle.shell.settings import Live, ServiceSettings

from . import sources, stops
from .tracked import Tracked

log = structlog.get_logger(__name__)

TURN = 5.0
"""Seconds by which each unit acts later than the unit with the next lower number."""
DRAIN = 2.5
"""Seconds to finish requests after SIGTERM; Pebble sends SIGKILL after 5 s."""
DRAIN_EVENTS = 1.0
"""Seconds to write Events after that."""

OLD_END_COUNTS_AFTER = 300.0
"""Seconds until the end of a container counts although it is older than the start of its pod. A
restarting kubelet corrects an old status within seconds. If a node's clock was set back, the
status stays."""
SETTLE = 10.0
"""Seconds until a lost proxy is reported: containers of a terminating pod end one by one."""
START_WITHIN = 60.0
"""Seconds for a proxy to start after the payload has ended, as its image may be pulled."""
_LASTING: Mapping[str, float] = {
    payload.STALE: OLD_END_COUNTS_AFTER,
    Reason.PROXY_LOST: SETTLE,
    Reason.PROXY_NOT_RUNNING: START_WITHIN,
}
"""Seconds for which a decision must stay the same before it has an effect, by reason."""
MOST_REPLACED = 3
"""Limit of deleted pods per owner while the service runs."""


class ShutdownController:
    """Stops the proxies of pods whose payload has ended."""

    def __init__(
        self,
        connection: client.Client,
        live: Live,
        recorder: events.Recorder,
    ) -> None:
        self.live = live
        self._recorder = recorder
        self._fence = Fence(self._report_error)
        self._stops = stops.Stops(
            connection, recorder, self._fence, decide=self.decide, consider=self._act_on_decision
        )
        self._client = connection
        self._replaced: Counter[str] = Counter()
        """Number of deleted pods by the UID of their controller."""
        self._tracked: dict[str, Tracked] = {}
        self.view = self._tracked.values()
        """All watched pods."""
        self.namespaces = sources.Namespaces(live.current.served(), self._fence)
        self.pods = sources.Pods(
            connection, self.namespaces, on_change=self._on_change, forget=self._forget_namespace
        )

    async def run(self) -> None:
        """Run until cancelled, then finish pending requests and Events."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.namespaces.follow(self._client, self._on_namespace))
                tasks.create_task(self.live.restart(_is_model_only, self._follow_pods))
                tasks.create_task(self._follow_settings())
        finally:
            await self._drain()

    async def _follow_settings(self) -> None:
        async for settings in self.live.changes(lambda settings: settings):
            self.namespaces.rules = settings.served()
            self._on_namespace("*")

    async def _follow_pods(self, model_only: bool) -> None:
        self._forget_namespace("*")
        await self.pods.follow(self.live.current.model if model_only else "*")

    def decide(self, pod: types.Pod) -> finished.ProxyDecision:
        """Apply the rules to a pod and its namespace."""
        namespace = pod.metadata.namespace or ""
        kind, is_disabled = self.namespaces.find_state(namespace)
        if kind is None:
            return _ignore(Reason.OUT_OF_SCOPE, "the namespace is not served")
        tracked = self._tracked.get(pod.metadata.uid)
        policy = dataclasses.replace(
            self.live.current.rules,
            enabled=self.live.current.proxy_shutdown,
            namespace_enabled=not is_disabled,
            old_ends_count=tracked is not None and tracked.old_ends_count,
        )
        with self._fence.isolate("decide", pod):
            return _share_equal_decisions(finished.decide(pod, policy))
        return _ignore(Reason.NOT_UNDERSTOOD, "the rules can't deal with it")

    def _report_error(self, item: types.Object, why: str) -> None:
        # All units see the same error, and the pod's owner needs one Event.
        if isinstance(item, types.Pod) and self.live.current.leader:
            message = f"The pod can't be dealt with, and its proxy is left alone: {why}"
            self._recorder.record(item, Reason.NOT_UNDERSTOOD, message, "Warning")

    def oldest_pending(self) -> float:
        """Return the age in seconds of the oldest stop whose proxy has not ended."""
        now = asyncio.get_running_loop().time()
        since = [each.pending.since for each in self.view if each.pending is not None]
        return now - min(since) if since else 0.0

    async def list_ended(self, _: Mapping[str, str]) -> list[answers.ProxyAnswer]:
        """Answer the charm: list pods whose payload has ended, and whose proxy has not.

        The decisions are those with proxy-shutdown=true.
        """
        rules, found = self.live.current.rules, list[answers.ProxyAnswer]()
        for tracked in self.view:
            with self._fence.isolate("decide", tracked.pod):
                if payload.find_end(tracked.pod, rules):
                    found.append(finished.explain(tracked.pod, rules))
        return found

    def _decide_again(self, pods: Iterable[Tracked]) -> None:
        """Decide again about pods that have not changed themselves."""
        for tracked in pods:
            with self._fence.isolate("decide", tracked.pod):
                self._update_pod(tracked.pod)

    def _on_namespace(self, name: str) -> None:
        self.pods.follow_namespaces()
        self._decide_again(self._list_pods(name))

    def _forget_namespace(self, namespace: str) -> None:
        for tracked in self._list_pods(namespace):
            self._drop_pod(tracked.pod.metadata.uid)

    def _on_change(self, change: watch.Change[types.Pod]) -> None:
        assert change.object is not None
        if change.kind == "deleted":
            self._drop_pod(change.object.metadata.uid)
        else:
            self._update_pod(change.object)

    def _list_pods(self, namespace: str) -> list[Tracked]:
        """Return the pods of a namespace; `*` means all namespaces."""
        return [each for each in self.view if namespace in ("*", each.pod.metadata.namespace)]

    def _update_pod(self, pod: types.Pod) -> None:
        """Store a new or changed pod and decide about it."""
        decision, now = self.decide(pod), asyncio.get_running_loop().time()
        tracked = self._tracked.get(pod.metadata.uid)
        if tracked is None:
            tracked = self._tracked[pod.metadata.uid] = Tracked(pod, decision, now)
        else:
            _count_decision(tracked, -1)
            if _find_lasting_part(tracked.decision) != _find_lasting_part(decision):
                tracked.since = now
            tracked.pod, tracked.decision = pod, decision
        _count_decision(tracked, 1)
        self._act_on_decision(tracked)

    def _drop_pod(self, uid: str) -> None:
        # A pod leaves the watch when it succeeds, fails or is deleted. Then its proxy has ended.
        tracked = self._tracked.pop(uid, None)
        if tracked is not None:
            _count_decision(tracked, -1)
            tracked.cancel_timer()
            self._stops.end(tracked)

    def _act_on_decision(self, tracked: Tracked) -> None:
        if self._tracked.get(tracked.pod.metadata.uid) is not tracked:
            return
        tracked.cancel_timer()
        decision, loop = tracked.decision, asyncio.get_running_loop()
        if decision.action is not finished.Action.STOP:
            self._stops.end(tracked)
        left = tracked.since + self._find_delay(decision) - loop.time()
        if self.live.current.leader:
            self._report_pod(tracked, lasts=left <= 0)
        if left > 0:
            tracked.timer = loop.call_later(left, self._decide_again, [tracked])
        elif decision.action is finished.Action.STOP:
            self._stops.begin(tracked)
        elif decision.reason == payload.STALE:
            tracked.old_ends_count = True
            self._update_pod(tracked.pod)
        elif decision.action is finished.Action.WAIT:
            tracked.old_ends_count = False

    def _find_delay(self, decision: finished.ProxyDecision) -> float:
        if decision.action is finished.Action.STOP:
            return TURN * int(self.live.current.unit.rpartition("/")[2])
        return _LASTING.get(decision.reason, 0.0)

    def _report_pod(self, tracked: Tracked, *, lasts: bool) -> None:
        """Warn of the problems of a pod; some count only when the decision lasts long enough."""
        decision, pod = tracked.decision, tracked.pod
        if decision.unknown:
            message = f"The pod's annotations name no container: {', '.join(decision.unknown)}"
            stops.warn_once(self._recorder, tracked, Reason.UNKNOWN_CONTAINER, message)
        if decision.action is not finished.Action.REPORT or not lasts:
            return
        message, is_lost = decision.message, decision.reason == Reason.PROXY_LOST
        if is_lost:
            message = f"The pod has no network through the mesh: {message}."
        is_new = stops.warn_once(self._recorder, tracked, decision.reason, message)
        if is_new and is_lost:
            metrics.LOST.inc()
            owner = eligible.find_controller(pod.metadata.ownerReferences)
            if self.live.current.delete_broken_pods and owner:
                tracked.deletion = asyncio.create_task(self._replace_pod(pod, owner.uid))

    async def _replace_pod(self, pod: types.Pod, owner: str) -> None:
        with self._fence.isolate("report", pod):
            if why := await self._delete_pod(pod, owner):
                message = f"The pod is not replaced: {why}."
                self._recorder.record(pod, Reason.POD_NOT_REPLACED, message, "Warning")

    async def _delete_pod(self, pod: types.Pod, owner: str) -> str:
        """Delete a pod so that its controller replaces it.

        A pod is kept if a new one would repeat finished work, or if deleting did not help before.

        Returns:
            Why the pod is kept, if its owner must be told; else an empty text.
        """
        if done := payload.list_succeeded(pod):
            return f"{payload.join_some(done, ', ')} succeeded, and a new pod would run it again"
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
                "DELETE", client.make_path(types.Pod, meta.namespace, meta.name), body=body
            )
        except errors.KubeError as error:
            log.warning("broken pod not replaced", pod=meta.name, error=str(error))
            if not isinstance(error, errors.StatusError):
                return ""
            if refusal := refusals.read_refusal(error.code, error.message):
                return str(refusal)
            return "missing permission to delete pods here" if error.code in (401, 403) else ""
        self._replaced[owner] += 1
        log.info("broken pod deleted for its controller to replace", pod=meta.name)
        return ""

    async def _drain(self) -> None:
        """Wait for requests that have been sent; other units do the queued stops."""
        for tracked in self.view:
            tracked.cancel_timer()
        await self._stops.drain(self.view, DRAIN)
        await self._recorder.drain(DRAIN_EVENTS)


@functools.lru_cache(maxsize=256)
def _share_equal_decisions(decision: finished.ProxyDecision) -> finished.ProxyDecision:
    """Return the first of equal decisions, because 100,000 pods may wait for the same reason."""
    return decision


def _find_lasting_part(decision: finished.ProxyDecision) -> str:
    """Return the part of a decision that must stay the same until it has an effect."""
    return decision.action if decision.action is finished.Action.STOP else decision.reason


def _count_decision(tracked: Tracked, by: int) -> None:
    metrics.PODS.labels(tracked.decision.action, tracked.decision.reason).inc(by)


def _ignore(reason: Reason, message: str) -> finished.ProxyDecision:
    return finished.ProxyDecision(action=finished.Action.IGNORE, reason=reason, message=message)


def _is_model_only(settings: ServiceSettings) -> bool:
    return settings.served_namespaces == namespaces.MODEL_ONLY

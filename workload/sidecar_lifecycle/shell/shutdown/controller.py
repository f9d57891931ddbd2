"""Watch, decide, and have the proxies stopped whose work is done.

Every unit does so, each a while after the one before it, so that no unit needs to know of another;
a second stop of a proxy does no harm. Only Juju's leader reports pods, and deletes broken ones.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable

from integrator_contract import namespaces
from integrator_contract.reasons import Reason
from sidecar_lifecycle.decide import finished, payload
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell import metrics
from sidecar_lifecycle.shell.kube import client, events, watch
from sidecar_lifecycle.shell.kube.fence import Fence
from sidecar_lifecycle.shell.settings import Live, Settings, but_facts

from . import reports, sources, stop, stops
from .tracked import Tracked

TURN = 5.0
"""Seconds that each unit leaves to the one with the next lower number to stop a proxy."""
DRAIN = 2.5
"""Seconds that requests under way get when asked to end: after 5 Pebble kills the process."""
DRAIN_EVENTS = 1.0
"""Seconds that Events then get."""

OLD_END_COUNTS_AFTER = 300.0
"""Seconds until an end counts that is older than its pod's start. A kubelet that restarts corrects
an old status within seconds; on a node whose clock was set back the status stays."""


class Controller:
    """Stops the proxies of pods whose payload has ended."""

    def __init__(
        self,
        connection: client.Client,
        live: Live,
        recorder: events.Recorder,
        *,
        stopper: stop.Stopper | None = None,
    ) -> None:
        self.live = live
        self._recorder = recorder
        self._fence = Fence(self._tell)
        self._reporter = reports.Reporter(connection, recorder, self._fence, live)
        self._stops = stops.Stops(
            stopper or stop.Stopper(connection),
            self._reporter,
            self._fence,
            decide=self.decide,
            consider=self._consider,
        )
        self._client = connection
        self._tracked: dict[str, Tracked] = {}
        self.view = self._tracked.values()
        """The pods under watch."""
        self.namespaces = sources.Namespaces(live.current.served(), self._fence)
        self.pods = sources.Pods(
            connection, self.namespaces, on_change=self._on_change, on_synced=self._on_synced
        )

    async def run(self) -> None:
        """Work until cancelled; then let what is in flight finish."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.namespaces.follow(self._client, self._on_namespace))
                tasks.create_task(self.live.restart(_is_model_only, self._follow_pods))
                tasks.create_task(self._follow_settings())
        finally:
            await self._drain()

    async def _follow_settings(self) -> None:
        async for settings in self.live.changes(but_facts):
            if not settings.leader:
                self._keep_silent()
            self.namespaces.rules = settings.served()
            self._on_namespace("*")

    async def _follow_pods(self, model_only: bool) -> None:
        model = self.live.current.model
        for tracked in list(self.view):
            if model_only and tracked.pod.metadata.namespace != model:
                self._gone(tracked.pod.metadata.uid)
        await self.pods.follow(model if model_only else "*")

    def decide(self, pod: types.Pod) -> finished.ProxyDecision:
        """Apply the rules to a pod, its namespace included."""
        namespace = pod.metadata.namespace or ""
        kind, is_disabled = self.namespaces.state(namespace)
        if kind is None:
            return _ignored(Reason.OUT_OF_SCOPE, "the namespace is not served")
        tracked = self._tracked.get(pod.metadata.uid)
        policy = dataclasses.replace(
            self.live.current.rules,
            enabled=self.live.current.proxy_shutdown,
            namespace_enabled=not is_disabled,
            old_ends_count=tracked is not None and tracked.old_end_counts,
        )
        with self._fence.around("decide", pod):
            return finished.finished(pod, policy)
        return _ignored(Reason.NOT_UNDERSTOOD, "the rules can't deal with it")

    def _tell(self, item: types.Object, why: str) -> None:
        # Other units see the same, and the pod's owner need not be told by each.
        if isinstance(item, types.Pod) and self.live.current.leader:
            message = f"The pod can't be dealt with, and its proxy is left alone: {why}"
            self._recorder.record(item, Reason.NOT_UNDERSTOOD, message, "Warning")

    def oldest_pending(self) -> float:
        """Return the age in seconds of the oldest stop that has not been seen to work."""
        now = asyncio.get_running_loop().time()
        since = [each.need.since for each in self.view if each.need is not None]
        return now - min(since) if since else 0.0

    def _again(self, pods: Iterable[Tracked]) -> None:
        """Decide again about pods, because something else changed."""
        for tracked in pods:
            with self._fence.around("decide", tracked.pod):
                self._update(tracked.pod)

    def _on_namespace(self, name: str) -> None:
        self.pods.namespaces_changed()
        self._again(self._within(name))

    def _on_synced(self, namespace: str, listed: set[str]) -> None:
        for tracked in self._within(namespace):
            if tracked.pod.metadata.uid not in listed:
                self._gone(tracked.pod.metadata.uid)

    def _on_change(self, change: watch.Change[types.Pod]) -> None:
        assert change.object is not None
        if change.kind == "deleted":
            self._gone(change.object.metadata.uid)
        else:
            self._update(change.object)

    def _within(self, namespace: str) -> list[Tracked]:
        """Return the pods of a namespace, of all for `*`."""
        return [each for each in self.view if namespace in ("*", each.pod.metadata.namespace)]

    def _update(self, pod: types.Pod) -> None:
        """Take note of a pod, and decide about it."""
        decision = self.decide(pod)
        tracked = self._tracked.get(pod.metadata.uid)
        if tracked is None:
            tracked = self._tracked[pod.metadata.uid] = Tracked(pod, decision)
        else:
            _count(tracked, -1)
            tracked.pod, tracked.decision = pod, decision
        _count(tracked, 1)
        self._consider(tracked)

    def _gone(self, uid: str) -> None:
        # Leaving the watch means that the pod has succeeded, failed or gone: so has its proxy.
        tracked = self._tracked.pop(uid, None)
        if tracked is not None:
            _count(tracked, -1)
            self._over(tracked)
            _forget_old_end(tracked)
            reports.end(tracked)

    def _consider(self, tracked: Tracked) -> None:
        if self._tracked.get(tracked.pod.metadata.uid) is not tracked:
            return
        if self.live.current.leader:
            self._reporter.considered(tracked)
        self._time_old_end(tracked)
        if tracked.decision.action is not finished.Action.STOP:
            self._over(tracked)
        elif tracked.turn is None and tracked.need is None:
            loop = asyncio.get_running_loop()
            number = int(self.live.current.unit.rpartition("/")[2])
            tracked.turn = loop.call_later(TURN * number, self._take_turn, tracked)

    def _take_turn(self, tracked: Tracked) -> None:
        tracked.turn = None
        with self._fence.around("stop", tracked.pod):
            self._stops.needed(tracked)

    def _over(self, tracked: Tracked) -> None:
        _forget_turn(tracked)
        self._stops.over(tracked)

    def _time_old_end(self, tracked: Tracked) -> None:
        if tracked.decision.reason == payload.STALE:
            if tracked.old_end is None:
                loop = asyncio.get_running_loop()
                tracked.old_end = loop.call_later(
                    OLD_END_COUNTS_AFTER, self._count_old_end, tracked
                )
        elif tracked.decision.action is finished.Action.WAIT:
            _forget_old_end(tracked)

    def _count_old_end(self, tracked: Tracked) -> None:
        tracked.old_end_counts = True
        self._again([tracked])

    def _keep_silent(self) -> None:
        for tracked in self.view:
            reports.end(tracked)

    async def _drain(self) -> None:
        """Let requests under way finish; what waits is left to other units."""
        self._keep_silent()
        for tracked in self.view:
            _forget_turn(tracked)
            _forget_old_end(tracked)
        await self._stops.drain(self.view, DRAIN)
        await self._recorder.drain(DRAIN_EVENTS)


def _count(tracked: Tracked, by: int) -> None:
    metrics.PODS.labels(tracked.decision.action, tracked.decision.reason).inc(by)


def _ignored(reason: Reason, message: str) -> finished.ProxyDecision:
    return finished.ProxyDecision(action=finished.Action.IGNORE, reason=reason, message=message)


def _is_model_only(settings: Settings) -> bool:
    return settings.served_namespaces == namespaces.MODEL_ONLY


def _forget_turn(tracked: Tracked) -> None:
    if tracked.turn is not None:
        tracked.turn.cancel()
        tracked.turn = None


def _forget_old_end(tracked: Tracked) -> None:
    if tracked.old_end is not None:
        tracked.old_end.cancel()
    tracked.old_end, tracked.old_end_counts = None, False

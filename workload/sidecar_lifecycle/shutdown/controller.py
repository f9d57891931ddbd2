"""Watch, decide, stop, and see that it ended."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools

import structlog
import tenacity

from sidecar_lifecycle import metrics
from sidecar_lifecycle.kube import client, events, lease, types, watch
from sidecar_lifecycle.rules import finished
from sidecar_lifecycle.settings import Settings

from . import reports, slots, sources, stop
from .view import Tracked, View

log = structlog.get_logger(__name__)

EXIT_WITHIN = 30.0
"""Seconds from the answer to the proxy's end: draining takes 5, a busy node's kubelet more."""
CATCH_UP = 5.0
"""Seconds that the watch gets to show what the last look before sending saw."""
PATIENCE = 1.0
"""Seconds for which a first try holds its place on the node; the try itself may take longer."""
IN_FLIGHT_GRACE = 0.5
"""Seconds that a request under way gets once its pod has gone."""
DRAIN = 2.5
"""Seconds that requests under way get when asked to end: after 5 Pebble kills the process."""
DRAIN_EVENTS = 1.0
"""Seconds that Events then get."""

for _transport in stop.Transport:
    for _result in stop.Result:
        # Each counts from zero, or the first of its kind would not show as a rise.
        metrics.STOPS.labels(_transport, _result)

_backoff = tenacity.wait_exponential(multiplier=0.5, max=60) + tenacity.wait_random(0, 1)


def _wait(state: tenacity.RetryCallState) -> float:
    """Return the seconds to the next try: what the API asked for, else more each time."""
    outcome = state.outcome.result() if state.outcome else None
    asked = outcome.retry_after if isinstance(outcome, stop.Outcome) else None
    return max(asked or 0.0, _backoff(state))


class Controller:
    """Stops the proxies of pods whose payload has ended, while it leads."""

    def __init__(
        self,
        connection: client.Client,
        settings: Settings,
        leadership: lease.Leadership,
        recorder: events.Recorder,
        *,
        stopper: stop.Stopper | None = None,
        limits: slots.Limits | None = None,
    ) -> None:
        self._settings = settings
        self._leadership = leadership
        self._recorder = recorder
        self._stopper = stopper or stop.Stopper(connection)
        self._slots = slots.Slots[tuple[Tracked, int]](self._start, limits)
        self._forbidden: dict[stop.Transport, float] = {}
        self._sending: dict[Tracked, asyncio.Task[stop.Outcome]] = {}
        self._reporter = reports.Reporter(
            connection,
            recorder,
            replace_broken_pods=settings.replace_broken_pods,
            configured=settings.wait_for_containers + settings.ignore_containers,
        )
        self._client = connection
        self.view = View(self.decide)
        self.namespaces = sources.Namespaces(settings.scope())
        self.pods = sources.Pods(
            connection, self.namespaces, on_change=self._on_change, on_synced=self._on_synced
        )

    async def run(self) -> None:
        """Work until cancelled; then let what is in flight finish."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(
                    self.namespaces.follow(self._client, self._on_namespace), name="namespaces"
                )
                tasks.create_task(self.pods.follow(), name="pods")
                tasks.create_task(self._lead(), name="leading")
        finally:
            await self._drain()

    def decide(self, pod: types.Pod) -> finished.Decision:
        """Apply the rules to a pod, its namespace included."""
        namespace = pod.metadata.namespace or ""
        if namespace not in self.namespaces.served:
            return finished.Decision(
                action=finished.Action.IGNORE,
                reason="OutOfScope",
                message="the namespace is not served",
            )
        enabled = namespace not in self.namespaces.disabled
        return finished.finished(pod, self._settings.policy(namespace_enabled=enabled))

    def oldest_pending(self) -> float:
        """Return the age in seconds of the oldest stop that has not been seen to work."""
        now = asyncio.get_running_loop().time()
        since = [each.stoppable_since for each in self.view if each.armed]
        return now - min(since) if since else 0.0

    async def _lead(self) -> None:
        while True:
            await self._leadership.wait_elected()
            metrics.LEADER.set(1)
            for tracked in self.view:
                self._consider(tracked)
            await self._leadership.wait_deposed()
            metrics.LEADER.set(0)
            for tracked in self.view:
                self._abandon(tracked)

    def _on_namespace(self, name: str) -> None:
        self.pods.namespaces_changed()
        for tracked in self.view.within(name):
            self._consider(self.view.again(tracked))

    def _on_synced(self, namespace: str, listed: set[str]) -> None:
        for tracked in self.view.within(namespace):
            if tracked.pod.metadata.uid not in listed:
                self._gone(tracked.pod.metadata.uid)

    def _on_change(self, change: watch.Change[types.Pod]) -> None:
        assert change.object is not None
        if change.kind == "deleted":
            self._gone(change.object.metadata.uid)
        else:
            self._consider(self.view.update(change.object))

    def _gone(self, uid: str) -> None:
        # Leaving the watch means that the phase is no longer Running: the proxy has ended, too.
        tracked = self.view.remove(uid)
        if tracked is not None:
            self._over(tracked)
            if tracked.report is not None:
                tracked.report.cancel()

    def _consider(self, tracked: Tracked) -> None:
        # A late renewal elects nobody, so what were passed over now would never be looked at
        # again; and two who stop the same proxy do no harm.
        if not self._leadership.is_elected:
            return
        self._reporter.considered(tracked)
        if tracked.decision.action is not finished.Action.STOP:
            self._over(tracked)
        elif not tracked.armed:
            self._arm(tracked)

    def _arm(self, tracked: Tracked) -> None:
        tracked.stoppable_since = asyncio.get_running_loop().time()
        tracked.sent = None
        tracked.failures = 0
        tracked.turn += 1
        tracked.armed = True
        metrics.PENDING.inc()
        log.info(
            "stopping proxy",
            pod=tracked.name,
            reason=tracked.decision.reason,
            detail=tracked.decision.message,
        )
        self._slots.ask(tracked.pod.spec.nodeName or "", (tracked, tracked.turn))

    def _start(self, waiting: tuple[Tracked, int]) -> bool:
        """Begin a stop that got its place, if it is still the one that asked for it."""
        tracked, turn = waiting
        if not tracked.armed or tracked.turn != turn:
            return False
        tracked.over = asyncio.Event()
        tracked.place = tracked.pod.spec.nodeName or ""
        tracked.task = asyncio.create_task(self._stop(tracked), name=f"stop {tracked.name}")
        tracked.task.add_done_callback(functools.partial(self._ended, tracked))
        return True

    def _over(self, tracked: Tracked) -> None:
        """Let the stop of a pod end, because there is nothing to stop any more."""
        tracked.over.set()
        if tracked.task is None:
            self._disarm(tracked)

    def _disarm(self, tracked: Tracked) -> None:
        self._leave_place(tracked)
        if tracked.armed:
            tracked.armed = False
            metrics.PENDING.dec()

    def _leave_place(self, tracked: Tracked) -> None:
        if tracked.place is not None:
            node, tracked.place = tracked.place, None
            self._slots.free(node)

    def _ended(self, tracked: Tracked, task: asyncio.Task[None]) -> None:
        tracked.task = None
        self._disarm(tracked)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            log.error("stop ended unexpectedly", pod=tracked.name, exc_info=error)
        elif tracked in self.view:
            # The proxy may run again already: what is seen now counts.
            self._consider(tracked)

    def _abandon(self, tracked: Tracked) -> None:
        """Leave a pod to the next leader."""
        for task in (tracked.task, tracked.report):
            if task is not None:
                task.cancel()
        tracked.report = None
        self._over(tracked)

    async def _stop(self, tracked: Tracked) -> None:
        """Try until the need is over, each time the way that the last failure suggests."""
        way = stop.Transport.PORT_FORWARD

        async def attempt() -> stop.Outcome:
            nonlocal way
            outcome = await self._attempt(tracked, self._allowed(way))
            if outcome.failed and not tracked.over.is_set():
                self._note_failure(tracked, outcome)
                way = stop.next_transport(outcome, self._closed())
            return outcome

        async def pause(seconds: float) -> None:
            await _within(seconds, tracked.over)

        retrying = tenacity.AsyncRetrying(
            wait=_wait,
            sleep=pause,
            retry=tenacity.retry_if_result(lambda _: not tracked.over.is_set()),
        )
        await retrying(attempt)
        if tracked.sent is not None:
            self._account(tracked, *tracked.sent)

    async def _attempt(self, tracked: Tracked, way: stop.Transport) -> stop.Outcome:
        """Try once, and wait for the effect."""
        judged = tracked.pod
        if tracked.place is not None:
            loop = asyncio.get_running_loop()
            leaving = loop.call_later(PATIENCE, self._leave_place, tracked)
            try:
                outcome = await self._send(tracked, way)
            finally:
                leaving.cancel()
            self._leave_place(tracked)
        else:
            async with self._slots.retry(tracked.pod.spec.nodeName or ""):
                if tracked.over.is_set():
                    return stop.Outcome(stop.Result.GONE, way)
                judged = tracked.pod
                outcome = await self._send(tracked, way)
        if outcome.result is stop.Result.ACKNOWLEDGED:
            if not await _within(EXIT_WITHIN, tracked.over):
                return stop.Outcome(stop.Result.TIMEOUT, way, "answered, but has not ended")
        elif not outcome.failed and tracked.pod is judged:
            # The pod is not what the watch last showed, so the watch has news to come.
            await _within(CATCH_UP, tracked.over)
        return outcome

    async def _send(self, tracked: Tracked, way: stop.Transport) -> stop.Outcome:
        loop = asyncio.get_running_loop()
        began = loop.time()
        decision = tracked.decision
        sending = asyncio.create_task(self._guarded(tracked, tracked.pod, decision, way))
        self._sending[tracked] = sending
        gone = asyncio.create_task(tracked.over.wait())
        with metrics.IN_FLIGHT.track_inprogress():
            try:
                await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
                await asyncio.wait((sending,), timeout=IN_FLIGHT_GRACE)
            finally:
                del self._sending[tracked]
                gone.cancel()
                sending.cancel()
        if not sending.done():
            return stop.Outcome(stop.Result.GONE, way)
        outcome = sending.result()
        if outcome.result is stop.Result.ACKNOWLEDGED:
            metrics.ACKNOWLEDGED.observe(loop.time() - tracked.stoppable_since)
        metrics.STOPS.labels(outcome.transport, outcome.result).inc()
        level = log.warning if outcome.failed else log.info
        level(
            "stop attempted",
            pod=tracked.name,
            transport=outcome.transport,
            result=outcome.result,
            detail=outcome.detail,
            milliseconds=round((loop.time() - began) * 1000),
        )
        return outcome

    async def _guarded(
        self, tracked: Tracked, pod: types.Pod, decision: finished.Decision, way: stop.Transport
    ) -> stop.Outcome:
        def on_sent() -> None:
            tracked.sent = (decision, way)

        try:
            return await self._stopper.stop(pod, decision, way, self.decide, on_sent)
        except Exception as error:
            # One pod's surprise must neither end the process nor leave the pod behind.
            log.exception("stop failed unexpectedly", pod=tracked.name)
            return stop.Outcome(stop.Result.UNAVAILABLE, way, repr(error))

    def _account(self, tracked: Tracked, decision: finished.Decision, way: stop.Transport) -> None:
        metrics.STOPPED.inc()
        if (ended := _last_payload_exit(tracked.pod, decision)) is not None:
            now = datetime.datetime.now(tz=datetime.UTC)
            metrics.PROXY_EXIT.observe(max(0.0, (now - ended).total_seconds()))
        self._reporter.stopped(tracked, decision, way)

    def _note_failure(self, tracked: Tracked, outcome: stop.Outcome) -> None:
        tracked.failures += 1
        if outcome.result is stop.Result.FORBIDDEN:
            again = asyncio.get_running_loop().time() + sources.ASK_AGAIN
            self._forbidden[outcome.transport] = again
        self._reporter.failed(tracked, outcome)

    def _closed(self) -> frozenset[stop.Transport]:
        """Return the transports that the API forbade a moment ago."""
        now = asyncio.get_running_loop().time()
        return frozenset(way for way, until in self._forbidden.items() if until > now)

    def _allowed(self, way: stop.Transport) -> stop.Transport:
        closed = self._closed()
        return way.other if way in closed and way.other not in closed else way

    async def _drain(self) -> None:
        """Let requests under way finish; what waits is left to the next leader."""
        sending = dict(self._sending)
        for tracked in self.view:
            if tracked not in sending:
                self._abandon(tracked)
        if sending:
            log.info("draining", stops=len(sending))
            await asyncio.wait(sending.values(), timeout=DRAIN)
        for tracked in self.view:
            self._abandon(tracked)
        await self._recorder.drain(DRAIN_EVENTS)


async def _within(seconds: float, event: asyncio.Event) -> bool:
    """Wait for an event for some time; return whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def _last_payload_exit(pod: types.Pod, decision: finished.Decision) -> datetime.datetime | None:
    times = [
        status.state.terminated.finishedAt
        for status in pod.status.containerStatuses
        if status.name in decision.containers and status.state.terminated is not None
    ]
    known = [text for text in times if text]
    return datetime.datetime.fromisoformat(max(known)) if known else None

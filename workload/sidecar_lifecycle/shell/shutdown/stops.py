"""Pending stops: feed events to the state machine of `decide/stopping.py` and run its actions.

Thousands of proxies may have to be stopped at once. A waiting stop is only an entry in a queue or
a timer. A task exists only while a request is in flight.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import functools
from collections.abc import Callable, Iterable

import structlog

from sidecar_lifecycle.decide import payload, stopping
from sidecar_lifecycle.decide.stopping import State, StopAction, StopEvent
from sidecar_lifecycle.shell import metrics
from sidecar_lifecycle.shell.kube import client, errors, watch
from sidecar_lifecycle.shell.kube.fence import Fence

from . import reports, slots, stop
from .tracked import PendingStop, Tracked

log = structlog.get_logger(__name__)

EXIT_WITHIN = 30.0
"""Seconds from the answer to the end of the proxy: draining takes 5, a busy kubelet more."""
PATIENCE = 1.0
"""Seconds for which a first try keeps its slot on the node; the try may take longer."""
IN_FLIGHT_GRACE = 0.5
"""Seconds until a request is cancelled when its stop is not needed any more."""

for _transport in stop.Transport:
    for _result in stop.Result:
        # Each series starts at zero. Otherwise `increase()` would miss its first count.
        metrics.STOPS.labels(_transport, _result)

_RESULTS = {
    stop.Result.ACKNOWLEDGED: StopEvent.ANSWERED,
    stop.Result.UNANSWERED: StopEvent.UNANSWERED,
    stop.Result.CHANGED: StopEvent.CHANGED,
    stop.Result.GONE: StopEvent.CHANGED,
}


class Stops:
    """Runs the state machine for each pod whose proxy is to be stopped."""

    def __init__(
        self,
        connection: client.Client,
        reporter: reports.Reporter,
        fence: Fence,
        *,
        decide: stop.Decide,
        consider: Callable[[Tracked], None],
    ) -> None:
        """Call `consider` with a pod whose stop ended but may be needed again."""
        self._client = connection
        self._reporter = reporter
        self._fence = fence
        self._decide = decide
        self._consider = consider
        self._first = slots.Lane[PendingStop](slots.FIRST, self._placed)
        self._retries = slots.Lane[PendingStop](slots.RETRIES, self._placed)
        self._forbidden: dict[stop.Transport, float] = {}
        self._requests: set[asyncio.Task[None]] = set()
        self._acts: dict[StopAction, Callable[[PendingStop], None]] = {
            StopAction.QUEUE: self._queue,
            StopAction.SEND: self._send,
            StopAction.FREE: self._free,
            StopAction.AWAIT_EXIT: self._await_exit,
            StopAction.BACK_OFF: self._back_off,
            StopAction.BLAME: self._blame,
            StopAction.GRACE: functools.partial(self._after, IN_FLIGHT_GRACE),
            StopAction.CANCEL: self._cancel,
            StopAction.FORGET: self._forget,
            StopAction.ACCOUNT: lambda pending: self._account(pending.tracked),
            StopAction.CONSIDER: lambda pending: self._consider(pending.tracked),
        }

    def needed(self, tracked: Tracked) -> None:
        """Start to stop the proxy of a pod, unless a stop is pending."""
        if tracked.pending is not None:
            return
        pending = tracked.pending = PendingStop(tracked, asyncio.get_running_loop().time())
        metrics.PENDING.inc()
        decision = tracked.decision
        log.info(
            "stopping proxy", pod=tracked.name, reason=decision.reason, detail=decision.message
        )
        self._step(pending, StopEvent.NEEDED)

    def over(self, tracked: Tracked) -> None:
        """End the stop of a pod that needs none, or none any more."""
        if tracked.pending is not None:
            self._step(tracked.pending, StopEvent.OVER)
        else:
            self._account(tracked)

    async def drain(self, pods: Iterable[Tracked], seconds: float) -> None:
        """Wait for requests in flight up to a limit; other units do the queued stops."""
        pods = list(pods)
        for pending in [each.pending for each in pods]:
            if pending is not None and pending.request is None:
                self._happen(pending, StopEvent.LEFT)
        if self._requests:
            log.info("waiting for stops under way", stops=len(self._requests))
            await asyncio.wait(self._requests, timeout=seconds)
        for pending in [each.pending for each in pods]:
            if pending is not None:
                self._happen(pending, StopEvent.LEFT)

    def _happen(self, pending: PendingStop, event: StopEvent) -> None:
        with self._fence.around("stop", pending.tracked.pod):
            self._step(pending, event)

    def _step(self, pending: PendingStop, event: StopEvent) -> None:
        row = stopping.step(pending.state, event)
        if row is None:
            return
        if pending.timer is not None:
            pending.timer.cancel()
            pending.timer = None
        pending.state = row.after
        for action in row.actions:
            self._acts[action](pending)

    def _after(self, seconds: float, pending: PendingStop) -> None:
        loop = asyncio.get_running_loop()
        pending.timer = loop.call_later(seconds, self._happen, pending, StopEvent.ELAPSED)

    def _queue(self, pending: PendingStop) -> None:
        node = pending.tracked.pod.spec.nodeName or ""
        lane = self._retries if pending.tries else self._first
        pending.place = (lane, node)
        lane.ask(node, pending)

    def _placed(self, pending: PendingStop) -> bool:
        if pending.state is not State.QUEUED:
            # The item left the queue, so the slot goes to the next one.
            return False
        self._step(pending, StopEvent.PLACED)
        return True

    def _free(self, pending: PendingStop) -> None:
        if pending.place is not None:
            (lane, node), pending.place = pending.place, None
            lane.free(node)

    def _send(self, pending: PendingStop) -> None:
        if not pending.tries:
            self._after(PATIENCE, pending)
        pending.tries += 1
        request = pending.request = asyncio.create_task(self._try(pending))
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)

    async def _try(self, pending: PendingStop) -> None:
        pod, decision, way = pending.tracked.pod, pending.tracked.decision, self._allowed(pending)
        began = asyncio.get_running_loop().time()

        def on_sent() -> None:
            pending.tracked.sent = (decision, way)

        outcome = stop.Outcome(stop.Result.UNAVAILABLE, way, "failed unexpectedly")
        with metrics.IN_FLIGHT.track_inprogress(), self._fence.around("stop", pod):
            outcome = await stop.stop(
                self._client, pod, decision, way, self._decide, on_sent=on_sent
            )
        pending.request = None
        now = asyncio.get_running_loop().time()
        if outcome.result is stop.Result.ACKNOWLEDGED:
            metrics.ACKNOWLEDGED.observe(now - pending.since)
        metrics.STOPS.labels(outcome.transport, outcome.result).inc()
        level = log.warning if outcome.failed else log.info
        level(
            "stop attempted",
            pod=pending.tracked.name,
            transport=outcome.transport,
            result=outcome.result,
            detail=outcome.detail,
            milliseconds=round((now - began) * 1000),
        )
        event = _RESULTS.get(outcome.result, StopEvent.FAILED)
        if event is StopEvent.CHANGED and pending.tracked.pod is pod:
            # The watch still shows an older version of the pod, so wait for the newer one.
            outcome = dataclasses.replace(outcome, retry_after=stop.CATCH_UP)
        pending.outcome = outcome
        self._happen(pending, event)

    def _await_exit(self, pending: PendingStop) -> None:
        answered = (
            pending.outcome is not None and pending.outcome.result is stop.Result.ACKNOWLEDGED
        )
        self._after(EXIT_WITHIN if answered else stop.CATCH_UP, pending)

    def _back_off(self, pending: PendingStop) -> None:
        asked = (pending.outcome.retry_after if pending.outcome else None) or 0.0
        self._after(max(asked, errors.delay(pending.tries, initial=0.5, maximum=60)), pending)

    def _blame(self, pending: PendingStop) -> None:
        outcome = pending.outcome
        assert outcome is not None
        if not outcome.failed:
            log.warning("proxy has not ended", pod=pending.tracked.name, detail=outcome.detail)
            if outcome.result is stop.Result.ACKNOWLEDGED:
                detail = "answered, but has not ended"
                outcome = stop.Outcome(stop.Result.TIMEOUT, outcome.transport, detail)
        pending.failures += 1
        if outcome.result is stop.Result.FORBIDDEN:
            again = asyncio.get_running_loop().time() + watch.ASK_AGAIN
            self._forbidden[outcome.transport] = again
        pending.way = stop.next_transport(outcome)
        self._reporter.failed(pending.tracked, outcome, pending.failures)

    def _cancel(self, pending: PendingStop) -> None:
        if pending.request is not None:
            pending.request.cancel()
            pending.request = None

    def _forget(self, pending: PendingStop) -> None:
        pending.tracked.pending = None
        metrics.PENDING.dec()

    def _account(self, tracked: Tracked) -> None:
        if tracked.sent is None:
            return
        (decision, way), tracked.sent = tracked.sent, None
        metrics.STOPPED.inc()
        self._reporter.stopped(tracked, decision, way)
        if ended := payload.last_end(tracked.pod, decision.containers):
            since = datetime.datetime.now(tz=datetime.UTC) - datetime.datetime.fromisoformat(ended)
            metrics.PROXY_EXIT.observe(max(0.0, since.total_seconds()))

    def _allowed(self, pending: PendingStop) -> stop.Transport:
        """Choose the transport of a try; one that was recently denied is avoided."""
        if not pending.tracked.decision.port:
            return stop.Transport.EXEC
        now, way = asyncio.get_running_loop().time(), pending.way
        is_closed = self._forbidden.get(way, now) > now >= self._forbidden.get(way.other, now)
        return way.other if is_closed else way

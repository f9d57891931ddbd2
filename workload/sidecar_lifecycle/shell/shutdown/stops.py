"""Stops under way: events go into the machine of `decide/stopping.py`, and its actions are done.

Thousands of pods may be to be stopped at once. One that waits costs an entry in a queue or a
timer; a task exists for as long as a request is under way.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import functools
from collections.abc import Callable, Iterable

import structlog

from sidecar_lifecycle.decide import finished, payload, stopping
from sidecar_lifecycle.decide.stopping import State, StopAction, StopEvent
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell import metrics
from sidecar_lifecycle.shell.kube import errors, watch
from sidecar_lifecycle.shell.kube.fence import Fence

from . import reports, slots, stop
from .tracked import Need, Tracked

log = structlog.get_logger(__name__)

EXIT_WITHIN = 30.0
"""Seconds from the answer to the proxy's end: draining takes 5, a busy node's kubelet more."""
PATIENCE = 1.0
"""Seconds for which a first try holds its place on the node; the try itself may take longer."""
IN_FLIGHT_GRACE = 0.5
"""Seconds that a request under way gets once there is nothing to stop any more."""

for _transport in stop.Transport:
    for _result in stop.Result:
        # Each counts from zero, or the first of its kind would not show as a rise.
        metrics.STOPS.labels(_transport, _result)

_RESULTS = {
    stop.Result.ACKNOWLEDGED: StopEvent.ANSWERED,
    stop.Result.UNANSWERED: StopEvent.UNANSWERED,
    stop.Result.CHANGED: StopEvent.CHANGED,
    stop.Result.GONE: StopEvent.CHANGED,
}


class Stops:
    """Does what the machine says, for each pod whose proxy is to be stopped."""

    def __init__(
        self,
        stopper: stop.Stopper,
        reporter: reports.Reporter,
        fence: Fence,
        *,
        decide: stop.Decide,
        consider: Callable[[Tracked], None],
    ) -> None:
        """Stop proxies; `consider` a pod whose stop ended while it may be needed anew."""
        self._stopper = stopper
        self._reporter = reporter
        self._fence = fence
        self._decide = decide
        self._consider = consider
        self._first = slots.Lane[Need](slots.FIRST, self._placed)
        self._retries = slots.Lane[Need](slots.RETRIES, self._placed)
        self._forbidden: dict[stop.Transport, float] = {}
        self._requests: set[asyncio.Task[stop.Outcome]] = set()
        self._acts: dict[StopAction, Callable[[Need], None]] = {
            StopAction.QUEUE: self._queue,
            StopAction.SEND: self._send,
            StopAction.FREE: self._free,
            StopAction.AWAIT_EXIT: self._await_exit,
            StopAction.BACK_OFF: self._back_off,
            StopAction.BLAME: self._blame,
            StopAction.GRACE: functools.partial(self._after, IN_FLIGHT_GRACE),
            StopAction.CANCEL: self._cancel,
            StopAction.FORGET: self._forget,
            StopAction.ACCOUNT: lambda need: self._account(need.tracked),
            StopAction.CONSIDER: lambda need: self._consider(need.tracked),
        }

    def needed(self, tracked: Tracked) -> None:
        """Stop the proxy of a pod, unless that is under way."""
        if tracked.need is not None:
            return
        need = tracked.need = Need(tracked, asyncio.get_running_loop().time())
        metrics.PENDING.inc()
        decision = tracked.decision
        log.info(
            "stopping proxy", pod=tracked.name, reason=decision.reason, detail=decision.message
        )
        self._step(need, StopEvent.NEEDED)

    def over(self, tracked: Tracked) -> None:
        """Take note that there is nothing to stop, or nothing any more."""
        if tracked.need is not None:
            self._step(tracked.need, StopEvent.OVER)
        else:
            self._account(tracked)

    async def drain(self, pods: Iterable[Tracked], seconds: float) -> None:
        """Let requests under way end, but not for long; what waits is left to other units."""
        pods = list(pods)
        for need in [each.need for each in pods]:
            if need is not None and need.request is None:
                self._happen(need, StopEvent.LEFT)
        if self._requests:
            log.info("waiting for stops under way", stops=len(self._requests))
            await asyncio.wait(self._requests, timeout=seconds)
        for need in [each.need for each in pods]:
            if need is not None:
                self._happen(need, StopEvent.LEFT)

    def _happen(self, need: Need, event: StopEvent) -> None:
        with self._fence.around("stop", need.tracked.pod):
            self._step(need, event)

    def _step(self, need: Need, event: StopEvent) -> None:
        row = stopping.step(need.state, event)
        if row is None:
            return
        if need.timer is not None:
            need.timer.cancel()
            need.timer = None
        need.state = row.after
        for action in row.actions:
            self._acts[action](need)

    def _after(self, seconds: float, need: Need) -> None:
        loop = asyncio.get_running_loop()
        need.timer = loop.call_later(seconds, self._happen, need, StopEvent.ELAPSED)

    def _queue(self, need: Need) -> None:
        node = need.tracked.pod.spec.nodeName or ""
        lane = self._retries if need.tries else self._first
        need.place = (lane, node)
        lane.ask(node, need)

    def _placed(self, need: Need) -> bool:
        if need.state is not State.QUEUED:
            # It waits no more: its place goes to the next.
            return False
        self._step(need, StopEvent.PLACED)
        return True

    def _free(self, need: Need) -> None:
        if need.place is not None:
            (lane, node), need.place = need.place, None
            lane.free(node)

    def _send(self, need: Need) -> None:
        if not need.tries:
            self._after(PATIENCE, need)
        need.tries += 1
        tracked = need.tracked
        began = asyncio.get_running_loop().time()
        request = asyncio.create_task(
            self._request(need, tracked.pod, tracked.decision, self._allowed(need)),
            name=f"stop {tracked.name}",
        )
        need.request = request
        self._requests.add(request)
        request.add_done_callback(functools.partial(self._ended, need, tracked.pod, began))

    async def _request(
        self, need: Need, pod: types.Pod, decision: finished.ProxyDecision, way: stop.Transport
    ) -> stop.Outcome:
        def on_sent() -> None:
            need.tracked.sent = (decision, way)

        with metrics.IN_FLIGHT.track_inprogress(), self._fence.around("stop", pod):
            return await self._stopper.stop(pod, decision, way, self._decide, on_sent)
        return stop.Outcome(stop.Result.UNAVAILABLE, way, "failed unexpectedly; the log says how")

    def _ended(
        self, need: Need, judged: types.Pod, began: float, request: asyncio.Task[stop.Outcome]
    ) -> None:
        self._requests.discard(request)
        if need.request is not request or request.cancelled():
            return
        need.request = None
        outcome = request.result()
        now = asyncio.get_running_loop().time()
        if outcome.result is stop.Result.ACKNOWLEDGED:
            metrics.ACKNOWLEDGED.observe(now - need.since)
        metrics.STOPS.labels(outcome.transport, outcome.result).inc()
        level = log.warning if outcome.failed else log.info
        level(
            "stop attempted",
            pod=need.tracked.name,
            transport=outcome.transport,
            result=outcome.result,
            detail=outcome.detail,
            milliseconds=round((now - began) * 1000),
        )
        event = _RESULTS.get(outcome.result, StopEvent.FAILED)
        if event is StopEvent.CHANGED and need.tracked.pod is judged:
            # The pod is not what the watch last showed, so the watch has news to come.
            outcome = dataclasses.replace(outcome, retry_after=stop.CATCH_UP)
        need.outcome = outcome
        self._happen(need, event)

    def _await_exit(self, need: Need) -> None:
        answered = need.outcome is not None and need.outcome.result is stop.Result.ACKNOWLEDGED
        self._after(EXIT_WITHIN if answered else stop.CATCH_UP, need)

    def _back_off(self, need: Need) -> None:
        asked = (need.outcome.retry_after if need.outcome else None) or 0.0
        self._after(max(asked, errors.delay(need.tries, initial=0.5, maximum=60)), need)

    def _blame(self, need: Need) -> None:
        outcome = need.outcome
        assert outcome is not None
        if not outcome.failed:
            log.warning("proxy has not ended", pod=need.tracked.name, detail=outcome.detail)
            if outcome.result is stop.Result.ACKNOWLEDGED:
                detail = "answered, but has not ended"
                outcome = stop.Outcome(stop.Result.TIMEOUT, outcome.transport, detail)
        need.failures += 1
        if outcome.result is stop.Result.FORBIDDEN:
            again = asyncio.get_running_loop().time() + watch.ASK_AGAIN
            self._forbidden[outcome.transport] = again
        need.way = stop.next_transport(outcome)
        self._reporter.failed(need.tracked, outcome, need.failures)

    def _cancel(self, need: Need) -> None:
        if need.request is not None:
            need.request.cancel()
            need.request = None

    def _forget(self, need: Need) -> None:
        need.tracked.need = None
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

    def _allowed(self, need: Need) -> stop.Transport:
        """Choose the way of a try, the other one where the API forbade it a moment ago."""
        if not need.tracked.decision.port:
            return stop.Transport.EXEC
        now, way = asyncio.get_running_loop().time(), need.way
        is_closed = self._forbidden.get(way, now) > now >= self._forbidden.get(way.other, now)
        return way.other if is_closed else way

"""Pending stops: one task per proxy tries to stop it until nothing is left to stop.

Thousands of proxies may have to be stopped at once, so each try waits for a slot of its node.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import functools
import itertools
import weakref
from collections.abc import Callable, Iterable

import structlog

from integrator_contract import refusals
from integrator_contract.reasons import Reason
from sidecar_lifecycle.decide import payload
from sidecar_lifecycle.shell import metrics
from sidecar_lifecycle.shell.kube import client, errors, events
from sidecar_lifecycle.shell.kube.fence import Fence

from . import stop
from .tracked import PendingStop, Tracked

log = structlog.get_logger(__name__)

EXIT_WITHIN = 30.0
"""Seconds from the answer to the end of the proxy: draining takes 5, a busy kubelet more."""
PATIENCE = 1.0
"""Seconds for which a first try keeps its slot on the node; the try may take longer."""
IN_FLIGHT_GRACE = 0.5
"""Seconds until a request is cancelled when its stop is not needed any more."""
PER_NODE = 4
"""Measured with 1, 2, 4, 8 and 30 first tries per node on a node with two cores: 4 was fastest."""
FAILURES_BEFORE_EVENT = 3
"""Failed tries until an Event is written; the log has each one."""

for _transport in stop.Transport:
    for _result in stop.Result:
        # Each series starts at zero. Otherwise `increase()` would miss its first count.
        metrics.STOPS.labels(_transport, _result)


class Lane:
    """The limits of concurrent tries: few per node, many in total.

    A hanging node must not delay the pods of other nodes. Retries have their own lane.
    """

    def __init__(self, *, per_node: int, total: int) -> None:
        self._per_node = per_node
        self._total = asyncio.Semaphore(total)
        # A semaphore exists while a try holds it or waits for it.
        self._nodes = weakref.WeakValueDictionary[str, asyncio.Semaphore]()

    def find_limits(self, node: str) -> tuple[asyncio.Semaphore, asyncio.Semaphore]:
        """Return the limit of the node and that of all nodes.

        A try acquires them in this order. So each node has only few of the tries that wait for the
        total, which are served in the order of arrival.
        """
        of_node = self._nodes.setdefault(node, asyncio.Semaphore(self._per_node))
        return of_node, self._total


class Stops:
    """Stops proxies, and reports the result to the owners of the pods."""

    def __init__(
        self,
        connection: client.Client,
        recorder: events.Recorder,
        fence: Fence,
        *,
        decide: stop.Decide,
        consider: Callable[[Tracked], None],
    ) -> None:
        """Call `consider` with a pod whose stop ended but may be needed again."""
        self._client = connection
        self._recorder = recorder
        self._fence = fence
        self._decide = decide
        self._consider = consider
        self._first = Lane(per_node=PER_NODE, total=64)
        self._retries = Lane(per_node=2, total=16)

    def begin(self, tracked: Tracked) -> None:
        """Start to stop the proxy of a pod, unless a stop is pending."""
        if tracked.pending is not None:
            return
        pending = tracked.pending = PendingStop(asyncio.get_running_loop().time())
        metrics.PENDING.inc()
        decision = tracked.decision
        log.info(
            "stopping proxy", pod=tracked.name, reason=decision.reason, detail=decision.message
        )
        pending.task = asyncio.create_task(self._stop(tracked, pending), name="stop")
        pending.task.add_done_callback(functools.partial(self._finish, tracked, pending))

    def end(self, tracked: Tracked) -> None:
        """End the stop of a pod that needs none, or none any more."""
        pending = tracked.pending
        if pending is None:
            self._report_stopped_proxy(tracked)
        elif not pending.is_over:
            pending.is_over = True
            if pending.request is None:
                pending.task.cancel()
            else:
                # The proxy may have ended before its answer arrived.
                asyncio.get_running_loop().call_later(IN_FLIGHT_GRACE, pending.task.cancel)

    async def drain(self, pods: Iterable[Tracked], seconds: float) -> None:
        """Wait for requests in flight up to a limit; other units do the other stops."""
        pending = [each.pending for each in pods if each.pending is not None]
        for each in pending:
            if each.request is None:
                each.task.cancel()
        if requests := [each.request for each in pending if each.request is not None]:
            log.info("waiting for stops under way", stops=len(requests))
            await asyncio.wait(requests, timeout=seconds)
        for each in pending:
            each.task.cancel()
        await asyncio.gather(*(each.task for each in pending), return_exceptions=True)

    async def _stop(self, tracked: Tracked, pending: PendingStop) -> None:
        """Try until the stop is over, which cancels this task."""
        way, failures = stop.Transport.PORT_FORWARD, 0
        with self._fence.isolate("stop", tracked.pod):
            for tries in itertools.count(1):
                outcome = await self._try_once(tracked, pending, way, is_first=tries == 1)
                if pending.is_over:
                    return
                if outcome.result in stop.SENT:
                    outcome = await self._await_exit(tracked, outcome)
                if outcome.result not in stop.OUTDATED:
                    failures += 1
                    way = stop.choose_transport(outcome)
                    self._report_failure(tracked, outcome, failures)
                pause = errors.compute_delay(tries, initial=0.5, maximum=60)
                await asyncio.sleep(max(outcome.retry_after or 0.0, pause))

    def _finish(self, tracked: Tracked, pending: PendingStop, _: asyncio.Task[None]) -> None:
        tracked.pending = None
        metrics.PENDING.dec()
        if pending.is_over:
            with self._fence.isolate("stop", tracked.pod):
                # The proxy may need another stop by now.
                self._consider(tracked)
                self._report_stopped_proxy(tracked)

    async def _try_once(
        self, tracked: Tracked, pending: PendingStop, way: stop.Transport, *, is_first: bool
    ) -> stop.Outcome:
        """Try once, with a slot of the pod's node."""
        lane = self._first if is_first else self._retries
        with contextlib.ExitStack() as slot:
            for limit in lane.find_limits(tracked.pod.spec.nodeName or ""):
                await limit.acquire()
                slot.callback(limit.release)
            if is_first:
                asyncio.get_running_loop().call_later(PATIENCE, slot.close)
            request = pending.request = asyncio.create_task(
                self._send_stop_request(tracked, way, pending.since)
            )
            try:
                return await request
            finally:
                pending.request = None

    async def _send_stop_request(
        self, tracked: Tracked, way: stop.Transport, since: float
    ) -> stop.Outcome:
        pod, decision = tracked.pod, tracked.decision
        if not decision.port:
            way = stop.Transport.EXEC
        loop = asyncio.get_running_loop()
        began = loop.time()

        def on_sent() -> None:
            tracked.sent = (decision, way)

        outcome = stop.Outcome(stop.Result.UNAVAILABLE, way, "failed unexpectedly")
        with metrics.IN_FLIGHT.track_inprogress(), self._fence.isolate("stop", pod):
            outcome = await stop.stop(
                self._client, pod, decision, way, self._decide, on_sent=on_sent
            )
        now = loop.time()
        if outcome.result is stop.Result.ACKNOWLEDGED:
            metrics.ACKNOWLEDGED.observe(now - since)
        metrics.STOPS.labels(outcome.transport, outcome.result).inc()
        level = log.warning if outcome.failed else log.info
        level(
            "stop attempted",
            pod=tracked.name,
            transport=outcome.transport,
            result=outcome.result,
            detail=outcome.detail,
            milliseconds=round((now - began) * 1000),
        )
        if outcome.result in stop.OUTDATED and tracked.pod is pod:
            # The watch still shows an older version of the pod, so wait for the newer one.
            outcome = dataclasses.replace(outcome, retry_after=stop.CATCH_UP)
        return outcome

    async def _await_exit(self, tracked: Tracked, outcome: stop.Outcome) -> stop.Outcome:
        """Wait for the watch to show the proxy's exit; return the failure if it does not."""
        is_answered = outcome.result is stop.Result.ACKNOWLEDGED
        await asyncio.sleep(EXIT_WITHIN if is_answered else stop.CATCH_UP)
        log.warning("proxy has not ended", pod=tracked.name, detail=outcome.detail)
        if not is_answered:
            return outcome
        detail = "answered, but has not ended"
        return stop.Outcome(stop.Result.TIMEOUT, outcome.transport, detail)

    def _report_failure(self, tracked: Tracked, outcome: stop.Outcome, failures: int) -> None:
        """Tell the pod's owner of repeated failures."""
        if failures < FAILURES_BEFORE_EVENT:
            return
        message = f"Could not stop the Istio proxy ({outcome.transport}, {outcome.result})"
        if outcome.result is stop.Result.FORBIDDEN:
            rights = "pods/portforward, or pods/exec," if tracked.decision.port else "pods/exec"
            message += f"; grant the application {rights} here"
        elif refusal := refusals.read_refusal(403, outcome.detail):
            message += f"; {refusal}"
        warn_once(self._recorder, tracked, Reason.PROXY_STOP_FAILED, f"{message}. Retrying.")

    def _report_stopped_proxy(self, tracked: Tracked) -> None:
        """Report that a proxy was stopped, if this unit sent the request."""
        if tracked.sent is None:
            return
        (decision, way), tracked.sent = tracked.sent, None
        metrics.STOPPED.inc()
        message = f"Stopped the Istio proxy ({way}): {decision.message}."
        if decision.holding:
            holding = ", ".join(decision.holding)
            message += f" The pod does not complete before {holding} ends."
        self._recorder.record(tracked.pod, Reason.PROXY_STOPPED, message)
        if ended := payload.find_last_end(tracked.pod, decision.containers):
            since = datetime.datetime.now(tz=datetime.UTC) - datetime.datetime.fromisoformat(ended)
            metrics.PROXY_EXIT.observe(max(0.0, since.total_seconds()))


def warn_once(recorder: events.Recorder, tracked: Tracked, reason: Reason, message: str) -> bool:
    """Warn the owner of a pod, unless it was warned of this before; return whether it was not."""
    if reason in tracked.reported:
        return False
    tracked.reported += (reason,)
    log.warning("pod reported", pod=tracked.name, reason=reason, message=message)
    recorder.record(tracked.pod, reason, message, "Warning")
    return True

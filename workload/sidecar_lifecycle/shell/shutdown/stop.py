"""Stop one proxy: open the way in, look once more, then send.

The order matters. Opening takes most of the time, and names are reused (the pods of a TFJob), so
the comparison comes last: between it and the request lies one small write.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import re
from collections.abc import Callable, Mapping

from integrator_contract import answers, names
from sidecar_lifecycle.decide import finished
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell import InputError
from sidecar_lifecycle.shell.kube import client, errors, streams
from sidecar_lifecycle.shell.settings import Live

Decide = Callable[[types.Pod], finished.ProxyDecision]
"""The rules, for a pod as it is now."""

COMMAND = ["pilot-agent", "request", "POST", "quitquitquit"]
PATH = "/quitquitquit"
_NAME = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?")
"""Of a namespace or a pod."""
PORT_FORWARD_WITHIN = 5.0
"""Seconds for all of an attempt: 50 ms are usual, a busy node takes a second or two."""
EXEC_WITHIN = 10.0
"""Starting a process in a container takes longer."""
CATCH_UP = 5.0
"""Seconds that the watch gets to show what is known already: what the last look before sending
saw, or the end of a proxy that ended before its answer was out."""


class Transport(enum.StrEnum):
    """The way to a proxy."""

    PORT_FORWARD = "port-forward"
    EXEC = "exec"

    @property
    def other(self) -> Transport:
        """The alternative."""
        return Transport.EXEC if self is Transport.PORT_FORWARD else Transport.PORT_FORWARD


class Result(enum.StrEnum):
    """How an attempt ended."""

    ACKNOWLEDGED = "acknowledged"
    CHANGED = "changed"
    """The pod is not the one that was decided about, or must not be stopped any more."""
    GONE = "gone"
    FORBIDDEN = "forbidden"
    """The API does not let us use this transport."""
    UNANSWERED = "unanswered"
    """The request went out, and the connection ended before an answer: a proxy ends within the
    handler of the request, so it has most likely ended. Its exit tells."""
    REFUSED = "refused"
    """The way in is there, but the proxy does not take the request this way."""
    TIMEOUT = "timeout"
    BUSY = "busy"
    """The API asked us to come back later."""
    UNAVAILABLE = "unavailable"


_NO_FAILURES = (Result.ACKNOWLEDGED, Result.CHANGED, Result.GONE, Result.UNANSWERED)


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What one attempt came to."""

    result: Result
    transport: Transport
    detail: str = ""
    retry_after: float | None = None

    @property
    def failed(self) -> bool:
        """Whether it needs another try, whatever becomes of the proxy."""
        return self.result not in _NO_FAILURES


def classify(error: errors.KubeError) -> Result:
    """Return what a failure means for the next try."""
    if isinstance(error, errors.StatusError):
        if error.code in (401, 403):
            return Result.FORBIDDEN
        if error.code == 404:
            return Result.GONE
        if error.code == 429:
            return Result.BUSY
        return Result.REFUSED if error.code < 500 else Result.UNAVAILABLE
    if isinstance(error, errors.StreamError):
        return Result.REFUSED
    return Result.TIMEOUT if isinstance(error.__cause__, TimeoutError) else Result.UNAVAILABLE


def next_transport(outcome: Outcome) -> Transport:
    """Choose the transport of the next try, by the class of what went wrong.

    The other one where this one is closed to us or answered by the wrong party; the same where
    the trouble lies before both, such as a node that is away.
    """
    changes = (Result.FORBIDDEN, Result.REFUSED, Result.TIMEOUT, Result.UNANSWERED)
    return outcome.transport.other if outcome.result in changes else outcome.transport


class Changed(Exception):  # noqa: N818 - names a condition, as those of errors
    """The pod is not the one that was decided about, or must not be stopped any more."""


async def stop(
    connection: client.Client,
    pod: types.Pod,
    decision: finished.ProxyDecision,
    transport: Transport,
    decide: Decide,
    *,
    on_sent: Callable[[], None] = lambda: None,
) -> Outcome:
    """Try once to stop the proxy of a pod."""
    namespace, name = pod.metadata.namespace or "", pod.metadata.name

    async def look() -> None:
        current = await connection.get(types.Pod, namespace, name)
        if current.metadata.uid != pod.metadata.uid:
            raise Changed("another pod has the name now")
        now = decide(current)
        if now.action is not finished.Action.STOP:
            raise Changed(f"{now.reason}: {now.message}")
        if now.proxy_id != decision.proxy_id:
            raise Changed("the proxy has been started anew")

    try:
        if transport is Transport.EXEC:
            await look()
            await streams.run_command(
                connection, namespace, name, names.PROXY, COMMAND, deadline=EXEC_WITHIN
            )
            on_sent()
            return Outcome(Result.ACKNOWLEDGED, transport)
        async with streams.port_forward(
            connection, namespace, name, decision.port, deadline=PORT_FORWARD_WITHIN
        ) as forward:
            await look()
            on_sent()
            try:
                code = await forward.post(PATH)
            except errors.StreamEnded as error:
                return Outcome(Result.UNANSWERED, transport, str(error))
    except Changed as error:
        return Outcome(Result.CHANGED, transport, str(error))
    except errors.KubeError as error:
        retry_after = error.retry_after if isinstance(error, errors.StatusError) else None
        return Outcome(classify(error), transport, str(error), retry_after)
    if code == 200:
        return Outcome(Result.ACKNOWLEDGED, transport)
    # 403 comes from an agent that was reached from outside, as with runtimes that use VMs.
    result = Result.UNAVAILABLE if code >= 500 else Result.REFUSED
    return Outcome(result, transport, f"the proxy answered {code}")


async def answer(
    connection: client.Client, live: Live, parameters: Mapping[str, str]
) -> answers.ProxyAnswer:
    """Stop the proxy of `pod` in `namespace` now, as the charm asks, if the rules allow it.

    It is stopped also while proxy-shutdown is off.

    Raises:
        InputError: A parameter is no name.
    """
    for key in ("namespace", "pod"):
        if not _NAME.fullmatch(name := parameters.get(key, "")):
            raise InputError(f"{key}={name[:63]} is not a name of Kubernetes")
    pod = await connection.get(types.Pod, parameters["namespace"], parameters["pod"])
    rules = live.current.rules

    def decide(now: types.Pod) -> finished.ProxyDecision:
        return finished.finished(now, rules)

    decision = decide(pod)
    told = decision.answer(pod)
    if decision.action is finished.Action.STOP:
        outcome = await _both_ways(connection, pod, decision, decide)
        told = dataclasses.replace(
            told, result=outcome.result, transport=outcome.transport, detail=outcome.detail
        )
    return told


async def _both_ways(
    connection: client.Client, pod: types.Pod, decision: finished.ProxyDecision, decide: Decide
) -> Outcome:
    first = await stop(connection, pod, decision, Transport.PORT_FORWARD, decide)
    cut_off = first.result is Result.UNANSWERED
    if cut_off:
        # It has most likely ended, and the next try looks first.
        await asyncio.sleep(CATCH_UP)
    way = next_transport(first)
    if way is first.transport or not (first.failed or cut_off):
        return first
    second = await stop(connection, pod, decision, way, decide)
    if cut_off and second.result in (Result.CHANGED, Result.GONE):
        return Outcome(Result.ACKNOWLEDGED, first.transport)
    return second

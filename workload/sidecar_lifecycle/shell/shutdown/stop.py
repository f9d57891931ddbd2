"""Stop one proxy: open the connection, read the pod again, then send the request.

The order matters, because names are reused (the pods of a TFJob). Opening takes most of the time,
so the pod is compared after it, and only one small write separates the comparison and the request.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import re
from collections.abc import Callable, Mapping

from integrator_contract import answers, names, refusals
from sidecar_lifecycle.decide import finished
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell import InputError
from sidecar_lifecycle.shell.kube import client, errors, streams
from sidecar_lifecycle.shell.settings import Live

Decide = Callable[[types.Pod], finished.ProxyDecision]
"""Applies the rules to a pod."""

COMMAND = ["pilot-agent", "request", "POST", "quitquitquit"]
PATH = "/quitquitquit"
_NAME = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?")
"""The name of a namespace or a pod."""
PORT_FORWARD_WITHIN = 5.0
"""Seconds for an attempt; 50 ms are usual, and a busy node needs one or two seconds."""
EXEC_WITHIN = 10.0
"""Seconds for an attempt, which has to start a process in the container."""
CATCH_UP = 5.0
"""Seconds for the watch to show a state that is known here already: the pod as it was read before
sending, or the end of a proxy that ended before its answer arrived."""


class Transport(enum.StrEnum):
    """How a request reaches a proxy."""

    PORT_FORWARD = "port-forward"
    EXEC = "exec"


class Result(enum.StrEnum):
    """How an attempt ended."""

    ACKNOWLEDGED = "acknowledged"
    CHANGED = "changed"
    """The pod or its proxy was replaced, or the proxy must not be stopped any more."""
    GONE = "gone"
    FORBIDDEN = "forbidden"
    """The API server denies this transport (401 or 403)."""
    UNANSWERED = "unanswered"
    """The request was sent, and the connection ended without an answer. The handler of the request
    ends the proxy, so the proxy has most likely ended. Its container status tells."""
    REFUSED = "refused"
    """The connection works, but the proxy rejects the request over this transport."""
    TIMEOUT = "timeout"
    BUSY = "busy"
    """The API server answered 429."""
    UNAVAILABLE = "unavailable"


SENT = (Result.ACKNOWLEDGED, Result.UNANSWERED)
"""Results after which the proxy should end."""
OUTDATED = (Result.CHANGED, Result.GONE)
"""Results of an attempt that sent nothing, because the pod differs from the watch."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one attempt."""

    result: Result
    transport: Transport
    detail: str = ""
    retry_after: float | None = None

    @property
    def failed(self) -> bool:
        """Whether the attempt failed, so that another one is needed."""
        return self.result not in SENT + OUTDATED


def classify_error(error: errors.KubeError) -> Result:
    """Return the result of an attempt that raised an error."""
    if isinstance(error, errors.StatusError):
        if error.code in (401, 403):
            is_refused = refusals.read_refusal(error.code, error.message)
            return Result.REFUSED if is_refused else Result.FORBIDDEN
        if error.code == 404:
            return Result.GONE
        if error.code == 429:
            return Result.BUSY
        return Result.REFUSED if error.code < 500 else Result.UNAVAILABLE
    if isinstance(error, errors.StreamError):
        return Result.REFUSED
    return Result.TIMEOUT if isinstance(error.__cause__, TimeoutError) else Result.UNAVAILABLE


def choose_transport(outcome: Outcome) -> Transport:
    """Choose the transport of the next try.

    It changes if this one is forbidden or the proxy did not confirm the stop. It stays if the
    cause affects both, such as a node that is down.
    """
    changes = (Result.FORBIDDEN, Result.REFUSED, Result.TIMEOUT, Result.UNANSWERED)
    if outcome.result not in changes:
        return outcome.transport
    is_exec = outcome.transport is Transport.EXEC
    return Transport.PORT_FORWARD if is_exec else Transport.EXEC


class Changed(Exception):  # noqa: N818 - names a condition, as those of errors
    """The pod or its proxy was replaced, or the proxy must not be stopped any more."""


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

    async def check_unchanged() -> None:
        current = await connection.get(types.Pod, namespace, name)
        if current.metadata.uid != pod.metadata.uid:
            raise Changed("another pod has the name now")
        now = decide(current)
        if now.action is not finished.Action.STOP:
            raise Changed(f"{now.reason}: {now.message}")
        if now.proxy_id != decision.proxy_id:
            raise Changed("the proxy was restarted")

    try:
        if transport is Transport.EXEC:
            await check_unchanged()
            await streams.run_command(
                connection, namespace, name, names.PROXY, COMMAND, deadline=EXEC_WITHIN
            )
            on_sent()
            return Outcome(Result.ACKNOWLEDGED, transport)
        async with streams.open_port_forward(
            connection, namespace, name, decision.port, deadline=PORT_FORWARD_WITHIN
        ) as forward:
            await check_unchanged()
            on_sent()
            try:
                code = await forward.post(PATH)
            except errors.StreamEnded as error:
                return Outcome(Result.UNANSWERED, transport, str(error))
    except Changed as error:
        return Outcome(Result.CHANGED, transport, str(error))
    except errors.KubeError as error:
        retry_after = error.retry_after if isinstance(error, errors.StatusError) else None
        return Outcome(classify_error(error), transport, str(error), retry_after)
    if code == 200:
        return Outcome(Result.ACKNOWLEDGED, transport)
    # The agent answers 403 if the client is not local, as with runtimes that use VMs.
    result = Result.UNAVAILABLE if code >= 500 else Result.REFUSED
    return Outcome(result, transport, f"the proxy answered {code}")


async def answer_stop(
    connection: client.Client, live: Live, parameters: Mapping[str, str]
) -> answers.ProxyAnswer:
    """Answer the charm: stop the proxy of `pod` in `namespace` now, if the rules allow it.

    The proxy is stopped even if proxy-shutdown is off.

    Raises:
        InputError: A parameter is not a valid name, or there is no such pod.
    """
    for key in ("namespace", "pod"):
        if not _NAME.fullmatch(name := parameters.get(key, "")):
            raise InputError(f"{key}={name[:63]} is not a name of Kubernetes")
    namespace, name = parameters["namespace"], parameters["pod"]
    try:
        pod = await connection.get(types.Pod, namespace, name)
    except errors.StatusError as error:
        if error.code != 404:
            raise
        raise InputError(f"namespace {namespace} has no pod {name}") from error
    rules = live.current.rules

    def decide(now: types.Pod) -> finished.ProxyDecision:
        return finished.decide(now, rules)

    decision = decide(pod)
    told = decision.to_answer(pod)
    if decision.action is finished.Action.STOP:
        outcome = await _stop_both_ways(connection, pod, decision, decide)
        told = dataclasses.replace(
            told, result=outcome.result, transport=outcome.transport, detail=outcome.detail
        )
    return told


async def _stop_both_ways(
    connection: client.Client, pod: types.Pod, decision: finished.ProxyDecision, decide: Decide
) -> Outcome:
    first = await stop(connection, pod, decision, Transport.PORT_FORWARD, decide)
    way = choose_transport(first)
    if way is first.transport:
        return first
    cut_off = first.result is Result.UNANSWERED
    if cut_off:
        # The proxy has most likely ended, and the next try reads the pod first.
        await asyncio.sleep(CATCH_UP)
    second = await stop(connection, pod, decision, way, decide)
    if cut_off and second.result in (Result.CHANGED, Result.GONE):
        return Outcome(Result.ACKNOWLEDGED, first.transport)
    return second

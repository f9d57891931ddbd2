"""Stop the proxy of one pod because the charm asks for it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping

from integrator_contract import answers, schema
from sidecar_lifecycle.decide import finished, proxy_answer
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell.kube import client
from sidecar_lifecycle.shell.settings import Live

from . import stop, stops


async def answer(
    connection: client.Client, live: Live, parameters: Mapping[str, str]
) -> answers.Stopped:
    """Stop the proxy of `pod` in `namespace` now, if the rules say that it may end.

    It is stopped also while proxy-shutdown is off.
    """
    pod = await connection.get(types.Pod, parameters["namespace"], parameters["pod"])
    rules = live.current.rules

    def decide(now: types.Pod) -> finished.Decision:
        return finished.finished(now, rules)

    decision = decide(pod)
    told = proxy_answer.answer(pod, decision)
    if decision.action is finished.Action.STOP:
        outcome = await _stop(connection, pod, decision, decide)
        told = dataclasses.replace(
            told, result=outcome.result, transport=outcome.transport, detail=outcome.detail
        )
    return answers.Stopped(contract=schema.SCHEMA, proxy=told)


async def _stop(
    connection: client.Client, pod: types.Pod, decision: finished.Decision, decide: stop.Decide
) -> stop.Outcome:
    """Try one way, and the other one where the first fails."""
    stopper = stop.Stopper(connection)
    first = await stopper.stop(pod, decision, stop.Transport.PORT_FORWARD, decide)
    cut_off = first.result is stop.Result.UNANSWERED
    if cut_off:
        # It has most likely ended, and the next try looks first.
        await asyncio.sleep(stops.CATCH_UP)
    way = stop.next_transport(first, frozenset())
    if way is first.transport or not (first.failed or cut_off):
        return first
    second = await stopper.stop(pod, decision, way, decide)
    if cut_off and second.result in (stop.Result.CHANGED, stop.Result.GONE):
        return stop.Outcome(stop.Result.ACKNOWLEDGED, first.transport)
    return second

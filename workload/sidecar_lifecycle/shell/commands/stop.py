"""`sidecar-lifecycle stop`: stop the proxy of one pod now, if the rules say that it may end."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json

from sidecar_lifecycle.decide import finished
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell import logs
from sidecar_lifecycle.shell.kube import client, errors
from sidecar_lifecycle.shell.shutdown import stop, stops

from . import command, explain


def add_parser(subparsers: command.Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "stop",
        help="stop the proxy of a pod whose payload has ended",
        **command.texts(
            "Stop the proxy of one pod now, also while proxy-shutdown is off, and print the result"
            " as JSON. A pod whose payload runs, or that opts out, is left alone.",
            "sidecar-lifecycle stop training-worker-0 --namespace alice --settings settings.json",
        ),
    )
    parser.add_argument("pod", metavar="POD")
    parser.add_argument("--namespace", required=True, metavar="NS")
    command.add_settings(parser)
    parser.set_defaults(main=main)


def main(arguments: argparse.Namespace) -> int:
    """Stop it, and print what became of it."""
    logs.configure("warning")
    where = f"{arguments.namespace}/{arguments.pod}"
    try:
        pod, decision, outcome = asyncio.run(_run(arguments))
    except errors.KubeError as error:
        raise command.InputError(f"{where}: {error}") from error
    except errors.NoAccess as error:
        raise command.InputError(str(error)) from error
    answer = explain.answer(pod, decision)
    if outcome is not None:
        answer = dataclasses.replace(
            answer,
            result=outcome.result,
            transport=outcome.transport,
            detail=outcome.detail,
        )
    print(json.dumps(answer.line()))
    return 0


async def _run(
    arguments: argparse.Namespace,
) -> tuple[types.Pod, finished.Decision, stop.Outcome | None]:
    connection = client.connect()
    try:
        rules = command.read_settings(arguments.settings).rules
        return await _stop(connection, arguments.namespace, arguments.pod, rules)
    finally:
        await connection.close()


async def _stop(
    connection: client.Client, namespace: str, name: str, policy: finished.Policy
) -> tuple[types.Pod, finished.Decision, stop.Outcome | None]:
    data = await connection.request("GET", client.path(types.Pod, namespace, name))
    pod = client.answer(data, types.Pod)

    def decide(now: types.Pod) -> finished.Decision:
        return finished.finished(now, policy)

    decision = decide(pod)
    if decision.action is not finished.Action.STOP:
        return pod, decision, None
    stopper = stop.Stopper(connection)
    outcome = await stopper.stop(pod, decision, stop.Transport.PORT_FORWARD, decide)
    cut_off = outcome.result is stop.Result.UNANSWERED
    if cut_off:
        # It has most likely ended, and the next try looks first.
        await asyncio.sleep(stops.CATCH_UP)
    way = stop.next_transport(outcome, frozenset())
    if (outcome.failed or cut_off) and way is not outcome.transport:
        first, outcome = outcome, await stopper.stop(pod, decision, way, decide)
        if cut_off and outcome.result in (stop.Result.CHANGED, stop.Result.GONE):
            outcome = stop.Outcome(stop.Result.ACKNOWLEDGED, first.transport)
    return pod, decision, outcome

"""Lists of pods without a sidecar or with an old one, and requests to replace them."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Iterable, Mapping

import msgspec

from integrator_contract import answers
from integrator_contract.reasons import Reason
from sidecar_lifecycle.decide.convergence import facts, memory
from sidecar_lifecycle.model import types

from . import cluster as hands


async def list_uninjected(
    cluster: hands.ModelClient, parameters: Mapping[str, str]
) -> answers.Listing:
    """List the pods with a missing or an unwanted sidecar.

    With the parameter `stale`, list the model's pods with an old sidecar instead.
    """
    is_stale = "stale" in parameters
    summary, rows = await _list_rows(cluster, stale=is_stale)
    elsewhere = [] if is_stale else await cluster.list_uninjected_elsewhere()
    rows = sorted(rows, key=lambda row: row.name)
    summary = dataclasses.replace(summary, reported=summary.reported + len(elsewhere))
    return _make_listing(cluster, rows, elsewhere, summary)


async def restart_pods(
    cluster: hands.ModelClient, parameters: Mapping[str, str]
) -> answers.Listing:
    """Ask the leader's service to replace pods, also while restart-pods is manual.

    The parameter `stale` selects pods with an old sidecar. `dry-run` lists the pods without a
    request. `force` also replaces pods beside unready ones or rejected in a dry run. In the answer
    the fixable pods are those to be replaced.
    """
    summary, rows = await _list_rows(cluster, stale="stale" in parameters)
    chosen = [
        dataclasses.replace(each, reason=Reason.REQUESTED, message=each.stale or "to be replaced")
        for each in rows
        if each.fixable and not each.terminating
    ]
    if chosen and "dry-run" not in parameters:
        request = memory.Request(
            id=uuid.uuid4().hex,
            at=time.time(),
            uids=tuple(each.uid for each in chosen),
            force="force" in parameters,
        )
        await cluster.write_entry(memory.REQUEST, msgspec.json.encode(request).decode())
    others = [each for each in rows if not each.fixable]
    return _make_listing(cluster, [*chosen, *others], (), summary)


async def _list_rows(
    cluster: hands.ModelClient, *, stale: bool
) -> tuple[answers.Summary, list[facts.Replica]]:
    """Return the plan of the controller, without its dry runs."""
    stored, pods = await cluster.read_memory(), await cluster.list_objects(types.Pod)
    moves, _ = await hands.decide_moves(cluster, pods, stored, {}, cluster.settings.proxy)
    # The word covers only the model, because the service that notifies the charm does, too.
    summary = dataclasses.replace(moves.summary, word=moves.summary.digest())
    if not stale:
        return summary, moves.rows
    return summary, [
        dataclasses.replace(each, reason=Reason.OLD_PROXY, message=each.stale)
        for each in moves.look.replicas
        if each.stale and not each.terminating
    ]


def _make_listing(
    cluster: hands.ModelClient,
    replicas: Iterable[facts.Replica],
    elsewhere: Iterable[answers.PodAnswer],
    summary: answers.Summary,
) -> answers.Listing:
    found = (
        answers.PodAnswer(
            namespace=cluster.settings.model,
            name=each.name,
            workload=each.workload,
            fixable=each.fixable,
            reason=each.reason,
            message=each.message,
        )
        for each in replicas
    )
    return answers.Listing(pods=(*found, *elsewhere), summary=summary)

"""Pods without their sidecar or with an old one: listed, or asked to be replaced."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Iterable, Mapping

import msgspec

from integrator_contract import answers, schema
from integrator_contract.reasons import Reason
from sidecar_lifecycle.decide.convergence import memory, plan

from . import cluster as hands
from . import controller


async def uninjected(cluster: hands.Cluster, parameters: Mapping[str, str]) -> answers.Listing:
    """List the pods that should have a sidecar and have none, and those with one unwanted.

    The parameter `stale` asks for pods of the model with an old sidecar instead.
    """
    is_stale = "stale" in parameters
    summary, rows = await _look(cluster, stale=is_stale)
    elsewhere = [] if is_stale else await cluster.elsewhere()
    rows = sorted(rows, key=lambda row: row.replica.name)
    summary = dataclasses.replace(summary, reported=summary.reported + len(elsewhere))
    return _listing(cluster, rows, elsewhere, summary)


async def restart(cluster: hands.Cluster, parameters: Mapping[str, str]) -> answers.Listing:
    """Ask the leader's service to replace pods, also while restart-pods is manual.

    Of the parameters, `stale` is about pods with an old sidecar, `dry-run` asks for nothing, and
    `force` has pods replaced whose successor a dry run shows to be refused. Of the pods that are
    returned the fixable ones are those to be replaced.
    """
    summary, rows = await _look(cluster, stale="stale" in parameters)
    chosen = [each.replica for each in rows if each.replica.fixable]
    chosen = [each for each in chosen if not each.terminating]
    if chosen and "dry-run" not in parameters:
        request = memory.Request(
            id=uuid.uuid4().hex,
            at=time.time(),
            uids=tuple(each.uid for each in chosen),
            force="force" in parameters,
        )
        await cluster.remember_entry(memory.REQUEST, msgspec.json.encode(request).decode())
    asked = [plan.Row(each, Reason.REQUESTED, each.stale or "to be replaced") for each in chosen]
    others = [row for row in rows if not row.replica.fixable]
    return _listing(cluster, [*asked, *others], (), summary)


async def _look(
    cluster: hands.Cluster, *, stale: bool
) -> tuple[answers.Summary, tuple[plan.Row, ...]]:
    """Return what the controller would plan now, but for what it asked the apiserver."""
    remembered = memory.decode((await cluster.recall()).data)
    proxy = cluster.settings.proxy
    reading = await hands.read(cluster, await cluster.pods(), remembered, {}, proxy)
    decided = controller.make_plan(reading, remembered, cluster, time.time())
    # The service, which tells the charm of what is new, looks at the model alone.
    summary = dataclasses.replace(decided.summary, word=decided.summary.named())
    if not stale:
        return summary, decided.rows
    return summary, tuple(
        plan.Row(each, Reason.OLD_PROXY, each.stale)
        for each in reading.snapshot.replicas
        if each.stale and not each.terminating
    )


def _listing(
    cluster: hands.Cluster,
    rows: Iterable[plan.Row],
    elsewhere: Iterable[answers.PodAnswer],
    summary: answers.Summary,
) -> answers.Listing:
    found = (
        answers.PodAnswer(
            namespace=cluster.settings.model,
            name=row.replica.name,
            workload=row.replica.workload,
            fixable=row.replica.fixable,
            reason=row.reason,
            message=row.message,
        )
        for row in rows
    )
    return answers.Listing(contract=schema.SCHEMA, pods=(*found, *elsewhere), summary=summary)

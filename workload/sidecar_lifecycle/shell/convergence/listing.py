"""Pods without their sidecar or with an old one: listed, or asked to be replaced."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Iterable, Mapping

import msgspec

from integrator_contract import answers, schema
from integrator_contract.reasons import Reason
from sidecar_lifecycle.decide.convergence import memory, outcome, plan
from sidecar_lifecycle.shell.kube.client import Client
from sidecar_lifecycle.shell.settings import Live

from . import cluster as hands


@dataclasses.dataclass(frozen=True, slots=True)
class Lister:
    """Answers about the pods as they are now; the parameters are those of a request."""

    client: Client
    live: Live

    async def uninjected(self, parameters: Mapping[str, str]) -> answers.Listing:
        """List the pods that should have a sidecar and have none, and those with one unwanted.

        The parameter `stale` asks for pods of the model with an old sidecar instead.
        """
        cluster, is_stale = self._cluster(), "stale" in parameters
        decided, rows = await _look(cluster, stale=is_stale)
        elsewhere = [] if is_stale else await cluster.elsewhere()
        rows = sorted(rows, key=lambda row: row.replica.name)
        found = (*map(self._answer, rows), *elsewhere)
        return _listing(found, decided.summary, reported=len(elsewhere))

    async def restart(self, parameters: Mapping[str, str]) -> answers.Listing:
        """Ask the leader's service to replace pods, also while restart-pods is manual.

        Of the parameters, `stale` is about pods with an old sidecar, `dry-run` asks for nothing,
        and `force` has pods replaced whose successor a dry run shows to be refused. Of the pods
        that are returned the fixable ones are those to be replaced.
        """
        cluster = self._cluster()
        decided, rows = await _look(cluster, stale="stale" in parameters)
        fixable = [row.replica for row in rows if row.replica.fixable]
        chosen = [each for each in fixable if not each.terminating]
        if chosen and "dry-run" not in parameters:
            uids = tuple(each.uid for each in chosen)
            request = memory.Request(
                id=uuid.uuid4().hex, at=time.time(), uids=uids, force="force" in parameters
            )
            text = msgspec.json.encode(request).decode()
            await cluster.remember_entry(memory.REQUEST, text)
        asked = [
            outcome.Row(each, Reason.REQUESTED, each.stale or "to be replaced") for each in chosen
        ]
        others = [row for row in rows if not row.replica.fixable]
        return _listing(map(self._answer, (*asked, *others)), decided.summary)

    def _cluster(self) -> hands.Cluster:
        return hands.Cluster(self.client, self.live)

    def _answer(self, row: outcome.Row) -> answers.PodAnswer:
        return answers.PodAnswer(
            namespace=self.live.current.model,
            name=row.replica.name,
            workload=row.replica.workload,
            fixable=row.replica.fixable,
            reason=row.reason,
            message=row.message,
        )


async def _look(
    cluster: hands.Cluster, *, stale: bool
) -> tuple[outcome.Plan, tuple[outcome.Row, ...]]:
    """Return what the controller would plan now, but for what it asked the apiserver."""
    settings = cluster.settings
    remembered = memory.decode((await cluster.recall()).data)
    reading = await hands.read(cluster, await cluster.pods(), remembered, {}, settings.proxy)
    decided = plan.plan(
        reading.snapshot,
        remembered,
        mode=settings.restart_pods,
        limits=outcome.Limits(max_unavailable=settings.restart_max_unavailable),
        now=time.time(),
    )
    if not stale:
        return decided, decided.rows
    return decided, tuple(
        outcome.Row(each, Reason.OLD_PROXY, each.stale)
        for each in reading.snapshot.replicas
        if each.stale and not each.terminating
    )


def _listing(
    pods: Iterable[answers.PodAnswer], summary: answers.Summary, *, reported: int = 0
) -> answers.Listing:
    # The service, which tells the charm of what is new, looks at the model alone.
    whole = dataclasses.replace(
        summary, reported=summary.reported + reported, word=summary.named()
    )
    return answers.Listing(contract=schema.SCHEMA, pods=tuple(pods), summary=whole)

"""The reconciler of convergence: watch, plan, store the plan, try by dry run, evict."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field

import structlog

from integrator_contract import answers, names, refusals
from integrator_contract.reasons import Reason
from sidecar_lifecycle.decide import eligible, mutate
from sidecar_lifecycle.decide.convergence import facts, memory
from sidecar_lifecycle.decide.convergence.plan import Moves
from sidecar_lifecycle.model import resources, types
from sidecar_lifecycle.shell import metrics
from sidecar_lifecycle.shell.kube import errors, events
from sidecar_lifecycle.shell.kube.client import Client
from sidecar_lifecycle.shell.settings import Live

from . import cluster as hands

log = structlog.get_logger(__name__)

RESYNC = 30.0
"""Seconds until a reconciliation without an event."""
MOVING = 5.0
"""The same while pods are being replaced, or wait for a problem that passes by itself."""
PACE = 0.1
"""Minimum of seconds between two reconciliations, so that a burst of events causes one."""
IDLE_PACE = 2.0
"""The same while no pod has to be replaced."""
ASKED_AT_ONCE = 8
"""Limit of concurrent dry runs, as each one calls the injector."""
BUDGET_RETRY = 10.0
"""Seconds to wait for a PodDisruptionBudget if the API server sends no Retry-After."""
REFUSED_RETRY = 60.0
LONGEST_APPLIED = 256
"""Limit of the annotation with the changes at a pod's creation; all known ones fit in it."""


@dataclass(slots=True)
class ConvergenceController:
    """Reconciles the model; a decision is stored in the ConfigMap before it is carried out."""

    cluster: hands.ModelClient
    recorder: events.Recorder
    progress: Callable[[answers.Summary], None]
    pods: dict[str, types.Pod] = field(default_factory=dict[str, types.Pod])
    """By UID."""
    synced: bool = False
    """Whether all pods have been listed."""
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    trials: dict[str, facts.Trial] = field(default_factory=dict[str, facts.Trial])
    last: answers.Summary | None = None

    async def reconcile(self) -> float:
        """Plan and, on the leader, act; return the seconds until the next reconciliation."""
        stored = await self.cluster.read_memory()
        moves, scope = await hands.decide_moves(
            self.cluster, list(self.pods.values()), stored, self.trials
        )
        has_work = moves.ask or moves.evict or _has_changed(moves, stored)
        acting = self.cluster.settings.leader and has_work
        if acting:
            # The watch may lag behind, so the pods are listed before the leader acts.
            pods = await self.cluster.list_objects(types.Pod)
            moves, scope = await hands.decide_moves(self.cluster, pods, stored, self.trials)
            moves = await self._carry_out(moves, scope, stored)
        # Drop deleted workloads, or they would accumulate in this long-running process.
        for workload in self.trials.keys() - moves.look.desired.keys():
            del self.trials[workload]
        summary = self._publish_summary(moves)
        if acting and (moves.ask or moves.evict):
            return 0.0
        is_moving = summary.converging and all(each.passing for each in summary.troubles)
        return MOVING if is_moving else RESYNC

    async def _carry_out(
        self, moves: Moves, scope: eligible.Scope, stored: resources.ConfigMap
    ) -> Moves:
        """Carry out the moves, and return what is left of them after rejected evictions."""
        stored = await self._store_memory(moves, stored)
        for each in moves.held:
            log.info("held", workload=each.workload, reason=each.reason, why=each.message)
            pod = self.cluster.name_pod(each)
            self.recorder.record(pod, Reason(each.reason), each.message, "Warning")
        at_once = asyncio.Semaphore(ASKED_AT_ONCE)

        async def ask(replica: facts.Replica) -> None:
            async with at_once:
                trial = await self.cluster.try_replacement(replica, scope)
            self.trials[replica.workload] = trial
            log.debug("asked the injector", workload=replica.workload, reason=trial.reason)

        # A trial is valid for seconds. Hundreds in sequence would take longer.
        await asyncio.gather(*map(ask, moves.ask))
        for replica in moves.evict:
            if self.cluster.settings.leader:
                moves = await self._evict(replica, moves)
                stored = await self._store_memory(moves, stored)
        return moves

    async def _store_memory(
        self, moves: Moves, stored: resources.ConfigMap
    ) -> resources.ConfigMap:
        if not _has_changed(moves, stored):
            return stored
        data = {**stored.data, memory.STATE: memory.encode(moves.memory)}
        return await self.cluster.write_memory(stored, data)

    async def _evict(self, replica: facts.Replica, moves: Moves) -> Moves:
        """Evict a pod whose round is stored; a rejection ends the round and may add a hold."""
        pod = f"{self.cluster.settings.model}/{replica.name}"
        try:
            await self.cluster.evict(replica)
        except errors.StatusError as error:
            result, hold = _judge_refusal(error, self.cluster.clock.now())
            metrics.EVICTIONS.labels(result).inc()
            log.warning("not evicted", pod=pod, result=result, error=str(error))
            if result == "error":
                return moves
            return moves.without_round(replica.workload, hold)
        except errors.Unreachable as error:
            # The watch will show whether the pod was evicted, so the round is kept.
            metrics.EVICTIONS.labels("unknown").inc()
            log.warning("eviction got no answer", pod=pod, error=str(error))
            return moves
        metrics.EVICTIONS.labels("evicted").inc()
        reason, why = _explain_eviction(replica)
        log.info("evicted", pod=pod, workload=replica.workload, why=why)
        is_without = reason in (Reason.SIDECAR_LEFT, Reason.SIDECAR_UNWANTED)
        self.recorder.record(
            self.cluster.name_pod(replica),
            reason,
            f"Evicted ({why}): {replica.workload} creates it again "
            f"{'without' if is_without else 'with'} a sidecar",
        )
        return moves

    def _publish_summary(self, moves: Moves) -> answers.Summary:
        summary = moves.summary
        applied = (pod.metadata.annotations.get(names.APPLIED, "") for pod in self.pods.values())
        reasons = collections.Counter(row.reason for row in moves.rows)
        set_gauges(reasons, summary.in_mesh, len(moves.memory.rounds), applied)
        if summary != self.last:
            self.last = summary
            self.progress(summary)
        return summary

    async def run(self) -> None:
        """Reconcile after each change until cancelled."""
        failures = 0
        while True:
            self.woken.clear()
            pause = RESYNC
            try:
                with self.cluster.fence.isolate("converge", self.cluster.model_namespace):
                    if self.synced:
                        pause = await self.reconcile()
                    failures = 0
            except hands.Conflict as error:
                log.debug("another process wrote convergence's memory", error=str(error))
                pause = 0.0
            except errors.KubeError as error:
                failures += 1
                log.warning("convergence interrupted", error=str(error))
                pause = min(RESYNC, 2.0**failures)
            idle = self.last is not None and self.last.converging == 0
            clock = self.cluster.clock
            await clock.wait(asyncio.Event(), IDLE_PACE if idle else PACE)
            await clock.wait(self.woken, pause)

    async def follow_pods(self) -> None:
        """Keep `pods` up to date."""
        async for change in self.cluster.watch(types.Pod).changes():
            if change.kind == "synced":
                self.synced = True
            elif change.object is not None:
                uid = change.object.metadata.uid
                self.pods.pop(uid, None)
                if change.kind != "deleted":
                    self.pods[uid] = change.object
            if self.synced:
                self.woken.set()

    async def wake(self, changes: AsyncIterator[object]) -> None:
        """Reconcile after each change of something other than pods."""
        async for _ in changes:
            self.woken.set()


def _has_changed(moves: Moves, stored: resources.ConfigMap) -> bool:
    empty = memory.encode(memory.Memory())
    return memory.encode(moves.memory) != stored.data.get(memory.STATE, empty)


def set_gauges(
    reasons: collections.Counter[str], in_mesh: int, rounds: int, applied: Iterable[str]
) -> None:
    """Set the gauges from the counts of a plan and from the pods' annotations."""
    # Any creator of a pod can set the annotation, so only known changes become labels.
    changes = collections.Counter(
        change
        for value in applied
        if len(value) <= LONGEST_APPLIED
        for change in value.split(",")
        if change in mutate.CHANGES
    )
    for gauge, counts in ((metrics.UNINJECTED, reasons), (metrics.APPLIED, changes)):
        gauge.clear()
        for label, count in counts.items():
            gauge.labels(label).set(count)
    metrics.IN_MESH.set(in_mesh)
    metrics.ROUNDS.set(rounds)


def _explain_eviction(replica: facts.Replica) -> tuple[Reason, str]:
    if replica.fault == "unwanted":
        return Reason.SIDECAR_UNWANTED, replica.message
    if replica.fault == "order":
        return Reason.WRONG_ORDER, replica.message
    if replica.in_mesh:
        return Reason.PROXY_RENEWED, "it was asked for"
    if replica.reason == Reason.SIDECAR_LEFT.value:
        return Reason.SIDECAR_LEFT, replica.message
    return Reason.SIDECAR_MISSING, f"not in the mesh, though {replica.message}"


def _judge_refusal(error: errors.StatusError, now: float) -> tuple[str, memory.Hold | None]:
    """Return the result for the metric, and the hold of the workload."""

    def hold(reason: Reason, message: str, seconds: float) -> memory.Hold:
        return memory.Hold(reason=reason, message=message, since=now, until=now + seconds)

    refused = refusals.read_refusal(error.code, error.message)
    if refused is None:
        if error.code in (404, 409):
            return "gone" if error.code == 404 else "replaced", None
        if error.code == 429:
            seconds = error.retry_after or BUDGET_RETRY
            return "budget", hold(Reason.DISRUPTION_BUDGET, error.message, seconds)
        if error.code == 403:
            message = f"not allowed to create pods/eviction: {error.message}"
            return "forbidden", hold(Reason.FORBIDDEN, message, REFUSED_RETRY)
        if error.code >= 500 and "PodDisruptionBudget" not in error.message:
            return "error", None
    message = str(refused or error.message)
    return "refused", hold(Reason.EVICTION_REFUSED, message, REFUSED_RETRY)


async def run(
    client: Client,
    live: Live,
    *,
    progress: Callable[[answers.Summary], None] = lambda _: None,
    recorder: events.Recorder | None = None,
    clock: hands.Clock | None = None,
) -> None:
    """Converge the model until cancelled; only the leader acts, and all units count.

    `progress` is called when the counts change.
    """

    async def converge(joined: bool) -> None:
        set_gauges(collections.Counter(), 0, 0, ())
        if not joined:
            return
        cluster = hands.ModelClient(client, live, clock or hands.Clock())
        controller = ConvergenceController(
            cluster=cluster,
            recorder=recorder or events.Recorder(client),
            progress=progress,
        )
        # Another leader or a request for restarts may write the ConfigMap.
        fields = f"metadata.name={cluster.memory_name}"
        memories = cluster.watch(resources.ConfigMap, fields=fields)
        async with asyncio.TaskGroup() as group:
            group.create_task(controller.follow_pods(), name="convergence-pods")
            group.create_task(controller.wake(memories.changes()), name="convergence-memory")
            settings = live.changes(lambda settings: settings)
            group.create_task(controller.wake(settings), name="convergence-settings")
            group.create_task(controller.run(), name="convergence")

    await live.restart(lambda settings: settings.joined, converge)

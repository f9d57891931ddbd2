"""Carries the plan out: watch, decide, remember, ask, evict."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import prometheus_client
import structlog

from integrator_contract import answers, names, refusals
from integrator_contract.reasons import Reason
from sidecar_lifecycle.decide.convergence import facts, memory, outcome, plan
from sidecar_lifecycle.model import resources, types
from sidecar_lifecycle.shell import settings as options
from sidecar_lifecycle.shell.kube import errors, events
from sidecar_lifecycle.shell.kube.client import Client
from sidecar_lifecycle.shell.kube.watch import watch

from . import cluster as hands
from . import metrics

log = structlog.get_logger(__name__)

RESYNC = 30.0
"""Seconds after which we look again though nothing was reported."""
PACE = 0.1
"""Seconds between two looks, so that a burst of events costs one."""
STEPS = 2
"""Of one look: to ask the injector, and to evict by its answer."""
IDLE_PACE = 2.0
"""The same while there is nothing to converge."""
ASKED_AT_ONCE = 8
"""Dry runs under way: each passes the injector."""
BUDGET_RETRY = 10.0
"""Seconds to wait for a PodDisruptionBudget when the apiserver does not say how long."""
REFUSED_RETRY = 60.0


class Clock:
    """The time that everybody else has, too."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        """Return when the event is set, or after so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await event.wait()


@dataclass(slots=True)
class Controller:
    """One look after another; what was decided is written down before it is done."""

    cluster: hands.Cluster
    recorder: events.Recorder
    figures: metrics.Metrics
    progress: Callable[[answers.Summary], None]
    clock: Clock
    pods: dict[tuple[str, str], types.Pod] = field(
        default_factory=dict[tuple[str, str], types.Pod]
    )
    synced: bool = False
    """All pods have been reported."""
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    answers: dict[str, facts.Answer] = field(default_factory=dict[str, facts.Answer])
    last: answers.Summary | None = None

    async def look(self) -> float | None:
        """Decide and, if we lead, act. Return when to look again; None: at the usual time."""
        stored = await self.cluster.recall()
        decided, reading = await self._decide(list(self.pods.values()), stored)
        acting = self.cluster.settings.leader and self._has_work(decided, stored)
        for _ in range(STEPS if acting else 0):
            # The watch may be behind: what is acted on is read now.
            decided, reading = await self._decide(await self.cluster.pods(), stored)
            stored = await self._act(decided, reading, stored)
            if not decided.ask:
                break
        self._show(decided)
        if acting and (decided.ask or decided.evict):
            return self.clock.now()
        return decided.wake_at

    async def _decide(
        self, pods: list[types.Pod], stored: resources.ConfigMap
    ) -> tuple[outcome.Plan, hands.Reading]:
        remembered = memory.decode(stored.data)
        reading = await hands.read(self.cluster, pods, remembered, self.answers)
        # Workloads come and go, and this process stays.
        for workload in self.answers.keys() - reading.snapshot.desired.keys():
            del self.answers[workload]
        settings = self.cluster.settings
        limits = outcome.Limits(max_unavailable=settings.restart_max_unavailable)
        now = self.clock.now()
        mode = settings.restart_pods
        return plan.plan(reading.snapshot, remembered, mode=mode, limits=limits, now=now), reading

    def _has_work(self, decided: outcome.Plan, stored: resources.ConfigMap) -> bool:
        return bool(decided.ask or decided.evict) or self._changed(decided, stored)

    def _changed(self, decided: outcome.Plan, stored: resources.ConfigMap) -> bool:
        empty = memory.encode(memory.Memory())
        return memory.encode(decided.memory) != stored.data.get(memory.STATE, empty)

    async def _act(
        self, decided: outcome.Plan, reading: hands.Reading, stored: resources.ConfigMap
    ) -> resources.ConfigMap:
        if self._changed(decided, stored):
            stored = await self._remember(decided.memory, stored)
        await self._tell(decided.news, reading)
        for first in range(0, len(decided.ask), ASKED_AT_ONCE):
            # An answer counts for seconds only: hundreds, one by one, would outlast it.
            asked = decided.ask[first : first + ASKED_AT_ONCE]
            found = await asyncio.gather(
                *(self.cluster.ask(each, reading.scope) for each in asked)
            )
            for replica, answer in zip(asked, found, strict=True):
                self.answers[replica.workload] = answer
                log.debug("asked the injector", workload=replica.workload, verdict=answer.verdict)
        remembered = decided.memory
        for replica in decided.evict:
            after = await self._evict(replica, reading, remembered)
            if after != remembered:
                remembered = after
                stored = await self._remember(remembered, stored)
        return stored

    async def _remember(
        self, remembered: memory.Memory, stored: resources.ConfigMap
    ) -> resources.ConfigMap:
        data = {**stored.data, memory.STATE: memory.encode(remembered)}
        return await self.cluster.remember(stored, data)

    async def _evict(
        self, replica: facts.Replica, reading: hands.Reading, remembered: memory.Memory
    ) -> memory.Memory:
        """Evict a pod whose round is remembered; return what to remember after a refusal."""
        if not self.cluster.settings.leader:
            return remembered
        pod = f"{self.cluster.settings.model}/{replica.name}"
        try:
            await self.cluster.evict(replica)
        except errors.StatusError as error:
            result, hold = _refusal(error, self.clock.now())
            self.figures.evicted(result)
            log.warning("not evicted", pod=pod, result=result, error=str(error))
            return _called_off(remembered, replica.workload, hold, keep=result == "error")
        except errors.Unreachable as error:
            # Whether it happened will show in the pod: the round stays.
            self.figures.evicted("unknown")
            log.warning("eviction got no answer", pod=pod, error=str(error))
            return remembered
        self.figures.evicted("evicted")
        reason, why = _reason(replica)
        log.info("evicted", pod=pod, workload=replica.workload, why=why)
        self.recorder.record(
            reading.pods[replica.uid],
            reason,
            f"Evicted ({why}): {replica.workload} creates it again "
            f"{'without' if reason in _WITHOUT else 'with'} a sidecar",
        )
        return remembered

    async def _tell(self, news: tuple[outcome.News, ...], reading: hands.Reading) -> None:
        for each in news:
            log.info(each.kind, workload=each.workload, reason=each.reason, why=each.message)
            pod = reading.pods.get(each.replica.uid) if each.replica else None
            if pod is not None:
                reason = Reason(each.reason)
                self.recorder.record(pod, reason, each.message, "Warning")

    def _show(self, decided: outcome.Plan) -> None:
        summary = decided.summary
        self.figures.show(decided.reasons(), summary.in_mesh, len(decided.memory.rounds))
        self.figures.show_applied(
            pod.metadata.annotations.get(names.APPLIED, "") for pod in self.pods.values()
        )
        if summary != self.last:
            self.last = summary
            self.progress(summary)

    async def run(self) -> None:
        """Look whenever something changes, until cancelled."""
        failures = 0
        while True:
            self.woken.clear()
            until: float | None = None
            try:
                with self.cluster.fence.around("converge", self.cluster.itself):
                    if self.synced:
                        until = await self.look()
                    failures = 0
            except hands.Conflict as error:
                log.debug("another process wrote convergence's memory", error=str(error))
                until = self.clock.now()
            except errors.KubeError as error:
                failures += 1
                log.warning("convergence interrupted", error=str(error))
                until = self.clock.now() + min(RESYNC, 2.0**failures)
            now = self.clock.now()
            idle = self.last is not None and self.last.converging == 0
            await self.clock.wait(asyncio.Event(), IDLE_PACE if idle else PACE)
            await self.clock.wait(self.woken, min(until or now + RESYNC, now + RESYNC) - now)

    async def follow_pods(self, client: Client) -> None:
        """Keep `pods` as the apiserver has them."""
        async for change in watch(
            client,
            types.Pod,
            namespace=self.cluster.settings.model,
            fence=self.cluster.fence,
            is_patient=True,
        ):
            if change.kind == "synced":
                self.synced = True
            elif change.object is not None:
                key = (change.object.metadata.namespace or "", change.object.metadata.name)
                if change.kind == "deleted":
                    self.pods.pop(key, None)
                else:
                    self.pods[key] = change.object
            if self.synced:
                self.woken.set()

    async def follow_settings(self) -> None:
        """Look when a setting changes."""
        async for _ in self.cluster.live.changes(options.but_facts):
            self.woken.set()

    async def follow_memory(self, client: Client) -> None:
        """Look when another leader, or somebody with a request, wrote the memory."""
        following = watch(
            client,
            resources.ConfigMap,
            namespace=self.cluster.settings.model,
            fields=f"metadata.name={self.cluster.memory_name}",
            is_patient=True,
        )
        async for _ in following:
            self.woken.set()


_WITHOUT = (Reason.SIDECAR_LEFT, Reason.SIDECAR_UNWANTED)
"""Why a pod is evicted that comes back without a sidecar."""


def _reason(replica: facts.Replica) -> tuple[Reason, str]:
    """Say why a pod is replaced."""
    if replica.fault == "unwanted":
        return Reason.SIDECAR_UNWANTED, replica.message
    if replica.fault == "order":
        return Reason.WRONG_ORDER, replica.message
    if replica.in_mesh:
        return Reason.PROXY_RENEWED, "it was asked for"
    if replica.reason == Reason.SIDECAR_LEFT.value:
        return Reason.SIDECAR_LEFT, replica.message
    return Reason.SIDECAR_MISSING, f"not in the mesh, though {replica.message}"


def _refusal(error: errors.StatusError, now: float) -> tuple[str, memory.Hold | None]:
    """Return the result to count, and how long to leave the workload alone."""
    refused = refusals.read(error.code, error.message)
    if refused is None:
        if error.code in (404, 409):
            return "gone" if error.code == 404 else "replaced", None
        if error.code == 429:
            until = now + (error.retry_after or BUDGET_RETRY)
            return "budget", _hold(Reason.DISRUPTION_BUDGET, error.message, now, until)
        if error.code == 403:
            message = f"not allowed to create pods/eviction: {error.message}"
            return "forbidden", _hold(Reason.FORBIDDEN, message, now, now + REFUSED_RETRY)
        if error.code >= 500 and "PodDisruptionBudget" not in error.message:
            return "error", None
    message = str(refused or error.message)
    return "refused", _hold(Reason.EVICTION_REFUSED, message, now, now + REFUSED_RETRY)


def _hold(reason: Reason, message: str, now: float, until: float) -> memory.Hold:
    return memory.Hold(reason=reason, message=message, since=now, until=until)


def _called_off(
    remembered: memory.Memory, workload: str, hold: memory.Hold | None, *, keep: bool
) -> memory.Memory:
    rounds = dict(remembered.rounds)
    holds = dict(remembered.holds)
    if not keep:
        rounds.pop(workload, None)
    if hold is not None:
        holds[workload] = hold
    return msgspec.structs.replace(remembered, rounds=rounds, holds=holds)


async def run(
    client: Client,
    live: options.Live,
    *,
    registry: prometheus_client.CollectorRegistry,
    progress: Callable[[answers.Summary], None] = lambda _: None,
    recorder: events.Recorder | None = None,
    clock: Clock | None = None,
) -> None:
    """Converge the model until cancelled; only who leads acts, all count.

    The progress is told when the counts change.
    """
    figures = metrics.Metrics(registry)
    clock = clock or Clock()

    async def converge(joined: bool) -> None:
        figures.show({}, 0, 0)
        figures.show_applied(())
        if not joined:
            return
        controller = Controller(
            cluster=hands.Cluster(client, live, clock.now),
            recorder=recorder or events.Recorder(client, instance=live.current.application),
            figures=figures,
            progress=progress,
            clock=clock,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(controller.follow_pods(client), name="convergence-pods")
            group.create_task(controller.follow_memory(client), name="convergence-memory")
            group.create_task(controller.follow_settings(), name="convergence-settings")
            group.create_task(controller.run(), name="convergence")

    await live.restart(lambda settings: settings.joined, converge)

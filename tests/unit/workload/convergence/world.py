"""A small model of a Kubernetes namespace with a mesh, whose events the test orders."""

import dataclasses
import itertools
from typing import Literal

import msgspec
from sidecar_lifecycle.decide.convergence import choice, facts, memory, plan

from integrator_contract import service
from integrator_contract.reasons import Reason

EPOCH = 1_000_000.0
BUDGET_PAUSE = 10.0

Mesh = Literal["up", "down", "gone", "open"]
"""istiod serves; is away, so that pods are refused; is uninstalled, so that they are created
without a sidecar; is away behind a webhook that somebody made to fail open."""


@dataclasses.dataclass
class Pod:
    name: str
    uid: str
    workload: str
    created: float
    injected: bool
    ready_since: float | None = None
    crash_looping: bool = False
    terminating: bool = False

    @property
    def ready(self):
        return self.ready_since is not None and not self.terminating


@dataclasses.dataclass
class Workload:
    name: str
    desired: int
    fixable: bool = True
    lies: bool = False
    """The dry run says that pods get a sidecar, and they do not."""
    skipped: bool = False
    """The injector leaves it out, and the dry run says so."""
    hangs: bool = False
    """No pod of it starts beside a sidecar."""
    budget: bool = True
    revision: str = "1"


def ailments(pod):
    """Say what keeps a pod from being Ready: its application, and the proxy beside it."""
    if pod.ready_since is not None:
        return ()
    reason = "CrashLoopBackOff" if pod.crash_looping else "ContainerCreating"
    found = [facts.Ailment("main", reason, hangs=pod.crash_looping)]
    return (*found, facts.Ailment("istio-proxy", reason)) if pod.injected else tuple(found)


class World:
    """The truth; `step` is what the controller does with it."""

    def __init__(self, workloads, *, max_unavailable="2", mode="auto"):
        self.now = EPOCH
        self.mesh: Mesh = "up"
        self.injector = 1
        """Which one it is; 0 for none."""
        self.mode = mode
        self.max_unavailable = max_unavailable
        self.workloads = {each.name: each for each in workloads}
        self.most = service.at_most(max_unavailable, len(self.workloads))
        """Workloads that may miss a pod because of us."""
        self.pods: dict[str, Pod] = {}
        self.state = ""
        self.request = ""
        self.trials: dict[str, facts.Trial] = {}
        self.owed: dict[str, int] = {}
        """Workloads that we took a Ready pod from, and how many were Ready before."""
        self.open: dict[str, set[str]] = {}
        """Workloads with an evicted pod and no replacement yet, and the pods they had."""
        self.paused: dict[str, float] = {}
        """Until when a workload's PodDisruptionBudget asked to be left alone."""
        self.evictions: list[Pod] = []
        self.uids = itertools.count()
        self.installations = itertools.count(2)
        self.last: plan.EvictionPlan | None = None

    # What the cluster does

    def create(self, workload, *, injected=False, ready=True, crash_looping=False, age=3600.0):
        uid = f"uid-{next(self.uids)}"
        ordinal = next(
            n
            for n in itertools.count()
            if not any(p.name == f"{workload.split('/')[1]}-{n}" for p in self.pods.values())
        )
        created = self.now - age
        crash_looping = crash_looping or (injected and self.workloads[workload].hangs)
        self.pods[uid] = Pod(
            f"{workload.split('/')[1]}-{ordinal}",
            uid,
            workload,
            created,
            injected,
            ready_since=created if ready and not crash_looping else None,
            crash_looping=crash_looping,
        )
        return self.pods[uid]

    def of(self, workload):
        return [each for each in self.pods.values() if each.workload == workload]

    def reconcile(self, name):
        """Do what the workload's own controller does: one pod more, or one less."""
        workload = self.workloads[name]
        live = [each for each in self.of(name) if not each.terminating]
        if len(live) < workload.desired:
            if self.mesh == "down":
                return
            injects = self.mesh == "up" and not workload.lies and not workload.skipped
            self.create(name, injected=injects, ready=False, age=0)
        elif len(live) > workload.desired:
            live[-1].terminating = True

    def turn(self, mesh):
        """Change what istiod does; one that is installed anew is another one."""
        if mesh == "gone":
            self.injector = 0
        elif self.injector == 0:
            self.injector = next(self.installations)
        self.mesh = mesh

    def finish(self, pod):
        del self.pods[pod.uid]

    def become_ready(self, pod):
        if pod.injected and self.workloads[pod.workload].hangs:
            return
        if not pod.terminating and pod.ready_since is None:
            pod.ready_since = self.now
            pod.crash_looping = False
        self.settle_debts()

    def settle_debts(self):
        for name, known in list(self.open.items()):
            live = [each for each in self.of(name) if not each.terminating]
            if len(live) < self.workloads[name].desired:
                continue
            if any(each.terminating and each in self.evictions for each in self.of(name)):
                continue
            fresh = [each for each in live if each.uid not in known]
            # Without a sidecar the replacement is an old one again, which the guard stops.
            waited = [each for each in fresh if each.injected]
            before = self.owed.get(name, 0)
            ready = sum(each.ready for each in live)
            if name not in self.owed or (
                ready >= min(self.workloads[name].desired, before)
                and all(each.ready for each in waited)
            ):
                self.owed.pop(name, None)
                del self.open[name]

    # What the controller does

    def forget(self):
        """Another process goes on: it knows only what was written down."""
        self.trials = {}

    def replica(self, pod):
        workload = self.workloads[pod.workload]
        return facts.Replica(
            name=pod.name,
            uid=pod.uid,
            created=pod.created,
            workload=pod.workload,
            fault="" if pod.injected else "missing",
            fixable=workload.fixable,
            reason="" if workload.fixable else "OwnedFurtherUp",
            ready_since=pod.ready_since,
            unready_since=pod.created,
            ailments=ailments(pod),
            terminating=pod.terminating,
            revision=workload.revision,
        )

    def decide(self):
        remembered = memory.decode(
            {memory.STATE: self.state or "{}", memory.REQUEST: self.request or "null"}
        )
        self.is_proven = bool(remembered.proven)
        self.last = choice.decide(
            plan.EvictionPlan(
                replicas=tuple(self.replica(each) for each in self.pods.values()),
                desired={each.name: each.desired for each in self.workloads.values()},
                fingerprint=str(self.injector),
                mesh="sidecar",
                is_served=True,
                trials=self.trials,
                remembered=remembered,
                mode=self.mode,
                max_unavailable=self.max_unavailable,
                now=self.now,
            )
        )
        return self.last

    def step(self, *, crash=False):
        """Look once; with `crash` the process ends after it wrote its memory."""
        decided = self.decide()
        self.state = memory.encode(decided.memory)
        if crash:
            self.forget()
            return decided
        for replica in decided.ask:
            self.trials[replica.workload] = self.trial(replica)
        for replica in decided.evict:
            self.evict(replica)
        return decided

    def trial(self, replica):
        reason = Reason.INJECTOR_SKIPS if self.workloads[replica.workload].skipped else None
        return facts.Trial(
            reason=reason if self.mesh == "up" else Reason.MESH_DOWN,
            message="",
            uid=replica.uid,
            at=self.now,
        )

    def evict(self, replica):
        self.settle_debts()
        pod = self.pods[replica.uid]
        workload = self.workloads[pod.workload]
        siblings = [each for each in self.of(pod.workload) if each is not pod]
        assert workload.fixable, f"{pod} is not ours"
        assert not pod.terminating
        is_given_up = self.now - pod.created >= plan.UNREADY_FOR
        assert pod.ready or pod.crash_looping or is_given_up
        if pod.ready:
            assert self.now - pod.ready_since >= plan.READY_FOR
        assert not any(each.terminating for each in siblings)
        assert self.now >= self.paused.get(pod.workload, 0), f"{pod.workload} asked for time"
        if not workload.budget:
            self.paused[pod.workload] = self.now + BUDGET_PAUSE
            remembered = memory.decode({memory.STATE: self.state})
            rounds = {k: v for k, v in remembered.rounds.items() if k != pod.workload}
            hold = memory.Hold(
                reason="DisruptionBudget",
                message="",
                since=self.now,
                until=self.now + BUDGET_PAUSE,
            )
            holds = {**remembered.holds, pod.workload: hold}
            after = msgspec.structs.replace(remembered, rounds=rounds, holds=holds)
            self.state = memory.encode(after)
            return
        if pod.ready and workload.desired > 1:
            assert any(each.ready for each in siblings), f"{pod} is the last Ready one"
        assert pod.workload not in self.open, f"{pod.workload} already misses a pod"
        if not self.is_proven:
            assert not self.open, f"{pod} is evicted beside the first of the model"
        assert not [each for each in self.pods.values() if self.hangs(each)]
        self.open[pod.workload] = {each.uid for each in self.of(pod.workload)}
        if pod.ready:
            self.owed[pod.workload] = sum(each.ready for each in self.of(pod.workload))
        assert len(self.owed) <= self.most, str(self.owed)
        pod.terminating = True
        self.evictions.append(pod)

    def hangs(self, pod):
        """Tell whether a pod that came in place of an evicted one cannot start."""
        known = self.open.get(pod.workload)
        fresh = known is not None and pod.uid not in known and not pod.terminating
        return fresh and pod.injected and pod.crash_looping and pod.workload in self.owed

    # The end of the story

    def calm(self, *, rounds=400):
        """Let everything that can happen by itself happen, until nothing does."""
        quiet = 0
        for _ in range(rounds):
            for pod in list(self.pods.values()):
                if pod.terminating:
                    self.finish(pod)
            for name in self.workloads:
                self.reconcile(name)
            for pod in list(self.pods.values()):
                self.become_ready(pod)
            self.settle_debts()
            before = (len(self.evictions), self.state)
            decided = self.step()
            quiet = 0 if (len(self.evictions), self.state) != before or decided.ask else quiet + 1
            self.now += 0.1 if decided.ask else 20.0
            if quiet > 10:
                return
        raise AssertionError("it does not come to rest")

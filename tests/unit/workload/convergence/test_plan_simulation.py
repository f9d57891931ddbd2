"""Every order of events: limits hold at each step, and it ends where it should.

What may never happen is asserted where an eviction is carried out (`Model.evict`): a forbidden
owner, a pod of the mesh, too many at once, a pod beside the first of the model, a workload's last
Ready pod, a budget asked again too soon. Where it ends is asserted after whatever happened: what
can be in the mesh is.
"""

import dataclasses
import itertools

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, note, settings
from sidecar_lifecycle.decide.convergence import choice, facts, memory, plan

from integrator_contract import service
from integrator_contract.reasons import Reason

BUDGET_PAUSE = 10.0


@dataclasses.dataclass
class Workload:
    name: str
    desired: int
    kind: str
    """`plain`; `foreign`, of another owner; `hangs`, whose pods never start beside a sidecar;
    `lies`, whose dry run has a sidecar and whose pods have none; or `skipped` by the injector."""
    has_budget: bool
    """Whether its PodDisruptionBudget allows an eviction."""
    is_ordered: bool
    """Whether it creates a pod only while all others are Ready, as lower ordinals are."""


CRASHES = (facts.Ailment("main", "CrashLoopBackOff", hangs=True),)
STARTS = (
    facts.Ailment("main", "ContainerCreating"),
    facts.Ailment("istio-proxy", "ContainerCreating"),
)
KINDS = ("plain", "plain", "plain", "foreign", "hangs", "lies", "skipped")


@dataclasses.dataclass
class Loss:
    """The replacement that a workload lacks since an eviction."""

    victim: facts.Replica
    known: set[str]
    """UIDs of its pods before."""
    ready: int
    """Its Ready pods before, if the victim was one of them."""


class Model:
    """A model in a mesh; chance decides what happens next."""

    def __init__(self, chance):
        self.chance = chance
        self.now = 1_000_000.0
        self.mesh = "up"
        """istiod is `up`; `down`, so that no pod is created; `gone`, so that new pods have no
        sidecar; or down behind a webhook that fails `open`."""
        self.injector = 1
        self.workloads = {}
        self.pods = {}
        self.state = memory.encode(memory.Memory(proven=chance.choice([(), ("sidecar",)])))
        self.trials = {}
        self.losses = {}
        self.paused = {}
        """Until when a budget asked to be left alone."""
        self.evictions = 0
        self.excused = 0
        """Evictions that outages and other hands may cost."""
        self.failed_open = False
        self.uids = itertools.count()
        for number in range(chance.randint(1, 6)):
            self.begin(f"StatefulSet/w{number}")
        self.max_unavailable = chance.choice(["1", "2", "3", "1%", "50%", "100%"])
        self.most = service.resolve_budget(self.max_unavailable, len(self.workloads))

    def begin(self, name):
        """Create a workload, whose pods may have a sidecar, and may be Ready."""
        chance = self.chance
        desired, kind = chance.randint(1, 4), chance.choice(KINDS)
        has_budget, is_ordered = chance.choice([True, False]), chance.choice([True, False])
        self.workloads[name] = Workload(name, desired, kind, has_budget, is_ordered)
        for _ in range(desired):
            has_sidecar, age = chance.choice([True, False, False]), chance.choice([90, 600])
            pod = self.create(name, injected=has_sidecar, age=age)
            match chance.choice(["ready", "ready", "starts", "crashes"]):
                case "ready" if self.can_become_ready(pod):
                    self.change(pod, ready_since=pod.created, ailments=())
                case "crashes":
                    self.change(pod, ailments=CRASHES)

    def create(self, name, *, injected, age=0):
        uid = str(next(self.uids))
        kind = self.workloads[name].kind
        pod = facts.Replica(
            name=f"{name.partition('/')[2]}-{uid}",
            uid=uid,
            created=self.now - age,
            unready_since=self.now - age,
            workload=name,
            fault="" if injected else "missing",
            fixable=kind != "foreign",
            reason="OwnedFurtherUp" if kind == "foreign" else "",
        )
        if injected and kind == "hangs":
            return self.change(pod, ailments=CRASHES)
        return self.change(pod, ailments=STARTS if injected else STARTS[:1])

    def change(self, pod, **values):
        self.pods[pod.uid] = dataclasses.replace(pod, **values)
        return self.pods[pod.uid]

    def change_one(self, is_apt, **values):
        """Change one pod of those that are apt, if there is one; tell whether."""
        apt = [pod for pod in self.pods.values() if is_apt(pod)]
        if apt:
            self.change(self.chance.choice(apt), **values)
        return bool(apt)

    def of(self, name):
        return [pod for pod in self.pods.values() if pod.workload == name]

    def any_workload(self):
        return self.workloads[self.chance.choice([*self.workloads])]

    # What happens.

    def controller_looks(self):
        for _ in range(self.chance.randint(1, 4)):
            self.look(crashes=self.chance.choice([True, False, False, False]))
            self.now += 0.3

    def time_passes(self):
        self.now += self.chance.choice([0.1, 1.0, 6.0, 35.0, 61.0, 700.0])

    def terminating_pods_go(self):
        for pod in [pod for pod in self.pods.values() if pod.terminating]:
            del self.pods[pod.uid]

    def workloads_reconcile(self):
        """Create a pod of each workload, or delete one, as its own controller does."""
        for name, workload in self.workloads.items():
            live = [pod for pod in self.of(name) if not pod.terminating]
            if len(live) > workload.desired:
                self.change(live[-1], terminating=True)
            elif len(live) < workload.desired and self.mesh != "down":
                injects = self.mesh == "up" and workload.kind not in ("lies", "skipped")
                self.create(name, injected=injects)

    def can_become_ready(self, pod):
        hangs = not pod.fault and self.workloads[pod.workload].kind == "hangs"
        return not (hangs or pod.terminating or pod.ready)

    def pods_become_ready(self):
        for pod in filter(self.can_become_ready, [*self.pods.values()]):
            self.change(pod, ready_since=self.now, ailments=())

    def pod_crashes(self):
        crash = {"ready_since": None, "unready_since": self.now, "ailments": CRASHES}
        self.change_one(lambda pod: not pod.terminating, **crash)

    def pod_is_deleted(self):
        self.excused += self.change_one(lambda pod: not pod.terminating, terminating=True)

    def workload_scales(self):
        self.any_workload().desired = self.chance.randint(0, 4)
        self.excused += 4

    def budget_changes(self):
        self.any_workload().has_budget = self.chance.choice([True, False])

    def mesh_changes(self, mesh=None):
        mesh = mesh or self.chance.choice(["up", "up", "down", "gone", "open"])
        self.excused += 4 * (mesh != self.mesh)
        self.failed_open |= mesh == "open"
        if self.mesh == "gone" != mesh:
            self.injector += 1
        self.mesh = mesh

    # What the controller does.

    def decide(self):
        return choice.decide(
            plan.Look(
                replicas=tuple(self.pods.values()),
                desired={each.name: each.desired for each in self.workloads.values()},
                ordered=frozenset(
                    each.name for each in self.workloads.values() if each.is_ordered
                ),
                fingerprint="" if self.mesh == "gone" else str(self.injector),
                mesh="sidecar",
                is_served=True,
                trials=self.trials,
                memory=memory.decode({memory.STATE: self.state}),
                mode="auto",
                max_unavailable=self.max_unavailable,
                now=self.now,
            )
        )

    def look(self, *, crashes=False):
        """Look once; a controller that crashes has written its memory."""
        decided = self.decide()
        self.state = memory.encode(decided.memory)
        if crashes:
            self.trials = {}
            return decided
        for pod in decided.ask:
            is_skipped = self.workloads[pod.workload].kind == "skipped"
            reason = Reason.INJECTOR_SKIPS if is_skipped else None
            if self.mesh != "up":
                reason = Reason.MESH_DOWN
            trial = facts.Trial(reason=reason, message="", uid=pod.uid, at=self.now)
            self.trials[pod.workload] = trial
        for pod in decided.evict:
            self.evict(pod, is_proven=bool(decided.look.memory.proven))
        return decided

    def evict(self, pod, *, is_proven):
        self.settle()
        name, workload = pod.workload, self.workloads[pod.workload]
        siblings = [each for each in self.of(name) if each.uid != pod.uid]
        assert workload.kind != "foreign"
        assert pod.fault, f"{pod} is in the mesh"
        assert not any(each.terminating for each in (pod, *siblings))
        if pod.ready:
            assert self.now - pod.ready_since >= plan.READY_FOR
        else:
            assert pod.ailments[0].hangs or self.now - pod.created >= plan.UNREADY_FOR
        assert self.now >= self.paused.get(name, 0), f"{name} asked for time"
        if not workload.has_budget:
            self.pause(name)
            return
        assert len(siblings) + 1 >= workload.desired, f"{name} lacks a pod already"
        if pod.ready:
            assert all(each.ready for each in siblings), f"{pod} goes beside one that is not Ready"
        if workload.is_ordered:
            lower = [each for each in siblings if each.ordinal < pod.ordinal]
            assert all(each.ready for each in lower), f"{pod} would not be recreated"
        assert name not in self.losses, f"{name} already lacks a pod"
        assert is_proven or not self.losses, f"{pod} is evicted beside the first of the model"
        assert not any(map(self.is_hanging, self.pods.values()))
        ready = sum(each.ready for each in self.of(name)) if pod.ready else 0
        self.losses[name] = Loss(pod, {each.uid for each in self.of(name)}, ready)
        assert sum(loss.ready > 0 for loss in self.losses.values()) <= self.most
        self.change(pod, terminating=True)
        self.evictions += 1

    def pause(self, name):
        """Keep in mind, as the controller does, that a budget forbids an eviction."""
        until = self.paused[name] = self.now + BUDGET_PAUSE
        before = memory.decode({memory.STATE: self.state})
        rounds = {each: before.rounds[each] for each in before.rounds if each != name}
        hold = memory.Hold(reason="DisruptionBudget", message="", since=self.now, until=until)
        holds = {**before.holds, name: hold}
        self.state = memory.encode(msgspec.structs.replace(before, rounds=rounds, holds=holds))

    def is_hanging(self, pod):
        """Tell whether a replacement of a Ready pod cannot start."""
        loss = self.losses.get(pod.workload)
        is_new = loss is not None and loss.ready and pod.uid not in loss.known
        return is_new and not (pod.fault or pod.terminating or pod.ready) and pod.ailments[0].hangs

    def settle(self):
        """Forget the losses that are made up for."""
        self.losses = {name: loss for name, loss in self.losses.items() if self.lacks(name, loss)}

    def lacks(self, name, loss):
        live, desired = (
            [pod for pod in self.of(name) if not pod.terminating],
            self.workloads[name].desired,
        )
        if len(live) < desired or loss.victim.uid in self.pods:
            return True
        # A replacement without a sidecar is an old pod again.
        new = [pod for pod in live if pod.uid not in loss.known and not pod.fault]
        is_back = sum(pod.ready for pod in live) >= min(desired, loss.ready)
        return bool(loss.ready) and not (is_back and all(pod.ready for pod in new))

    # What holds.

    def check(self):
        decided = self.decide()
        summary = decided.summary
        live = [pod for pod in self.pods.values() if not pod.terminating]
        assert summary.in_mesh + summary.converging <= summary.eligible
        assert summary.in_mesh <= sum(not pod.fault for pod in live)
        if not summary.troubles:
            assert summary.in_mesh + summary.converging == summary.eligible
        remembered = memory.decode({memory.STATE: self.state})
        assert len(remembered.rounds) <= self.most

    def come_to_rest(self):
        """Let everything that can happen by itself happen, until nothing does."""
        self.mesh_changes("up")
        for workload in self.workloads.values():
            workload.has_budget = True
        quiet = 0
        for _ in range(400):
            self.terminating_pods_go()
            self.workloads_reconcile()
            self.pods_become_ready()
            self.settle()
            before = (self.evictions, self.state)
            decided = self.look()
            is_quiet = (self.evictions, self.state) == before and not decided.ask
            quiet = quiet + 1 if is_quiet else 0
            self.now += 0.1 if decided.ask else 20.0
            if quiet > 10:
                return
        raise AssertionError("it does not come to rest")

    def check_the_end(self):
        decided = self.decide()
        troubles = decided.summary.troubles
        held = {each.workload for each in troubles if not each.passing}
        kinds = {each.kind for each in self.workloads.values()}
        # A first replacement that is no better, and any that hangs, stop all others.
        is_no_better = "lies" in kinds or self.failed_open
        is_stopped = "hangs" in kinds or (is_no_better and not decided.memory.proven)
        for name, workload in self.workloads.items():
            pods = self.of(name)
            assert len(pods) == workload.desired
            if workload.kind in ("foreign", "skipped"):
                continue
            # A webhook that fails open looks like one that lies: the status says what to do.
            if workload.kind == "plain" and not self.failed_open:
                assert name not in held
            assert is_stopped or name in held or not any(pod.fault for pod in pods), name
        if not troubles and "hangs" not in kinds:
            assert decided.summary.converging == 0
            assert not decided.memory.rounds
        # Each eviction cures a pod, is judged, or is excused.
        assert self.evictions <= 4 * len(self.workloads) + self.excused


EVENTS = (
    *(Model.controller_looks, Model.time_passes, Model.terminating_pods_go),
    *(Model.workloads_reconcile, Model.pods_become_ready, Model.pod_crashes, Model.pod_is_deleted),
    *(Model.workload_scales, Model.budget_changes, Model.mesh_changes),
)


@pytest.mark.parametrize("count", [50, pytest.param(5000, marks=pytest.mark.long)])
@pytest.mark.timeout(3600)
def test_limits_hold_in_any_order_of_events(count):
    @settings(max_examples=count)
    @given(st.randoms(use_true_random=False))
    def follow(chance):
        model = Model(chance)
        for _ in range(50):
            event = chance.choice(EVENTS)
            note(event.__name__)
            event(model)
            model.settle()
            model.check()
        model.come_to_rest()
        model.check_the_end()

    follow()

"""Every order of events: limits hold at each step, and it ends where it should.

What may never happen is asserted where the world carries an eviction out (`World.evict`): a
forbidden owner, too many at once, a workload's last Ready pod, a budget asked again too soon.
Where it ends is looked at in `teardown`, after whatever happened: what can be in the mesh is.
"""

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sidecar_lifecycle.decide.convergence import memory

from tests.unit.workload.convergence.world import Workload, World

WORKLOADS = st.lists(
    st.builds(
        dict,
        desired=st.integers(1, 4),
        fixable=st.sampled_from([True, True, True, False]),
        lies=st.sampled_from([False, False, False, True]),
        skipped=st.sampled_from([False, False, False, True]),
        hangs=st.sampled_from([False, False, False, True]),
        budget=st.booleans(),
        injected=st.booleans(),
        crash_looping=st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


class Convergence(RuleBasedStateMachine):
    @initialize(
        workloads=WORKLOADS, max_unavailable=st.sampled_from(["1", "2", "3", "1%", "50%", "100%"])
    )
    def begin(self, workloads, max_unavailable):
        named = []
        for index, each in enumerate(workloads):
            keys = ("desired", "fixable", "lies", "skipped", "hangs", "budget")
            named.append(Workload(f"StatefulSet/w{index}", **{key: each[key] for key in keys}))
        self.world = World(named, max_unavailable=max_unavailable)
        for workload, each in zip(named, workloads, strict=True):
            for number in range(workload.desired):
                self.world.create(
                    workload.name,
                    injected=each["injected"] and number == 0,
                    crash_looping=each["crash_looping"] and number == 0,
                    age=600,
                )
        self.outages = 0
        self.failed_open = False
        self.disturbances = 0

    def pods(self, condition):
        return [each for each in self.world.pods.values() if condition(each)]

    @rule(crash=st.booleans())
    def controller_looks(self, crash):
        self.world.step(crash=crash)

    @rule()
    def controller_works(self):
        for _ in range(4):
            self.world.step()
            self.world.now += 0.3

    @rule()
    def cluster_works(self):
        for pod in self.pods(lambda each: each.terminating):
            self.world.finish(pod)
        for name in self.world.workloads:
            self.world.reconcile(name)
        self.world.settle_debts()

    @rule(seconds=st.sampled_from([0.1, 1.0, 6.0, 35.0, 61.0, 700.0]))
    def time_passes(self, seconds):
        self.world.now += seconds

    @rule(data=st.data())
    def terminating_pod_goes(self, data):
        if found := self.pods(lambda each: each.terminating):
            self.world.finish(data.draw(st.sampled_from(found)))
            self.world.settle_debts()

    @rule(data=st.data())
    def workload_reconciles(self, data):
        self.world.reconcile(data.draw(st.sampled_from(sorted(self.world.workloads))))
        self.world.settle_debts()

    @rule(data=st.data())
    def pod_becomes_ready(self, data):
        if found := self.pods(lambda each: each.ready_since is None):
            self.world.become_ready(data.draw(st.sampled_from(found)))

    @rule(data=st.data())
    def pod_crash_loops(self, data):
        if found := self.pods(lambda each: each.ready_since is None and not each.terminating):
            data.draw(st.sampled_from(found)).crash_looping = True

    @rule(mesh=st.sampled_from(["up", "up", "down", "gone", "open"]))
    def mesh_turns(self, mesh):
        self.outages += mesh != self.world.mesh
        self.failed_open |= mesh == "open"
        self.world.turn(mesh)

    @rule()
    def istio_is_installed_anew(self):
        """What is created in between has no sidecar, and is not to blame."""
        self.mesh_turns("gone")
        self.cluster_works()
        self.mesh_turns("up")

    @rule(data=st.data(), budget=st.booleans())
    def budget_changes(self, data, budget):
        name = data.draw(st.sampled_from(sorted(self.world.workloads)))
        self.world.workloads[name].budget = budget

    @rule(data=st.data(), desired=st.integers(0, 4))
    def workload_scales(self, data, desired):
        name = data.draw(st.sampled_from(sorted(self.world.workloads)))
        self.world.workloads[name].desired = desired
        self.disturbances += 4
        self.world.settle_debts()

    @rule(data=st.data())
    def somebody_deletes_a_pod(self, data):
        if found := self.pods(lambda each: not each.terminating):
            data.draw(st.sampled_from(found)).terminating = True
            self.disturbances += 1

    @precondition(lambda self: self.world.state)
    @rule()
    def leader_changes(self):
        self.world.forget()

    @invariant()
    def never_an_injected_pod(self):
        assert not any(each.injected for each in self.world.evictions)

    @invariant()
    def counts_add_up(self):
        summary = self.world.decide().summary
        pods = [each for each in self.world.pods.values() if not each.terminating]
        assert summary.in_mesh + summary.converging <= summary.eligible
        assert summary.in_mesh <= sum(each.injected for each in pods)
        if not summary.troubles:
            assert summary.in_mesh + summary.converging == summary.eligible

    @invariant()
    def no_more_rounds_than_slots(self):
        remembered = memory.decode({memory.STATE: self.world.state or "{}"})
        assert len(remembered.rounds) <= self.world.most

    def teardown(self):
        if not hasattr(self, "world"):
            return
        world = self.world
        world.turn("up")
        for workload in world.workloads.values():
            workload.budget = True
        world.calm()
        decided = world.decide()
        held = {each.workload for each in decided.summary.troubles if not each.passing}
        any_hangs = any(each.hangs for each in world.workloads.values())
        any_lies = any(each.lies for each in world.workloads.values())
        for name, workload in world.workloads.items():
            pods = world.of(name)
            assert len(pods) == workload.desired
            if not workload.fixable or workload.skipped:
                # What the injector skips is asked about again now and then, never evicted.
                continue
            # A webhook that fails open looks like one that lies: there the status says what to do.
            if not (workload.lies or workload.hangs or self.failed_open):
                assert name not in held
            # A first replacement that is no better, and any that hangs, stop all others.
            is_stopped = not decided.memory.proven and (any_lies or self.failed_open)
            is_stopped |= any_hangs
            assert is_stopped or name in held or all(each.injected for each in pods), name
        if not (decided.summary.troubles or any_hangs):
            assert decided.summary.converging == 0
            assert not decided.memory.rounds
        # Each eviction cures a pod, is judged, or is excused by an outage.
        originals = 4 * len(world.workloads)
        assert len(world.evictions) <= originals + self.disturbances + 4 * self.outages


@pytest.mark.parametrize("count", [20, pytest.param(2000, marks=pytest.mark.long)])
@pytest.mark.timeout(3600)
def test_limits_hold_in_any_order_of_events(count):
    how = settings(max_examples=count, stateful_step_count=50, deadline=None)
    run_state_machine_as_test(Convergence, settings=how)


def test_what_was_created_between_two_installations_of_istio_is_not_left_alone():
    world = World([Workload("StatefulSet/a", 1)])
    old = world.create("StatefulSet/a", age=600)
    world.step()
    world.step()
    world.turn("gone")
    world.finish(old)
    world.reconcile("StatefulSet/a")
    world.turn("up")
    world.calm()
    assert not world.decide().memory.holds
    assert [each.injected for each in world.of("StatefulSet/a")] == [True]


def test_of_six_applications_whose_replacements_hang_one_pod_is_lost():
    names = [f"Deployment/{name}" for name in "abcdef"]
    world = World([Workload(name, 1, hangs=True) for name in names], max_unavailable="100%")
    for name in names:
        world.create(name)
    world.calm()

    assert [each.name for each in world.evictions] == ["a-0"]
    untouched = [each for each in world.pods.values() if each.workload != "Deployment/a"]
    assert [each.ready for each in untouched] == [True] * 5
    (trouble,) = world.decide().summary.troubles
    assert (trouble.workload, trouble.reason) == ("Deployment/a", "ReplacementHangs")
    assert trouble.message == "the replacement a-0 cannot start: main: CrashLoopBackOff"

    world.workloads["Deployment/a"].hangs = False
    world.calm()
    others = {each.workload for each in world.evictions[1:]}
    assert "Deployment/b" in others

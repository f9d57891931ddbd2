"""Stops of a crowd of pods, in any order of events, on a clock that is set by hand."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sidecar_lifecycle.decide import finished
from sidecar_lifecycle.decide.stopping import State
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell import metrics
from sidecar_lifecycle.shell.kube import errors
from sidecar_lifecycle.shell.kube.fence import Fence
from sidecar_lifecycle.shell.shutdown import slots, stop, stops
from sidecar_lifecycle.shell.shutdown.view import Tracked, View

from tests.unit.workload import pods

NAMES = [f"{node}-{number}" for node in "ab" for number in range(3)]
SHARE = slots.Share(per_node=1, total=2)
LONG = 200.0
"""Seconds in which whatever is waited for has come, or is tried again."""


class HandLoop(asyncio.SelectorEventLoop):
    """A loop whose time stands still until it is set."""

    now = 0.0

    def time(self) -> float:
        return self.now


class Proxies(stop.Stopper):
    """Requests that end when, and as, the test says."""

    def __init__(self) -> None:
        self.waiting: dict[str, asyncio.Future[stop.Outcome]] = {}
        self.on_sent: dict[str, Any] = {}

    async def stop(
        self,
        pod: types.Pod,
        decision: Any,
        transport: stop.Transport,
        decide: Any,
        on_sent: Any = None,
    ) -> stop.Outcome:
        uid = pod.metadata.uid
        assert uid not in self.waiting, "two requests at once"
        answer = self.waiting[uid] = asyncio.get_running_loop().create_future()
        self.on_sent[uid] = on_sent
        try:
            result: stop.Result = await answer
        finally:
            del self.waiting[uid]
        return stop.Outcome(result, transport)


class Told:
    """Stands for the Reporter."""

    def __init__(self) -> None:
        self.stopped_pods: Counter[str] = Counter()

    def stopped(self, tracked: Tracked, decision: Any, way: Any) -> None:
        self.stopped_pods[tracked.pod.metadata.uid] += 1

    def failed(self, tracked: Tracked, outcome: stop.Outcome, failures: int) -> None:
        assert outcome.failed or outcome.result is stop.Result.UNANSWERED
        assert failures >= 1


class Crowd(RuleBasedStateMachine):
    """Pods whose payload ends and runs again, proxies that answer or do not, a unit that works."""

    @initialize()
    def begin(self) -> None:
        self.loop = HandLoop()
        self.proxies, self.told = Proxies(), Told()
        self.sent: set[str] = set()
        self.works = True
        self.lives: Counter[str] = Counter()
        """How often there has been a pod of a name."""
        self.pending_before = metrics.PENDING._value.get()
        self.view = View(lambda pod: finished.finished(pod, finished.Policy()))
        self.stops = stops.Stops(
            self.proxies,
            self.told,  # type: ignore[arg-type]
            Fence(self.raised),
            decide=lambda pod: finished.finished(pod, finished.Policy()),
            consider=self.consider,
            limits=slots.Limits(first=SHARE, retries=SHARE),
        )

    def raised(self, item: types.Object, why: str) -> None:
        pytest.fail(f"raised: {why}")

    def consider(self, tracked: Tracked) -> None:
        if not self.works or tracked not in self.view:
            return
        if tracked.decision.action is finished.Action.STOP:
            self.stops.needed(tracked)
        else:
            self.stops.over(tracked)

    def act(self, what: Any, *args: Any) -> None:
        """Call something in the loop, and let it settle."""

        async def call() -> None:
            what(*args)
            for _ in range(6):
                await asyncio.sleep(0)

        self.loop.run_until_complete(call())

    def see(self, name: str, main: Any) -> None:
        uid = f"{name}-{self.lives[name]}"
        shown = pods.pod(main, name=name, uid=uid, node=name[0], policy="OnFailure")
        self.act(lambda: self.consider(self.view.update(shown)))

    @rule(name=st.sampled_from(NAMES))
    def payload_ends(self, name: str) -> None:
        self.see(name, pods.ended())

    @rule(name=st.sampled_from(NAMES))
    def payload_runs(self, name: str) -> None:
        self.see(name, pods.running())

    @rule(name=st.sampled_from(NAMES))
    def payload_runs_for_a_moment(self, name: str) -> None:
        self.see(name, pods.running())
        self.see(name, pods.ended())

    @rule(name=st.sampled_from(NAMES))
    def pod_goes(self, name: str) -> None:
        tracked = self.view.remove(f"{name}-{self.lives[name]}")
        self.lives[name] += 1
        if tracked is not None:
            self.act(self.stops.over, tracked)

    @rule(number=st.integers(0, 5), result=st.sampled_from(list(stop.Result)))
    def request_ends(self, number: int, result: stop.Result) -> None:
        waiting = sorted(self.proxies.waiting)
        if waiting:
            uid = waiting[number % len(waiting)]
            if result in (stop.Result.ACKNOWLEDGED, stop.Result.UNANSWERED, stop.Result.TIMEOUT):
                self.proxies.on_sent[uid]()
                self.sent.add(uid)
            self.act(self.proxies.waiting[uid].set_result, result)

    @rule(seconds=st.sampled_from([0.1, 0.6, 1.1, 5.1, 31.0, LONG]))
    def time_passes(self, seconds: float) -> None:
        self.loop.now += seconds
        self.act(lambda: None)

    @rule()
    def ends(self) -> None:
        self.works = False
        needs = self.needs()
        tries = [need.tries for need in needs]
        self.act(self.stops.leave, self.view)
        assert [need.tries for need in needs] == tries

    @rule()
    def begins_again(self) -> None:
        self.works = True
        self.act(lambda: [self.consider(tracked) for tracked in self.view])

    def needs(self) -> list[Any]:
        return [each.need for each in self.view if each.need is not None]

    @invariant()
    def pending_is_what_is_to_be_stopped(self) -> None:
        # A pod that has gone may still have a request under way.
        gone = metrics.PENDING._value.get() - self.pending_before - len(self.needs())
        assert 0 <= gone <= len(self.proxies.waiting)

    @invariant()
    def places_taken_are_places_held(self) -> None:
        held = Counter(
            (need.place[0], need.place[1])
            for need in self.needs()
            if need.place is not None and need.state in (State.SENDING, State.LEAVING)
        )
        for lane in (self.stops._first, self.stops._retries):
            taken = lane._taken
            assert all(taken[place] >= count for (of, place), count in held.items() if of is lane)
            assert taken.total() <= min(SHARE.total, len(self.proxies.waiting))

    @invariant()
    def nobody_waits_for_what_is_past(self) -> None:
        timers = [each for each in self.loop._scheduled if not each.cancelled()]  # type: ignore[attr-defined]
        waits = sum(need.timer is not None for need in self.needs())
        assert waits <= len(timers) <= waits + len(self.proxies.waiting)

    @invariant()
    def nothing_is_begun_by_a_unit_that_ended(self) -> None:
        if not self.works:
            assert not self.needs()
            assert all(self.view.get(uid) is None for uid in self.proxies.waiting)

    @invariant()
    def what_is_needed_is_not_given_up(self) -> None:
        for tracked in self.view:
            if self.works and tracked.decision.action is finished.Action.STOP:
                need = tracked.need
                assert need is not None
                assert need.request or need.timer or need.state is State.QUEUED

    def teardown(self) -> None:
        """Have all requests end, then all time pass: everybody is tried again, and then over."""
        self.act(lambda: [self.consider(tracked) for tracked in self.view] if self.works else None)
        for tracked in list(self.view):
            self.act(self.stops.over, self.view.remove(tracked.pod.metadata.uid))
        self.time_passes(LONG)
        assert not self.proxies.waiting
        assert not self.stops._requests
        assert self.sent == set(self.told.stopped_pods)
        assert metrics.PENDING._value.get() == self.pending_before
        for lane in (self.stops._first, self.stops._retries):
            assert not lane._taken
        self.loop.close()


Crowd.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestCrowd = Crowd.TestCase


@pytest.fixture
def alone() -> Iterator[Crowd]:
    """A pod whose proxy is being stopped, for the first time."""
    crowd = Crowd()
    crowd.begin()
    crowd.payload_ends("a-0")
    yield crowd
    crowd.teardown()


@pytest.mark.parametrize(
    ("results", "not_within", "within"),
    [
        pytest.param([stop.Result.REFUSED], 0.4, 1.6, id="a-failure"),
        pytest.param([stop.Result.REFUSED] * 6, 15.9, 17.1, id="six-failures"),
        pytest.param([stop.Result.CHANGED], 4.9, 5.1, id="news-to-come"),
    ],
)
def test_next_try_waits_for_what_the_last_ones_call_for(
    alone: Crowd, results: list[stop.Result], not_within: float, within: float
):
    assert list(alone.proxies.waiting) == ["a-0-0"]
    for earlier in results[:-1]:
        alone.request_ends(0, earlier)
        alone.time_passes(LONG)
    alone.request_ends(0, results[-1])
    alone.time_passes(not_within)
    assert not alone.proxies.waiting
    alone.time_passes(within - not_within)
    assert list(alone.proxies.waiting) == ["a-0-0"]


def test_retry_takes_no_place_of_a_first_try(alone: Crowd):
    alone.request_ends(0, stop.Result.REFUSED)
    alone.time_passes(LONG)
    alone.payload_ends("a-1")
    assert sorted(alone.proxies.waiting) == ["a-0-0", "a-1-0"]


def test_pods_are_counted_by_what_is_decided_about_them_until_they_go():
    def counted(action: str) -> float:
        rows = next(iter(metrics.PODS.collect())).samples
        return sum(row.value for row in rows if row.labels["decision"] == action)

    before = counted("wait"), counted("stop")
    view = View(lambda pod: finished.finished(pod, finished.Policy()))
    view.update(msgspec.convert(pods.pod_json(pods.running()), types.Pod))
    assert (counted("wait"), counted("stop")) == (before[0] + 1, before[1])
    ended = view.update(msgspec.convert(pods.pod_json(), types.Pod))
    assert view.update(ended.pod) is ended
    assert (counted("wait"), counted("stop")) == (before[0], before[1] + 1)
    assert view.remove("another") is None
    assert view.remove("uid-1") is ended
    assert (counted("wait"), counted("stop")) == before


def unreachable(cause: Exception) -> errors.Unreachable:
    error = errors.Unreachable("no answer")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "result", "is_tried_the_other_way"),
    [
        *(
            pytest.param(errors.StatusError(code, "", ""), result, other, id=str(code))
            for code, result, other in (
                (400, "refused", True),
                (401, "forbidden", True),
                (402, "refused", True),
                (403, "forbidden", True),
                (404, "gone", False),
                (428, "refused", True),
                (429, "busy", False),
                (430, "refused", True),
                (499, "refused", True),
                (500, "unavailable", False),
                (503, "unavailable", False),
            )
        ),
        pytest.param(errors.StreamError("nobody listens"), "refused", True, id="stream"),
        pytest.param(unreachable(TimeoutError()), "timeout", True, id="timeout"),
        pytest.param(unreachable(OSError()), "unavailable", False, id="network"),
    ],
)
def test_next_try_goes_the_way_that_the_failure_of_this_one_suggests(
    error: errors.KubeError, result: str, is_tried_the_other_way: bool
):
    assert stop.classify(error) == result
    for way in stop.Transport:
        outcome = stop.Outcome(stop.classify(error), way)
        wanted = way.other if is_tried_the_other_way else way
        assert stop.next_transport(outcome, frozenset()) is wanted
        assert stop.next_transport(outcome, frozenset({wanted})) is wanted.other

"""What holds for the decision about any pod, also one that no kubelet would show."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from sidecar_lifecycle.decide import finished
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell.shutdown import sources

from integrator_contract.answers import Action
from tests.unit.workload import pods

POLICIES = ("Always", "OnFailure", "Never")
ACTIONS = ("Restart", "RestartAllContainers", "NotInventedYet")
CODES = st.sampled_from([0, 1, 2, 42, 137, 255])

rules = st.builds(
    lambda action, codes, operator: pods.rule(action, *codes, operator=operator),
    st.sampled_from(ACTIONS),
    st.lists(CODES, max_size=3),
    st.sampled_from(["In", "NotIn"]),
)
specs = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {
            "restartPolicy": st.sampled_from(POLICIES),
            "restartPolicyRules": st.lists(rules, max_size=2),
        }
    ),
)
states = st.one_of(
    st.just(pods.running()),
    CODES.map(pods.ended),
    # Before the pod of the builder started.
    CODES.map(lambda code: pods.ended(code, finished="2025-12-31T23:59:00Z")),
    st.sampled_from(["CrashLoopBackOff", "ImagePullBackOff", "PodInitializing"]).map(pods.waiting),
    st.just({}),
)
listed = st.lists(st.sampled_from(["main", "side", "nobody", "istio-proxy"]), max_size=2)


annotated = st.fixed_dictionaries(
    {},
    optional={
        f"istio-integrator.charmhub.io/{key}": listed.map(",".join)
        for key in ("wait-for-containers", "ignore-containers")
    },
)
ODD = {
    "main": states,
    "proxy": states,
    "others": st.fixed_dictionaries({}, optional={"side": st.none() | states}),
    "policy": st.sampled_from(POLICIES),
    "phase": st.sampled_from(["Pending", "Succeeded", "Failed"]),
    "main_spec": specs,
    "annotations": annotated,
    "deletionTimestamp": st.just("2026-01-01T00:02:00Z"),
}
"""What may be unusual about a pod whose payload has ended."""


@st.composite
def any_pod(draw: st.DrawFn) -> types.Pod:
    """Return a pod to stop, up to a few things about it."""
    values: dict[str, Any] = {
        "policy": draw(st.sampled_from(["Never", "OnFailure"])),
        "main": draw(CODES.map(pods.ended)),
        "others": {"side": draw(CODES.map(pods.ended))} if draw(st.booleans()) else {},
    }
    for name in draw(st.lists(st.sampled_from(sorted(ODD)), unique=True, max_size=3)):
        values[name] = draw(ODD[name])
    return pods.pod(values.pop("main"), **values)


def test_most_kinds_of_decision_are_reached():
    """The properties below say something about an action only where there is one."""
    reached: Counter[Action] = Counter()

    @settings(max_examples=500, derandomize=True, database=None)
    @given(any_pod())
    def look(pod: types.Pod) -> None:
        reached[finished.finished(pod, finished.Policy()).action] += 1

    look()
    assert reached[Action.STOP] >= 50, reached
    assert all(reached[action] for action in Action), reached


@given(any_pod())
def test_decision_needs_nothing_that_is_dropped_to_save_memory(pod: types.Pod):
    whole = finished.finished(pod, finished.Policy())
    sources.compact(pod)

    assert finished.finished(pod, finished.Policy()) == whole


@given(any_pod(), st.lists(st.sampled_from(["main", "side", "nobody"]), max_size=2))
def test_every_pod_gets_a_reason_and_options_never_raise(pod: types.Pod, names: list[str]):
    policy = finished.Policy(wait_for_containers=tuple(names), ignore_containers=tuple(names))
    decision = finished.finished(pod, policy)

    assert decision.reason
    assert decision.message

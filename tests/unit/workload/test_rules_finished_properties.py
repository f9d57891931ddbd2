"""Generated pods against the safety condition, stated once more and independently."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from sidecar_lifecycle.decide import container_restart, finished
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
    """The properties below say something about a stop only where there is one."""
    reached: Counter[str] = Counter()

    @settings(max_examples=500, derandomize=True, database=None)
    @given(any_pod())
    def look(pod: types.Pod) -> None:
        reached[finished.finished(pod, finished.Policy()).action] += 1
        reached["never forgotten"] += _has_ended(pod)

    look()
    assert reached[Action.STOP] >= 50, reached
    assert reached["never forgotten"] >= 50, reached
    assert all(reached[action] for action in Action), reached


def _kubelet_restarts(pod: types.Pod, name: str) -> bool:
    """Say what `ContainerShouldRestart` of the kubelet does, in its words and order."""
    container = next(each for each in pod.spec.containers if each.name == name)
    status = next(each for each in pod.status.containerStatuses if each.name == name)
    assert status.state.terminated is not None
    code = status.state.terminated.exitCode
    for one in container.restartPolicyRules:
        assert one.exitCodes is not None
        if one.exitCodes.operator == "In" and code in one.exitCodes.values:
            return True
        if one.exitCodes.operator == "NotIn" and code not in one.exitCodes.values:
            return True
    # An empty one is none.
    policy = container.restartPolicy or pod.spec.restartPolicy
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def _is_stale(pod: types.Pod, ended: types.Terminated | None) -> bool:
    assert ended is not None
    return (ended.finishedAt or "") < (pod.status.startTime or "")


@settings(max_examples=500)
@given(any_pod())
def test_stop_only_when_the_facts_allow_it(pod: types.Pod):
    decision = finished.finished(pod, finished.Policy())
    if decision.action is not Action.STOP:
        return

    by_name = {status.name: status.state for status in pod.status.containerStatuses}
    assert pod.metadata.deletionTimestamp is None
    assert pod.status.phase in ("Running", "Pending")
    assert set(by_name) == {container.name for container in pod.spec.containers}
    assert by_name["istio-proxy"].running is not None
    assert decision.containers
    assert "istio-proxy" not in decision.containers
    for name in decision.containers:
        assert by_name[name].terminated is not None
        assert not _kubelet_restarts(pod, name)


def _has_ended(pod: types.Pod) -> bool:
    """Tell whether nothing but the proxy is left, for good."""
    by_name = {status.name: status.state for status in pod.status.containerStatuses}
    payload = [each.name for each in pod.spec.containers if each.name != "istio-proxy"]
    return (
        pod.metadata.deletionTimestamp is None
        and pod.status.phase in ("Running", "Pending")
        and pod.spec.restartPolicy != "Always"
        and by_name["istio-proxy"].running is not None
        and all(name in by_name and by_name[name].terminated is not None for name in payload)
        and not any(_kubelet_restarts(pod, name) for name in payload)
        and not any(_is_stale(pod, by_name[name].terminated) for name in payload)
    )


@settings(max_examples=500)
@given(any_pod())
def test_never_forgotten_when_everything_has_ended_for_good(pod: types.Pod):
    if not _has_ended(pod):
        return
    decision = finished.finished(pod, finished.Policy())
    assert decision.action is Action.STOP or decision.reason == "NothingToWaitFor"


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


@given(
    policy=st.sampled_from([None, *POLICIES]),
    pod_policy=st.sampled_from([*POLICIES, "", "Sometimes"]),
    code=CODES,
)
def test_restart_without_rules_follows_the_container_then_the_pod(
    policy: str | None, pod_policy: str, code: int
):
    effective = policy or pod_policy
    want = {"Never": False, "OnFailure": code != 0}.get(effective, True)

    container = types.Container(name="main", restartPolicy=policy)
    ended = types.Terminated(exitCode=code)
    assert container_restart.will_restart(container, pod_policy, ended) is want

"""The decision about a pod, by rows of cases."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sidecar_lifecycle.decide import finished, payload
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell.shutdown import sources

from integrator_contract import names
from integrator_contract.answers import Action
from tests.unit.cases import cases, row
from tests.unit.workload import pods
from tests.unit.workload.pods import container, ended, pod, rule, running, status, waiting

ALWAYS = {"restartPolicy": "Always"}
LOST = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}
SCHEDULED = {"type": "PodScheduled", "status": "True"}
RESTARTING_ALL = {"type": "AllContainersRestarting", "status": "True"}
EVICTED = {"type": "DisruptionTarget", "status": "True"}
GRPC = {names.TEMPLATES: "grpc-agent"}
KEYS = {
    "wait": "istio-integrator.charmhub.io/wait-for-containers",
    "ignore": "istio-integrator.charmhub.io/ignore-containers",
    "shutdown": "istio-integrator.charmhub.io/proxy-shutdown",
    "port": "status.sidecar.istio.io/port",
    "config": "proxy.istio.io/config",
}
MANY = 10_000


MESSAGES = {
    "NativeSidecar": "the kubelet stops a native sidecar by itself",
    "NoProxy": "no container istio-proxy",
    "RestartsAlways": "the pod starts a stopped proxy again",
    "SwitchedOff": "proxy-shutdown is false",
    "Disabled": f"annotation {names.PROXY_SHUTDOWN}=disabled on the pod",
    "NamespaceDisabled": f"{names.PROXY_SHUTDOWN}=disabled on the namespace",
    "Deleted": "the pod is being deleted",
    "BadStatusPort": f"{names.STATUS_PORT} is not a port",
    "Initializing": "setup (init container) is running",
    "ProxyEnded": "payload and proxy have ended",
    "Disrupted": "the kubelet is ending the pod",
}
"""Messages that are the same for each pod, by reason."""


def decide(subject: types.Pod, **policy: object) -> finished.ProxyDecision:
    """Decide about a pod, and check the message where it is the same for each pod."""
    decision = finished.decide(subject, finished.Policy(**policy))  # type: ignore[arg-type]
    assert decision.message == MESSAGES.get(decision.reason, decision.message)
    return decision


def annotated(**values: str) -> dict[str, str]:
    return {KEYS[key]: value for key, value in values.items()}


def noted(**values: str) -> types.Pod:
    return pod(annotations=annotated(**values))


def ruled(code: int, *rules: dict[str, Any], **spec: Any) -> types.Pod:
    """A pod whose container has ended so, and has rules or a policy of its own."""
    return pod(ended(code), main_spec={"restartPolicyRules": list(rules), **spec})


def agent(
    state: dict[str, Any] | None, main: Any = None, phase: str = "Running", **notes: str
) -> types.Pod:
    """A pod with a second container."""
    return pod(main, others={"agent": state}, annotations=annotated(**notes), phase=phase)


def beside(name: str, state: dict[str, Any], **spec: Any) -> types.Pod:
    """A finished pod with this init container between two that have ended."""
    return pod(
        init=[container("first"), container(name, **spec), container("last")],
        init_statuses=[status("first", ended()), status(name, state), status("last", ended())],
    )


OLD_END = ended(finished="2025-12-31T23:59:59Z")
STALE = pod(OLD_END)
UNTIMED = pod({"terminated": {"exitCode": 0}})

FIXED = ("NativeSidecar", "NoProxy", "RestartsAlways")
"""Reasons in a pod's specification, which never changes."""
STOP, AGAIN = "stop PayloadFinished", "wait PayloadRestarting"
ROWS = {
    # The plain story of a Job.
    "never_completed": (pod(), STOP),
    "never_failed": (pod(ended(1)), STOP),
    "ended_at_an_unknown_time": (UNTIMED, STOP),
    "onfailure_completed": (pod(policy="OnFailure"), STOP),
    "payload_runs": (pod(running()), "wait PayloadRunning"),
    "onfailure_window": (pod(ended(1), policy="OnFailure"), AGAIN),
    "always_between_restarts": (pod(policy="Always"), "ignore RestartsAlways"),
    "policy_of_a_newer_kubernetes": (pod(policy="New"), "ignore RestartsAlways"),
    "payload_lost_by_the_runtime": (pod(LOST), AGAIN),
    "proxy_lost_by_the_runtime": (pod(running(), proxy=LOST), "wait ProxyRestarting"),
    # Waiting is not finished, whatever came before.
    "crash_loop": (pod(waiting()), "wait PayloadWaiting"),
    "empty_state": (agent(running(), {}), "wait PayloadWaiting"),
    "two_states": (pod({**ended(), **waiting()}), "wait PayloadWaiting"),
    # Several containers.
    "second_runs": (agent(running()), "wait PayloadRunning"),
    "both_ended": (agent(ended(2)), STOP),
    "second_without_status": (agent(None), "wait NoStatus"),
    # Rules of single containers.
    "rule_restarts_a_never_pod": (ruled(42, rule("Restart", 42)), AGAIN),
    "rule_of_another_code": (ruled(1, rule("Restart", 42)), STOP),
    "rule_of_other_codes": (ruled(1, rule("Restart", 42, operator="NotIn")), AGAIN),
    "rule_of_all_but_this_code": (ruled(42, rule("Restart", 42, 43, operator="NotIn")), STOP),
    "container_policy_beats_the_pods": (ruled(1, restartPolicy="OnFailure"), AGAIN),
    "container_never_in_an_onfailure_pod": (
        pod(ended(1), policy="OnFailure", main_spec={"restartPolicy": "Never"}),
        STOP,
    ),
    "restart_all": (ruled(3, rule("RestartAllContainers", 3)), AGAIN),
    "unknown_action": (ruled(3, rule("SomethingNew", 3)), AGAIN),
    "unknown_condition": (ruled(0, {"action": "Restart"}), AGAIN),
    "unknown_operator": (ruled(0, rule("Restart", 7, operator="Gt")), AGAIN),
    "restart_all_of_another_containers_code": (
        pod(
            others={"trigger": ended(9)},
            annotations=annotated(wait="main"),
            main_spec={"restartPolicyRules": [rule("RestartAllContainers", 9)]},
        ),
        STOP,
    ),
    "restart_all_from_a_native_sidecar": (
        beside("x", ended(9), **ALWAYS, restartPolicyRules=[rule("RestartAllContainers", 9)]),
        "wait PodRestarting",
    ),
    "unknown_action_of_a_native_sidecar": (
        beside("x", ended(9), **ALWAYS, restartPolicyRules=[rule("SomethingNew", 9)]),
        "wait PodRestarting",
    ),
    "first_rule_of_a_native_sidecar_counts": (
        beside(
            *("x", ended(9)),
            **ALWAYS,
            restartPolicyRules=[rule("Restart", 9), rule("RestartAllContainers", 9)],
        ),
        STOP,
    ),
    "restart_is_over": (pod(conditions=[{**RESTARTING_ALL, "status": "False"}]), STOP),
    "restart_under_way": (pod(conditions=[SCHEDULED, RESTARTING_ALL]), "wait PodRestarting"),
    # Init containers and other people's sidecars.
    "init_runs_again_in_a_new_sandbox": (beside("setup", running()), "wait Initializing"),
    "other_native_sidecar_runs": (beside("vault", running(), **ALWAYS), STOP),
    # Proxies of other kinds and states.
    "proxy_without_status": (pod(others={"istio-proxy": None}), "wait NoStatus"),
    "proxy_crash_loop": (pod(proxy=waiting()), "report ProxyNotRunning"),
    "proxy_customised_and_never_injected": (
        pod(proxy=waiting("ErrImagePull"), proxy_spec={"image": "auto"}),
        "report ProxyNotRunning",
    ),
    "proxy_already_stopped": (pod(proxy=ended()), "ignore ProxyEnded"),
    "proxy_comes_back": (pod(policy="OnFailure", proxy=ended(1)), "wait ProxyRestarting"),
    "proxy_restarts_always": (pod(proxy_spec=ALWAYS), "ignore RestartsAlways"),
    "proxy_without_envoy": (pod(annotations=GRPC), "report ProxyWithoutEnvoy"),
    "proxy_without_envoy_of_two_templates": (
        pod(annotations={names.TEMPLATES: "sidecar, grpc-agent"}),
        "report ProxyWithoutEnvoy",
    ),
    "proxy_without_envoy_and_a_payload_that_runs": (
        pod(running(), annotations=GRPC),
        "wait PayloadRunning",
    ),
    "proxy_of_our_template": (pod(annotations={names.TEMPLATES: "sidecar,our-grpc-agent"}), STOP),
    # The reverse failure.
    "lost_never": (pod(running(), proxy=ended(0)), "report ProxyLost"),
    "lost_zero": (pod(running(), proxy=ended(0), policy="OnFailure"), "report ProxyLost"),
    "lost_but_restarting": (
        pod(running(), proxy=ended(1), policy="OnFailure"),
        "wait ProxyRestarting",
    ),
    "lost_in_hold": (pod(waiting("PodInitializing"), proxy=ended(0)), "report ProxyLost"),
    "kubelet_evicts": (
        pod(running(), proxy=ended(0), conditions=[SCHEDULED, EVICTED]),
        "ignore Disrupted",
    ),
    "kubelet_evicts_no_more": (
        pod(running(), proxy=ended(0), conditions=[SCHEDULED, {**EVICTED, "status": "False"}]),
        "report ProxyLost",
    ),
    **{
        f"proxy_ended_in_a_restart_of_all, {name}": (
            pod(main, proxy=ended(), conditions=[RESTARTING_ALL]),
            "wait PodRestarting",
        )
        for name, main in (("payload_ended", ended()), ("payload_runs", running()))
    },
    "proxy_ended_and_a_new_sandbox_initializes": (
        pod(proxy=ended(), init=[container("setup")], init_statuses=[status("setup", running())]),
        "wait Initializing",
    ),
    "ignored_without_status": (agent(None, ignore="agent"), "wait NoStatus"),
    # Pods that are going, or gone, or not there yet.
    "being_deleted": (pod(deletionTimestamp="2026-01-01T00:02:00Z"), "ignore Deleted"),
    "succeeded": (pod(phase="Succeeded"), "ignore Ended"),
    "failed": (pod(phase="Failed"), "ignore Ended"),
    # A kubelet's phase where a container has not started.
    "pending_starts": (
        pod(waiting("ContainerCreating"), proxy=waiting("ContainerCreating"), phase="Pending"),
        "wait PayloadWaiting",
    ),
    "pending_proxy_never_started": (
        pod(proxy=waiting("ImagePullBackOff"), phase="Pending"),
        "report ProxyNotRunning",
    ),
    "pending_ignored_container_never_started": (
        agent(waiting("ImagePullBackOff"), ignore="agent", phase="Pending"),
        STOP,
    ),
    "pending_proxy_lost_before_the_payload_starts": (
        pod(waiting("ImagePullBackOff"), proxy=ended(1), phase="Pending"),
        "report ProxyLost",
    ),
    "unknown": (pod(phase="Unknown"), "wait NotRunning"),
    "no_phase": (pod(phase=""), "wait NotRunning"),
    "stale_status": (STALE, "wait StaleStatus"),
    "ended_as_the_pod_started": (pod(ended(finished="2026-01-01T00:00:00Z")), STOP),
    # What people ask for.
    "disabled": (noted(shutdown="disabled"), "ignore Disabled"),
    "enabled": (noted(shutdown="enabled"), STOP),
    "port_0": (noted(port="0"), STOP),
    "port_x": (noted(port="x"), "report BadStatusPort"),
    "ignored_runs_on": (agent(running(), ignore="agent"), STOP),
    "ignored_ended": (agent(ended(), running(), ignore="agent"), "wait PayloadRunning"),
    "waited_for_ended": (agent(running(), wait="main"), STOP),
    "argo_waits_for_both": (agent(running(), wait="main, agent"), "wait PayloadRunning"),
    "unknown_name_widens_to_all": (agent(running(), wait="main,typo"), "wait PayloadRunning"),
    "unknown_ignored_name": (agent(running(), ignore="agnet"), "wait PayloadRunning"),
    "all_ignored": (noted(ignore="main"), "report NothingToWaitFor"),
    "waiting_for_the_proxy": (agent(running(), wait="istio-proxy"), "wait PayloadRunning"),
    "list_too_long": (noted(wait="a" * 25_000), "report BadContainerList"),
    "port_too_long": (agent(running(), port="5" * 25_000), "report BadStatusPort"),
}


@cases(("subject", "want"), **ROWS)
def test_decision_for_a_pod(subject: types.Pod, want: str):
    decision, end = decide(subject), payload.find_end(subject, finished.Policy())

    assert f"{decision.action} {decision.reason}" == want, decision.message
    assert decision.message
    assert finished.may_be_stopped(subject) is (decision.reason not in FIXED)
    # The service keeps only a part of each pod.
    sources.compact(subject)
    assert (decide(subject), payload.find_end(subject, finished.Policy())) == (decision, end)


NOT_RUNNING = "work finished, but istio-proxy is not running ({}), so the pod cannot complete"
KILL = "run: kubectl -n kf-user exec job-y -c istio-proxy -- bash -c 'kill 1'"
BOTH_IGNORED = {names.IGNORE_CONTAINERS: "agent,log"}


@cases(
    ("subject", "message"),
    running=(agent(running(), waiting("X")), "main is waiting (X); agent is running"),
    no_status=(agent(None), "agent has no status yet"),
    restarts_all=(
        ruled(3, rule("RestartAllContainers", 3), rule("Restart", 4)),
        "main ended with 3 and is started again",
    ),
    ignored_trigger=(
        pod(
            others={"x": ended()},
            annotations=annotated(ignore="main"),
            main_spec={"restartPolicyRules": [rule("RestartAllContainers", 7, 0)]},
        ),
        "main ended with 0, which restarts all containers",
    ),
    without_status=(
        pod(others={"agent": None, "log": None}, annotations=BOTH_IGNORED),
        "agent, log has no status yet",
    ),
    proxy_waits=(pod(proxy=waiting("ErrImagePull")), NOT_RUNNING.format("ErrImagePull")),
    proxy_has_no_state=(pod(proxy={}), NOT_RUNNING.format("no reason given")),
    proxy_without_envoy=(
        pod(annotations=GRPC, namespace="kf-user", name="job-y"),
        f"work finished, but only a signal ends the pilot-agent of template grpc-agent; {KILL}",
    ),
    lost=(
        pod(running(), proxy=ended(3)),
        "the proxy ended with 3 and is not started again, while main is running",
    ),
    failed=(pod(phase="Failed"), "the pod has failed"),
    phase=(pod(phase="Unknown"), "the pod's phase is Unknown"),
    no_phase=(pod(phase=""), "the pod's phase is not known"),
    no_state=(pod({}), "main is waiting (no reason given)"),
    stale=(STALE, "main has a status from before the pod started"),
    restarting_all=(pod(conditions=[RESTARTING_ALL]), "all containers are being restarted"),
    proxy_comes_back=(
        pod(policy="OnFailure", proxy=ended(3), conditions=[RESTARTING_ALL]),
        "the proxy ended with 3",
    ),
    all_ignored=(noted(ignore="main"), "every container beside the proxy is to be ignored"),
    all_ended=(agent(ended(2)), "main ended with 0; agent ended with 2"),
)
def test_message_names_each_container_with_its_state(subject: types.Pod, message: str):
    assert decide(subject).message == message


@pytest.mark.parametrize("reason", ["Evicted", "DeadlineExceeded", "Preempting", "Terminated"])
def test_pod_that_the_kubelet_ends_has_not_lost_its_proxy(reason: str):
    subject = pod(running(), proxy=ended())
    subject.status.reason = reason
    assert decide(subject).reason == "Disrupted"
    sources.compact(subject)
    assert decide(subject).reason == "Disrupted"


@cases(
    ("subject", "left", "want"),
    main=(pod(), "main", "NoProxy"),
    main_with_a_native_sidecar=(
        beside("istio-proxy", running(), **ALWAYS),
        *("main", "NativeSidecar"),
    ),
    proxy=(pod(), "istio-proxy", "NothingToWaitFor"),
)
def test_pod_of_one_container_is_left_alone(subject: types.Pod, left: str, want: str):
    subject.spec.containers = [each for each in subject.spec.containers if each.name == left]

    decision = decide(subject)
    assert decision.reason == want
    words = MESSAGES.get(want, "the pod has no container beside the proxy")
    assert decision.message == words


def test_what_nobody_looks_at_changes_nothing():
    """An ephemeral container that runs, and a value that is nested deep."""
    subject = pods.pod_json()
    subject["spec"]["ephemeralContainers"] = [{"name": "debug"}]
    subject["status"]["ephemeralContainerStatuses"] = [status("debug", running())]
    text = json.dumps(subject)[:-1] + ',"x":' + "[" * 2000 + "]" * 2000 + "}"

    assert decide(types.decode_json(text.encode(), types.Pod)).action is Action.STOP


def test_names_that_a_pod_lacks_and_containers_that_hold_it_are_named():
    held = pod(
        others={"agent": running(), "done": ended(), "log": waiting()},
        annotations=annotated(ignore="agent,done,log"),
    )
    decision = decide(held)
    assert (decision.holding, decision.containers) == (("agent", "log"), ("main",))

    wrong = annotated(wait="main,typo,istio-proxy,typo", ignore="agnet,vault")
    subject = pod(init=[container("first"), container("vault", **ALWAYS)], annotations=wrong)
    assert decide(subject).unknown == ("typo", "istio-proxy", "agnet")
    assert decide(noted(ignore="main,agnet")).unknown == ("agnet",)


def wait(*containers: str) -> dict[str, tuple[str, ...]]:
    return {"wait_for_containers": containers}


def ignore(*containers: str) -> dict[str, tuple[str, ...]]:
    return {"ignore_containers": containers}


OLD, DONE = {"old_ends_count": True}, "PayloadFinished"


@cases(
    ("subject", "policy", "want"),
    {"subject": agent(running()), "want": "PayloadRunning"},
    nothing_configured=row(policy={}),
    wait_for_main=row(policy=wait("main"), want=DONE),
    wait_for_a_name_this_pod_lacks=row(policy=wait("other")),
    wait_for_those_of_the_names_it_has=row(policy=wait("main", "other"), want=DONE),
    ignore_agent=row(policy=ignore("agent"), want=DONE),
    ignore_a_name_this_pod_lacks=row(policy=ignore("agnet")),
    annotation_beats_option=(agent(running(), wait="main"), wait("agent"), DONE),
    annotation_to_ignore_beats_option=row(
        subject=agent(running(), ignore="main"), policy=ignore("agent")
    ),
    # Each annotation overrides its own option, and no other.
    annotation_to_wait_and_option=(agent(running(), wait="main,agent"), ignore("agent"), DONE),
    annotation_to_ignore_and_option=(agent(running(), ignore="x"), wait("main"), DONE),
    old_end=(STALE, OLD, DONE),
    old_end_beside_one_that_runs=row(subject=agent(running(), OLD_END), policy=OLD),
    switched_off=(noted(shutdown="enabled"), {"enabled": False}, "SwitchedOff"),
    disabled_in_the_namespace=(pod(), {"namespace_enabled": False}, "NamespaceDisabled"),
)
def test_options_apply_where_annotations_say_nothing(
    subject: types.Pod, policy: dict[str, Any], want: str
):
    assert decide(subject, **policy).reason == want


def test_old_end_of_an_ignored_container_holds_no_pod_where_old_ends_count():
    subject = pod(others={"agent": OLD_END}, annotations=annotated(ignore="agent"))
    assert decide(subject).holding == ("agent",)
    assert decide(subject, old_ends_count=True).holding == ()


def test_only_containers_beside_the_proxy_that_ended_with_0_have_succeeded():
    subject = pod(ended(1), others={"agent": ended(), "log": running()}, proxy=ended())
    assert payload.list_succeeded(subject) == ("agent",)


# The agent's port: its own annotation, then the proxy's configuration, then the mesh.

MESH = 17020


@cases(
    ("notes", "port"),
    mesh=({}, MESH),
    own=({"port": "1"}, 1),
    own_with_spaces=({"port": " 15020 "}, 15020),
    own_is_blank=({"port": " "}, MESH),
    own_is_the_largest=({"port": "65535"}, 65535),
    own_is_too_large=({"port": "65536"}, None),
    own_is_negative=({"port": "-1"}, None),
    own_is_superscript=({"port": "²"}, None),
    own_has_thousands_of_digits=({"port": "1" * 4301}, None),
    own_comes_first=({"port": "18020", "config": "statusPort: 16020"}, 18020),
    yaml=({"config": "statusPort: 16020"}, 16020),
    json=({"config": '{"statusPort": 16020}'}, 16020),
    the_field_s_other_spelling=({"config": "status_port: 16020"}, 16020),
    quoted=({"config": 'statusPort: "16020"'}, 16020),
    last_wins=({"config": "statusPort: 1\nstatusPort: 16020"}, 16020),
    switched_off=({"config": "statusPort: 0"}, 0),
    says_nothing=({"config": "concurrency: 2"}, MESH),
    nested=({"config": "proxyMetadata:\n  statusPort: '16020'"}, MESH),
    comment=({"config": "# statusPort: 16020"}, MESH),
    no_port=({"config": "statusPort: 65536"}, MESH),
    no_number=({"config": "statusPort: true"}, MESH),
    a_list=({"config": "statusPort: [16020]"}, MESH),
    no_mapping=({"config": "- statusPort"}, MESH),
    alias=({"config": "statusPort: &a 16020\nx: *a"}, MESH),
    no_yaml=({"config": "statusPort: {"}, MESH),
    as_long_as_is_read=({"config": "statusPort: 16020\n".ljust(2048, "#")}, 16020),
    too_long=({"config": "statusPort: 16020\n".ljust(2049, "#")}, MESH),
    too_deep=({"config": "statusPort: " + "[" * 5000}, MESH),
)
def test_status_port_of_the_proxys_configuration_comes_before_the_meshs(
    notes: dict[str, str], port: int | None
):
    subject = noted(**notes)
    decision = decide(subject, status_port=MESH)

    found = (decision.reason, decision.port, decision.proxy_id)
    assert found == (
        ("BadStatusPort", 0, "")
        if port is None
        else ("PayloadFinished", port, "containerd://istio-proxy-0")
    )
    sources.compact(subject)
    assert decide(subject, status_port=MESH) == decision


# When the work of a pod ended.


def stamp(seconds: int) -> str:
    return f"2026-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


@given(st.lists(st.integers(0, 80_000), min_size=1, max_size=4))
def test_payload_ends_with_its_last_container(moments: list[int]):
    first, *rest = (ended(finished=stamp(moment)) for moment in moments)
    others: Any = {f"c{number}": state for number, state in enumerate(rest)}
    assert payload.find_end(pod(first, others=others), finished.Policy()) == stamp(max(moments))


@cases(
    ("one", "ignore", "has_ended"),
    proxy_has_ended=(pod(proxy=ended()), (), False),
    proxy_has_no_status=(pod(others={"istio-proxy": None}), (), False),
    at_an_unknown_time=(UNTIMED, (), False),
    payload_runs=(pod(running()), (), False),
    one_of_two_runs=(agent(running()), (), False),
    one_that_is_ignored_runs=(agent(running(), ignore="agent"), (), True),
    one_that_is_ignored_ends_later=row(
        one=agent(ended(finished=stamp(3600)), ignore="agent"), ignore=(), has_ended=True
    ),
    one_that_the_option_ignores_runs=(agent(running()), ("agent",), True),
    proxy_never_started=(pod(proxy=waiting()), (), True),
    all_ignored=(pod(), ("main",), True),
    all_ignored_and_one_runs=(pod(running()), ("main",), False),
)
def test_end_of_a_payload_is_that_beside_a_proxy(
    one: types.Pod, ignore: tuple[str, ...], has_ended: bool
):
    assert payload.find_end(one, finished.Policy(ignore_containers=ignore)) == (
        "2026-01-01T00:01:00Z" if has_ended else ""
    )


# What a pod can make the rules do is bounded, whatever is written into it.


@pytest.mark.parametrize("name", ["wait", "ignore"])
@cases(
    ("text", "is_read", "is_unknown"),
    as_long_as_is_read=("a" * payload.LONGEST_LIST, True, True),
    longer=("a" * (payload.LONGEST_LIST + 1), False, False),
    as_many_as_are_read=("a," * (payload.MOST_NAMES - 1), True, True),
    more=("a," * payload.MOST_NAMES, False, False),
    nothing_but_commas=("," * (payload.MOST_NAMES - 1), True, False),
    too_many_commas=("," * payload.MOST_NAMES, False, False),
)
def test_list_of_containers_is_read_up_to_a_length_and_else_reported(
    name: str, text: str, is_read: bool, is_unknown: bool
):
    decision = decide(noted(**{name: text}))

    assert decision.action is (Action.STOP if is_read else Action.REPORT)
    assert bool(decision.unknown) is is_unknown
    message = f"{KEYS[name]} is longer than 4096 characters or 64 names"
    assert is_read or (decision.reason, decision.message) == ("BadContainerList", message)


def test_messages_about_thousands_of_containers_name_a_few():
    for state, reason in ((running(), "PayloadRunning"), (ended(), "PayloadFinished")):
        decision = decide(pod(others={f"c{number}": state for number in range(MANY)}))
        assert decision.reason == reason
        more = MANY + (reason == "PayloadFinished") - payload.MOST_SAID
        assert decision.message.endswith(f"; and {more} more")
        assert len(decision.message) < 500
        others = {f"c{number}": state for number in range(payload.MOST_SAID - 1)}
        assert "more" not in decide(pod(state, others=others)).message


class Counting(str):
    """A name that counts how often it is compared."""

    __slots__ = ()

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counting.compared += 1
        return str.__eq__(self, other)  # type: ignore[no-any-return]


@pytest.mark.parametrize("wait_for", [(), ("main",)], ids=["all", "one-and-the-rest-holds"])
def test_work_of_the_rules_grows_with_the_containers_and_not_with_their_square(
    wait_for: tuple[str, ...],
):
    def compared(count: int) -> int:
        subject = pod(others={f"c{number}": ended() for number in range(count)})
        for each in (*subject.spec.containers, *subject.status.containerStatuses):
            each.name = Counting(each.name)
        Counting.compared = 0
        decide(subject, wait_for_containers=wait_for)
        return Counting.compared

    assert compared(400) < 3 * compared(200)

from __future__ import annotations

import msgspec
import pytest
from sidecar_lifecycle.decide import finished
from sidecar_lifecycle.model import types

from integrator_contract import names
from integrator_contract.answers import Action
from tests.unit.cases import cases
from tests.unit.workload import pods
from tests.unit.workload.pods import ended, pod, rule, running, waiting

WAIT = names.WAIT_FOR_CONTAINERS
IGNORE = names.IGNORE_CONTAINERS
SIDECAR = {"restartPolicy": "Always"}
LOST = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}
RESTARTING_ALL = {"type": "AllContainersRestarting", "status": "True"}


def decide(subject: types.Pod, **policy: object) -> finished.Decision:
    return finished.finished(subject, finished.Policy(**policy))  # type: ignore[arg-type]


def annotated(**values: str) -> dict[str, str]:
    keys = {
        "wait": WAIT,
        "ignore": IGNORE,
        "shutdown": names.PROXY_SHUTDOWN,
        "port": names.STATUS_PORT,
    }
    return {keys[key]: value for key, value in values.items()}


@cases(
    ("subject", "want"),
    # The plain story of a Job.
    never_completed=(pod(), "stop PayloadFinished"),
    never_failed=(pod(ended(1)), "stop PayloadFinished"),
    onfailure_completed=(pod(policy="OnFailure"), "stop PayloadFinished"),
    payload_runs=(pod(running()), "wait PayloadRunning"),
    onfailure_window=(pod(ended(1), policy="OnFailure"), "wait PayloadRestarting"),
    onfailure_oom=(pod(ended(137), policy="OnFailure"), "wait PayloadRestarting"),
    always_between_restarts=(pod(policy="Always"), "ignore RestartsAlways"),
    policy_of_a_newer_kubernetes=(pod(policy="New"), "ignore RestartsAlways"),
    payload_lost_by_the_runtime=(pod(LOST), "wait PayloadRestarting"),
    proxy_lost_by_the_runtime=(pod(running(), proxy=LOST), "wait ProxyRestarting"),
    # Waiting is not finished, whatever came before.
    crash_loop=(pod(waiting()), "wait PayloadWaiting"),
    image_pull=(pod(waiting("ImagePullBackOff")), "wait PayloadWaiting"),
    never_started=(pod(waiting("PodInitializing")), "wait PayloadWaiting"),
    empty_state=(pod({}, others={"side": running()}), "wait PayloadWaiting"),
    two_states=(pod({**ended(), **waiting()}), "wait PayloadWaiting"),
    # Several containers.
    second_runs=(pod(others={"side": running()}), "wait PayloadRunning"),
    both_ended=(pod(others={"side": ended(2)}), "stop PayloadFinished"),
    second_without_status=(pod(others={"side": None}), "wait NoStatus"),
    # Rules of single containers.
    rule_restarts_a_never_pod=(
        pod(ended(42), main_spec={"restartPolicyRules": [rule("Restart", 42)]}),
        "wait PayloadRestarting",
    ),
    rule_of_another_code=(
        pod(ended(1), main_spec={"restartPolicyRules": [rule("Restart", 42)]}),
        "stop PayloadFinished",
    ),
    container_policy_beats_the_pods=(
        pod(ended(1), main_spec={"restartPolicy": "OnFailure"}),
        "wait PayloadRestarting",
    ),
    container_never_in_an_onfailure_pod=(
        pod(ended(1), policy="OnFailure", main_spec={"restartPolicy": "Never"}),
        "stop PayloadFinished",
    ),
    restart_all=(
        pod(ended(3), main_spec={"restartPolicyRules": [rule("RestartAllContainers", 3)]}),
        "wait PayloadRestarting",
    ),
    unknown_action=(
        pod(ended(3), main_spec={"restartPolicyRules": [rule("SomethingNew", 3)]}),
        "wait PayloadRestarting",
    ),
    restart_all_of_another_containers_code=(
        pod(
            others={"trigger": ended(9)},
            annotations=annotated(wait="main"),
            main_spec={"restartPolicyRules": [rule("RestartAllContainers", 9)]},
        ),
        "stop PayloadFinished",
    ),
    restart_all_from_a_native_sidecar=(
        pod(
            init=[
                pods.container(
                    "helper", **SIDECAR, restartPolicyRules=[rule("RestartAllContainers", 9)]
                )
            ],
            init_statuses=[pods.status("helper", ended(9))],
        ),
        "wait PodRestarting",
    ),
    restart_under_way=(pod(conditions=[RESTARTING_ALL]), "wait PodRestarting"),
    # Init containers, other people's sidecars, ephemeral containers.
    init_runs_again_in_a_new_sandbox=(
        pod(init=[pods.container("setup")], init_statuses=[pods.status("setup", running())]),
        "wait Initializing",
    ),
    other_native_sidecar_runs=(
        pod(
            init=[pods.container("vault", **SIDECAR)],
            init_statuses=[pods.status("vault", running())],
        ),
        "stop PayloadFinished",
    ),
    # Proxies of other kinds and states.
    native_proxy=(pod(init=[pods.container("istio-proxy", **SIDECAR)]), "ignore NativeSidecar"),
    proxy_crash_loop=(pod(proxy=waiting()), "report ProxyNotRunning"),
    proxy_customised_and_never_injected=(
        pod(proxy=waiting("ErrImagePull"), proxy_spec={"image": "auto"}),
        "report ProxyNotRunning",
    ),
    proxy_already_stopped=(pod(proxy=ended()), "ignore ProxyEnded"),
    proxy_comes_back=(pod(policy="OnFailure", proxy=ended(1)), "wait ProxyRestarting"),
    proxy_restarts_always=(
        pod(proxy_spec={"restartPolicy": "Always"}),
        "ignore RestartsAlways",
    ),
    proxy_without_envoy=(
        pod(annotations={names.TEMPLATES: "grpc-agent"}),
        "report ProxyWithoutEnvoy",
    ),
    proxy_without_envoy_and_a_payload_that_runs=(
        pod(running(), annotations={names.TEMPLATES: "grpc-agent"}),
        "wait PayloadRunning",
    ),
    proxy_of_another_template=(
        pod(annotations={names.TEMPLATES: "sidecar,ours"}),
        "stop PayloadFinished",
    ),
    # The reverse failure.
    lost_never=(pod(running(), proxy=ended(0)), "report ProxyLost"),
    lost_zero=(pod(running(), proxy=ended(0), policy="OnFailure"), "report ProxyLost"),
    lost_but_restarting=(
        pod(running(), proxy=ended(1), policy="OnFailure"),
        "wait ProxyRestarting",
    ),
    lost_in_hold=(pod(waiting("PodInitializing"), proxy=ended(0)), "report ProxyLost"),
    kubelet_evicts=(
        pod(
            running(), proxy=ended(0), conditions=[{"type": "DisruptionTarget", "status": "True"}]
        ),
        "ignore Disrupted",
    ),
    proxy_ended_in_a_restart_of_all=(
        pod(proxy=ended(), conditions=[RESTARTING_ALL]),
        "wait PodRestarting",
    ),
    ignored_without_status=(
        pod(others={"agent": None}, annotations=annotated(ignore="agent")),
        "wait NoStatus",
    ),
    # Pods that are going, or gone, or not there yet.
    being_deleted=(pod(deletionTimestamp="2026-01-01T00:02:00Z"), "ignore Deleted"),
    succeeded=(pod(phase="Succeeded"), "ignore Ended"),
    failed=(pod(phase="Failed"), "ignore Ended"),
    # A kubelet's phase where a container has not started.
    pending_starts=(
        pod(waiting("ContainerCreating"), proxy=waiting("ContainerCreating"), phase="Pending"),
        "wait PayloadWaiting",
    ),
    pending_proxy_never_started=(
        pod(proxy=waiting("ImagePullBackOff"), phase="Pending"),
        "report ProxyNotRunning",
    ),
    pending_ignored_container_never_started=(
        pod(
            others={"agent": waiting("ImagePullBackOff")},
            annotations=annotated(ignore="agent"),
            phase="Pending",
        ),
        "stop PayloadFinished",
    ),
    pending_proxy_lost_before_the_payload_starts=(
        pod(waiting("ImagePullBackOff"), proxy=ended(1), phase="Pending"),
        "report ProxyLost",
    ),
    unknown=(pod(phase="Unknown"), "wait NotRunning"),
    no_phase=(pod(phase=""), "wait NotRunning"),
    stale_status=(pod(ended(finished="2025-12-31T23:59:59Z")), "wait StaleStatus"),
    # What people ask for.
    disabled=(pod(annotations=annotated(shutdown="disabled")), "ignore Disabled"),
    port_0=(pod(annotations=annotated(port="0")), "stop PayloadFinished"),
    port_x=(pod(annotations=annotated(port="x")), "report BadStatusPort"),
    ignored_runs_on=(
        pod(others={"agent": running()}, annotations=annotated(ignore="agent")),
        "stop PayloadFinished",
    ),
    ignored_ended=(
        pod(running(), others={"agent": ended()}, annotations=annotated(ignore="agent")),
        "wait PayloadRunning",
    ),
    waited_for_ended=(
        pod(others={"agent": running()}, annotations=annotated(wait="main")),
        "stop PayloadFinished",
    ),
    argo_waits_for_both=(
        pod(others={"wait": running()}, annotations=annotated(wait="main, wait")),
        "wait PayloadRunning",
    ),
    unknown_name_widens_to_all=(
        pod(others={"agent": running()}, annotations=annotated(wait="main,typo")),
        "wait PayloadRunning",
    ),
    unknown_ignored_name_changes_nothing=(
        pod(others={"agent": running()}, annotations=annotated(ignore="agnet")),
        "wait PayloadRunning",
    ),
    all_ignored=(pod(annotations=annotated(ignore="main")), "report NothingToWaitFor"),
    waiting_for_the_proxy_itself=(
        pod(others={"agent": running()}, annotations=annotated(wait="istio-proxy")),
        "wait PayloadRunning",
    ),
)
def test_decision_for_a_pod(subject: types.Pod, want: str):
    decision = decide(subject)

    assert f"{decision.action} {decision.reason}" == want, decision.message
    assert decision.message


@pytest.mark.parametrize(
    ("left", "want"), [("main", "NoProxy"), ("istio-proxy", "NothingToWaitFor")]
)
def test_pod_of_one_container_is_left_alone(left: str, want: str):
    subject = pod()
    subject.spec.containers = [each for each in subject.spec.containers if each.name == left]

    assert decide(subject).reason == want


def test_running_ephemeral_container_does_not_hold_the_proxy():
    subject = pods.pod_json()
    subject["spec"]["ephemeralContainers"] = [{"name": "debug"}]
    debug = pods.status("debug", pods.running())
    subject["status"]["ephemeralContainerStatuses"] = [debug]

    assert decide(msgspec.convert(subject, types.Pod)).action is Action.STOP


@pytest.mark.parametrize(
    ("text", "port"),
    [("1", 1), (" 15020 ", 15020), ("65535", 65535), ("65536", None), ("-1", None), ("²", None)],
)
def test_status_port_of_the_pod_is_one_that_there_is(text: str, port: int | None):
    decision = decide(pod(annotations=annotated(port=text)))

    want = ("PayloadFinished", port, "containerd://istio-proxy-0")
    assert (decision.reason, decision.port, decision.proxy_id) == (
        want if port else ("BadStatusPort", 0, "")
    )


def test_status_port_of_the_mesh_is_the_default():
    assert decide(pod(), status_port=17020).port == 17020
    assert decide(pod(), status_port=0).port == 0


def test_ignored_container_that_runs_on_is_named_as_holding_the_pod():
    decision = decide(pod(others={"agent": running()}, annotations=annotated(ignore="agent")))

    assert decision.holding == ("agent",)
    assert decision.containers == ("main",)


def test_unknown_names_of_annotations_are_named_but_another_native_sidecar_is_known():
    wrong = annotated(wait="main,typo", ignore="agnet,vault")
    subject = pod(init=[pods.container("vault", **SIDECAR)], annotations=wrong)

    assert decide(subject).unknown == ("typo", "agnet")


@cases(
    ("wait_for", "ignore", "want"),
    nothing_configured=((), (), "wait"),
    wait_for_main=(("main",), (), "stop"),
    wait_for_a_name_this_pod_lacks=(("other",), (), "wait"),
    wait_for_those_of_the_names_it_has=(("main", "other"), (), "stop"),
    ignore_agent=((), ("agent",), "stop"),
    ignore_a_name_this_pod_lacks=((), ("agnet",), "wait"),
)
def test_options_apply_where_annotations_say_nothing(
    wait_for: tuple[str, ...], ignore: tuple[str, ...], want: str
):
    subject = pod(others={"agent": running()})

    assert decide(subject, wait_for_containers=wait_for, ignore_containers=ignore).action == want


def test_annotation_beats_option():
    subject = pod(others={"agent": running()}, annotations=annotated(wait="agent"))

    assert decide(subject, wait_for_containers=("main",)).action is Action.WAIT


def test_switched_off_and_disabled_namespace_leave_the_pod_alone():
    assert decide(pod(), enabled=False).reason == "SwitchedOff"
    assert decide(pod(), namespace_enabled=False).reason == "NamespaceDisabled"


@cases(
    "unknown",
    no_condition_that_we_know={"action": "Restart"},
    unknown_operator=rule("Restart", 7, operator="GreaterThan"),
)
def test_rule_of_a_newer_kubernetes_is_expected_to_restart(unknown: dict[str, object]):
    decision = decide(pod(ended(0), main_spec={"restartPolicyRules": [unknown]}))

    assert decision.reason == "PayloadRestarting"


@cases(
    ("condition", "status", "want"),
    disrupted=("DisruptionTarget", "True", "Disrupted"),
    not_any_more=("DisruptionTarget", "False", "ProxyLost"),
    another_condition=("PodScheduled", "True", "ProxyLost"),
)
def test_only_a_disruption_that_goes_on_explains_a_lost_proxy(
    condition: str, status: str, want: str
):
    subject = pod(running(), proxy=ended(), conditions=[{"type": condition, "status": status}])
    assert decide(subject).reason == want

    subject.status.reason = "Evicted"
    assert decide(subject).reason == "Disrupted"

from __future__ import annotations

import msgspec
import pytest
from sidecar_lifecycle.decide import finished
from sidecar_lifecycle.model import types

from integrator_contract import names
from integrator_contract.answers import Action
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


CASES = [
    # The plain story of a Job.
    pytest.param(pod(), "stop", "PayloadFinished", id="never-completed"),
    pytest.param(pod(ended(1)), "stop", "PayloadFinished", id="never-failed"),
    pytest.param(pod(policy="OnFailure"), "stop", "PayloadFinished", id="onfailure-completed"),
    pytest.param(pod(running()), "wait", "PayloadRunning", id="payload-runs"),
    pytest.param(
        pod(ended(1), policy="OnFailure"), "wait", "PayloadRestarting", id="onfailure-window"
    ),
    pytest.param(
        pod(ended(137), policy="OnFailure"), "wait", "PayloadRestarting", id="onfailure-oom"
    ),
    pytest.param(pod(policy="Always"), "ignore", "RestartsAlways", id="always-between-restarts"),
    pytest.param(pod(policy="New"), "ignore", "RestartsAlways", id="policy-of-a-newer-kubernetes"),
    pytest.param(pod(LOST), "wait", "PayloadRestarting", id="payload-lost-by-the-runtime"),
    pytest.param(
        pod(running(), proxy=LOST), "wait", "ProxyRestarting", id="proxy-lost-by-the-runtime"
    ),
    # Waiting is not finished, whatever came before.
    pytest.param(pod(waiting()), "wait", "PayloadWaiting", id="crash-loop"),
    pytest.param(pod(waiting("ImagePullBackOff")), "wait", "PayloadWaiting", id="image-pull"),
    pytest.param(pod(waiting("PodInitializing")), "wait", "PayloadWaiting", id="never-started"),
    pytest.param(pod({}, others={"side": running()}), "wait", "PayloadWaiting", id="empty-state"),
    pytest.param(pod({**ended(), **waiting()}), "wait", "PayloadWaiting", id="two-states"),
    # Several containers.
    pytest.param(pod(others={"side": running()}), "wait", "PayloadRunning", id="second-runs"),
    pytest.param(pod(others={"side": ended(2)}), "stop", "PayloadFinished", id="both-ended"),
    pytest.param(pod(others={"side": None}), "wait", "NoStatus", id="second-without-status"),
    # Rules of single containers.
    pytest.param(
        pod(ended(42), main_spec={"restartPolicyRules": [rule("Restart", 42)]}),
        "wait",
        "PayloadRestarting",
        id="rule-restarts-a-never-pod",
    ),
    pytest.param(
        pod(ended(1), main_spec={"restartPolicyRules": [rule("Restart", 42)]}),
        "stop",
        "PayloadFinished",
        id="rule-of-another-code",
    ),
    pytest.param(
        pod(ended(1), main_spec={"restartPolicy": "OnFailure"}),
        "wait",
        "PayloadRestarting",
        id="container-policy-beats-the-pods",
    ),
    pytest.param(
        pod(ended(1), policy="OnFailure", main_spec={"restartPolicy": "Never"}),
        "stop",
        "PayloadFinished",
        id="container-never-in-an-onfailure-pod",
    ),
    pytest.param(
        pod(ended(3), main_spec={"restartPolicyRules": [rule("RestartAllContainers", 3)]}),
        "wait",
        "PayloadRestarting",
        id="restart-all",
    ),
    pytest.param(
        pod(ended(3), main_spec={"restartPolicyRules": [rule("SomethingNew", 3)]}),
        "wait",
        "PayloadRestarting",
        id="unknown-action",
    ),
    pytest.param(
        pod(
            others={"trigger": ended(9)},
            annotations=annotated(wait="main"),
            main_spec={"restartPolicyRules": [rule("RestartAllContainers", 9)]},
        ),
        "stop",
        "PayloadFinished",
        id="restart-all-of-another-containers-code",
    ),
    pytest.param(
        pod(
            init=[
                pods.container(
                    "helper", **SIDECAR, restartPolicyRules=[rule("RestartAllContainers", 9)]
                )
            ],
            init_statuses=[pods.status("helper", ended(9))],
        ),
        "wait",
        "PodRestarting",
        id="restart-all-from-a-native-sidecar",
    ),
    pytest.param(
        pod(conditions=[RESTARTING_ALL]), "wait", "PodRestarting", id="restart-under-way"
    ),
    # Init containers, other people's sidecars, ephemeral containers.
    pytest.param(
        pod(
            init=[pods.container("setup")],
            init_statuses=[pods.status("setup", running())],
        ),
        "wait",
        "Initializing",
        id="init-runs-again-in-a-new-sandbox",
    ),
    pytest.param(
        pod(
            init=[pods.container("vault", **SIDECAR)],
            init_statuses=[pods.status("vault", running())],
        ),
        "stop",
        "PayloadFinished",
        id="other-native-sidecar-runs",
    ),
    # Proxies of other kinds and states.
    pytest.param(
        pod(init=[pods.container("istio-proxy", **SIDECAR)]),
        "ignore",
        "NativeSidecar",
        id="native-proxy",
    ),
    pytest.param(pod(proxy=waiting()), "report", "ProxyNotRunning", id="proxy-crash-loop"),
    pytest.param(
        pod(proxy=waiting("ErrImagePull"), proxy_spec={"image": "auto"}),
        "report",
        "ProxyNotRunning",
        id="proxy-customised-and-never-injected",
    ),
    pytest.param(pod(proxy=ended()), "ignore", "ProxyEnded", id="proxy-already-stopped"),
    pytest.param(
        pod(policy="OnFailure", proxy=ended(1)), "wait", "ProxyRestarting", id="proxy-comes-back"
    ),
    pytest.param(
        pod(proxy_spec={"restartPolicy": "Always"}),
        "ignore",
        "RestartsAlways",
        id="proxy-restarts-always",
    ),
    pytest.param(
        pod(annotations={names.TEMPLATES: "grpc-agent"}),
        "report",
        "ProxyWithoutEnvoy",
        id="proxy-without-envoy",
    ),
    pytest.param(
        pod(running(), annotations={names.TEMPLATES: "grpc-agent"}),
        "wait",
        "PayloadRunning",
        id="proxy-without-envoy-and-a-payload-that-runs",
    ),
    pytest.param(
        pod(annotations={names.TEMPLATES: "sidecar,ours"}),
        "stop",
        "PayloadFinished",
        id="proxy-of-another-template",
    ),
    # The reverse failure.
    pytest.param(pod(running(), proxy=ended(0)), "report", "ProxyLost", id="lost-never"),
    pytest.param(
        pod(running(), proxy=ended(0), policy="OnFailure"), "report", "ProxyLost", id="lost-zero"
    ),
    pytest.param(
        pod(running(), proxy=ended(1), policy="OnFailure"),
        "wait",
        "ProxyRestarting",
        id="lost-but-restarting",
    ),
    pytest.param(
        pod(waiting("PodInitializing"), proxy=ended(0)), "report", "ProxyLost", id="lost-in-hold"
    ),
    pytest.param(
        pod(
            running(),
            proxy=ended(0),
            conditions=[{"type": "DisruptionTarget", "status": "True"}],
        ),
        "ignore",
        "Disrupted",
        id="kubelet-evicts",
    ),
    pytest.param(
        pod(proxy=ended(), conditions=[RESTARTING_ALL]),
        "wait",
        "PodRestarting",
        id="proxy-ended-in-a-restart-of-all",
    ),
    pytest.param(
        pod(others={"agent": None}, annotations=annotated(ignore="agent")),
        "wait",
        "NoStatus",
        id="ignored-without-status",
    ),
    # Pods that are going, or gone, or not there yet.
    pytest.param(
        pod(deletionTimestamp="2026-01-01T00:02:00Z"), "ignore", "Deleted", id="being-deleted"
    ),
    pytest.param(pod(phase="Succeeded"), "ignore", "Ended", id="succeeded"),
    pytest.param(pod(phase="Failed"), "ignore", "Ended", id="failed"),
    # A kubelet's phase where a container has not started.
    pytest.param(
        pod(waiting("ContainerCreating"), proxy=waiting("ContainerCreating"), phase="Pending"),
        "wait",
        "PayloadWaiting",
        id="pending-starts",
    ),
    pytest.param(
        pod(proxy=waiting("ImagePullBackOff"), phase="Pending"),
        "report",
        "ProxyNotRunning",
        id="pending-proxy-never-started",
    ),
    pytest.param(
        pod(
            others={"agent": waiting("ImagePullBackOff")},
            annotations=annotated(ignore="agent"),
            phase="Pending",
        ),
        "stop",
        "PayloadFinished",
        id="pending-ignored-container-never-started",
    ),
    pytest.param(
        pod(waiting("ImagePullBackOff"), proxy=ended(1), phase="Pending"),
        "report",
        "ProxyLost",
        id="pending-proxy-lost-before-the-payload-starts",
    ),
    pytest.param(pod(phase="Unknown"), "wait", "NotRunning", id="unknown"),
    pytest.param(pod(phase=""), "wait", "NotRunning", id="no-phase"),
    pytest.param(
        pod(ended(finished="2025-12-31T23:59:59Z")), "wait", "StaleStatus", id="stale-status"
    ),
    # What people ask for.
    pytest.param(
        pod(annotations=annotated(shutdown="disabled")), "ignore", "Disabled", id="disabled"
    ),
    pytest.param(pod(annotations=annotated(port="0")), "stop", "PayloadFinished", id="port-0"),
    pytest.param(pod(annotations=annotated(port="x")), "report", "BadStatusPort", id="port-x"),
    pytest.param(
        pod(others={"agent": running()}, annotations=annotated(ignore="agent")),
        "stop",
        "PayloadFinished",
        id="ignored-runs-on",
    ),
    pytest.param(
        pod(running(), others={"agent": ended()}, annotations=annotated(ignore="agent")),
        "wait",
        "PayloadRunning",
        id="ignored-ended",
    ),
    pytest.param(
        pod(others={"agent": running()}, annotations=annotated(wait="main")),
        "stop",
        "PayloadFinished",
        id="waited-for-ended",
    ),
    pytest.param(
        pod(others={"wait": running()}, annotations=annotated(wait="main, wait")),
        "wait",
        "PayloadRunning",
        id="argo-waits-for-both",
    ),
    pytest.param(
        pod(others={"agent": running()}, annotations=annotated(wait="main,typo")),
        "wait",
        "PayloadRunning",
        id="unknown-name-widens-to-all",
    ),
    pytest.param(
        pod(others={"agent": running()}, annotations=annotated(ignore="agnet")),
        "wait",
        "PayloadRunning",
        id="unknown-ignored-name-changes-nothing",
    ),
    pytest.param(
        pod(annotations=annotated(ignore="main")), "report", "NothingToWaitFor", id="all-ignored"
    ),
    pytest.param(
        pod(others={"agent": running()}, annotations=annotated(wait="istio-proxy")),
        "wait",
        "PayloadRunning",
        id="waiting-for-the-proxy-itself",
    ),
]


@pytest.mark.parametrize(("subject", "want", "reason"), CASES)
def test_decision_for_a_pod(subject: types.Pod, want: str, reason: str):
    decision = decide(subject)

    assert (decision.action, decision.reason) == (want, reason), decision.message
    assert decision.message


def test_pod_without_proxy_is_ignored():
    subject = pod()
    subject.spec.containers = subject.spec.containers[:1]

    assert decide(subject).reason == "NoProxy"


def test_pod_of_proxy_alone_is_reported_as_nothing_to_wait_for():
    subject = pod()
    subject.spec.containers = subject.spec.containers[1:]

    assert decide(subject).reason == "NothingToWaitFor"


def test_running_ephemeral_container_does_not_hold_the_proxy():
    subject = pods.pod_json()
    subject["spec"]["ephemeralContainers"] = [{"name": "debug"}]
    debug = pods.status("debug", pods.running())
    subject["status"]["ephemeralContainerStatuses"] = [debug]

    assert decide(msgspec.convert(subject, types.Pod)).action is Action.STOP


def test_stop_names_port_and_proxy_of_the_pod():
    decision = decide(pod(annotations=annotated(port="16020")))

    assert (decision.port, decision.proxy_id) == (16020, "containerd://istio-proxy-0")


@pytest.mark.parametrize(
    ("text", "port"),
    [("1", 1), (" 15020 ", 15020), ("65535", 65535), ("65536", None), ("-1", None), ("²", None)],
)
def test_status_port_of_the_pod_is_one_that_there_is(text: str, port: int | None):
    decision = decide(pod(annotations=annotated(port=text)))

    assert (decision.reason, decision.port) == (
        ("PayloadFinished", port) if port else ("BadStatusPort", 0)
    )


def test_status_port_of_the_mesh_is_the_default():
    assert decide(pod(), status_port=17020).port == 17020
    assert decide(pod(), status_port=0).port == 0


def test_ignored_container_that_runs_on_is_named_as_holding_the_pod():
    decision = decide(pod(others={"agent": running()}, annotations=annotated(ignore="agent")))

    assert decision.holding == ("agent",)
    assert decision.containers == ("main",)


def test_unknown_names_of_annotations_are_named():
    decision = decide(pod(annotations=annotated(wait="main,typo", ignore="agnet")))

    assert decision.unknown == ("typo", "agnet")


def test_ignoring_another_native_sidecar_by_name_is_no_mistake():
    subject = pod(init=[pods.container("vault", **SIDECAR)], annotations=annotated(ignore="vault"))

    assert decide(subject).unknown == ()


@pytest.mark.parametrize(
    ("wait_for", "ignore", "want"),
    [
        pytest.param((), (), "wait", id="nothing-configured"),
        pytest.param(("main",), (), "stop", id="wait-for-main"),
        pytest.param(("other",), (), "wait", id="wait-for-a-name-this-pod-lacks"),
        pytest.param(("main", "other"), (), "stop", id="wait-for-those-of-the-names-it-has"),
        pytest.param((), ("agent",), "stop", id="ignore-agent"),
        pytest.param((), ("agnet",), "wait", id="ignore-a-name-this-pod-lacks"),
    ],
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


@pytest.mark.parametrize(
    "unknown",
    [
        pytest.param({"action": "Restart"}, id="no-condition-that-we-know"),
        pytest.param(rule("Restart", 7, operator="GreaterThan"), id="unknown-operator"),
    ],
)
def test_rule_of_a_newer_kubernetes_is_expected_to_restart(unknown: dict[str, object]):
    decision = decide(pod(ended(0), main_spec={"restartPolicyRules": [unknown]}))

    assert decision.reason == "PayloadRestarting"


def test_pod_that_the_kubelet_evicts_is_no_lost_proxy():
    subject = pod(running(), proxy=ended())
    subject.status.reason = "Evicted"

    assert decide(subject).reason == "Disrupted"


@pytest.mark.parametrize(
    ("condition", "status", "want"),
    [
        pytest.param("DisruptionTarget", "True", "Disrupted", id="disrupted"),
        pytest.param("DisruptionTarget", "False", "ProxyLost", id="not-any-more"),
        pytest.param("PodScheduled", "True", "ProxyLost", id="another-condition"),
    ],
)
def test_only_a_disruption_that_goes_on_explains_a_lost_proxy(
    condition: str, status: str, want: str
):
    subject = pod(running(), proxy=ended(), conditions=[{"type": condition, "status": status}])

    assert decide(subject).reason == want

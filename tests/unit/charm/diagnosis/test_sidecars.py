"""Pods that are not in the mesh, and calls that a proxy breaks."""

import dataclasses
import types

import pytest

from integrator_contract.answers import Listing, PodAnswer, Summary, Trouble
from istio_integrator.diagnosis.checks import sidecars
from istio_integrator.messages import Said
from tests.unit.charm.diagnosis.objects import ALIVE

SUMMARY = {
    "eligible": 3,
    "in_mesh": 3,
    "converging": 0,
    "proposed": 0,
    "troubles": (),
    "reported": 0,
}

BARE = PodAnswer(
    namespace="a",
    name="bare",
    workload="",
    fixable=False,
    reason="BarePod",
    message="nothing would create it again",
)

LIST = "juju run app/leader list-uninjected"
HELD = Trouble("minio", "StillNoSidecar", "again none")
HANGS = Trouble("Deployment/web", "ReplacementHangs", "web-1 cannot start", "web-1")
DESCRIBE = "kubectl -n m describe pod web-1"


def judged(*pods, old=(), **summary):
    answer = Listing(contract="", pods=tuple(pods), summary=Summary(**{**SUMMARY, **summary}))
    return list(sidecars.judge(answer, old, application="app", model="m"))


def test_model_that_is_whole_is_one_line():
    assert judged() == [Said.PODS_IN_MESH(pods="3/3", details="")]


def test_pods_are_named_with_what_keeps_the_sidecar_from_them():
    found = judged(
        BARE,
        dataclasses.replace(BARE, name="b"),
        dataclasses.replace(BARE, name="c", message="it is a Job"),
    )
    assert found == [
        Said.NO_SIDECAR(pods="a/bare, a/b", reason=BARE.message, application="app"),
        Said.NO_SIDECAR(pods="a/c", reason="it is a Job", application="app"),
    ]


def test_pods_are_named_that_have_a_sidecar_and_are_wrong():
    pod = dataclasses.replace(
        BARE, reason="WrongOrder", message="its first container is not charm"
    )
    assert judged(pod) == [
        Said.WRONG_POD(pods="a/bare", reason="its first container is not charm", application="app")
    ]


@pytest.mark.parametrize(
    ("summary", "want", "command"),
    [
        pytest.param(
            {"in_mesh": 1, "proposed": 2},
            Said.PODS_TO_RESTART,
            "juju run app/leader restart-uninjected",
            id="ask",
        ),
        pytest.param(
            {"in_mesh": 2, "converging": 1}, Said.PODS_BEING_REPLACED, "", id="converging"
        ),
        pytest.param({"in_mesh": 2, "troubles": (HELD,)}, Said.PODS_HANG, LIST, id="held"),
        pytest.param({"in_mesh": 2, "troubles": (HANGS,)}, Said.PODS_HANG, DESCRIBE, id="hangs"),
    ],
)
def test_problems_of_the_status_are_repeated(summary, want, command):
    found = judged(**summary)[0]
    assert (found.said, found.command) == (want, command)


def test_old_proxies_are_named_by_their_reason():
    rows = [dataclasses.replace(BARE, name="x", message="revision 1-30")]
    assert judged(old=rows) == [
        Said.OLD_PROXY(pods="a/x", reason="revision 1-30", application="app")
    ]


def starting(*, inits=("istio-validation",), proxy="istio-proxy", **annotations):
    marks = {key.replace("_", "/"): value for key, value in annotations.items()}
    return {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "a", "annotations": marks},
        "spec": {
            "containers": [{"name": "main"}, {"name": proxy}],
            "initContainers": [{"name": name} for name in inits],
        },
    }


def daemonset(desired, ready):
    return {
        "kind": "DaemonSet",
        "metadata": {"name": "istio-cni-node", "namespace": "kube-system"},
        "status": {"desiredNumberScheduled": desired, "numberReady": ready},
    }


OPEN = {"traffic.sidecar.istio.io_excludeOutboundPorts": "17070"}
RANGES = "traffic.sidecar.istio.io_includeOutboundIPRanges"
# As the injection template of Istio's charts writes them where the plugin redirects.
NOTED = {RANGES: "*", "traffic.sidecar.istio.io_excludeOutboundPorts": ""}
FEW = {RANGES: "10.0.0.0/8"}


@pytest.mark.parametrize(
    ("pods", "daemonsets", "want"),
    [
        pytest.param([starting()], [daemonset(3, 3)], Said.CNI_READY, id="well"),
        pytest.param([starting()], [daemonset(3, 2)], Said.CNI_NOT_READY, id="a-node-without-it"),
        pytest.param(
            [starting(inits=("istio-validation", "charm-init"))],
            [],
            Said.INIT_WITHOUT_NETWORK,
            id="cut-off",
        ),
        pytest.param(
            [starting(inits=("istio-validation", "init"), **OPEN)],
            [],
            Said.CNI_READY,
            id="excluded",
        ),
        pytest.param(
            [starting(inits=("istio-validation", "init"), **NOTED)],
            [],
            Said.INIT_WITHOUT_NETWORK,
            id="istiod",
        ),
        pytest.param(
            [starting(inits=("istio-validation", "init"), **FEW)],
            [],
            Said.CNI_READY,
            id="few-ranges",
        ),
        pytest.param(
            [starting(inits=("istio-proxy", "init"), proxy="x")], [], Said.CNI_READY, id="native"
        ),
    ],
)
def test_cni_plugin_and_init_containers(pods, daemonsets, want):
    (found,) = sidecars.judge_cni(pods, daemonsets, application="app")
    assert found.said is want


READY = {"conditions": [{"type": "Ready", "status": "True"}]}
TAKEN = {"ambient.istio.io/redirection": "enabled"}


def taken(name="web", *, labels=None, annotations=None, status=READY, **spec):
    metadata = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def judged_ambient(*pods, beyond=()):
    return list(sidecars.judge_ambient(pods, beyond, application="me"))


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(taken(labels={"istio.io/dataplane-mode": "none"}), id="outside"),
        pytest.param(taken(annotations={"sidecar.istio.io/status": "{}"}), id="leftover"),
        pytest.param(taken(hostNetwork=True), id="host"),
        pytest.param(taken(status={}), id="not-ready"),
        pytest.param(taken(annotations=TAKEN), id="taken"),
    ],
)
def test_pod_that_ztunnel_has_or_need_not_have_is_fine(one):
    assert judged_ambient(one) == [Said.PODS_IN_ZTUNNEL()]


def test_pod_that_no_ztunnel_has_is_named():
    found = judged_ambient(taken(), taken("b", annotations=TAKEN))
    assert found == [Said.PODS_NOT_IN_ZTUNNEL(pods="web")]


def test_rules_that_need_a_waypoint_are_named():
    _, found = judged_ambient(beyond=["app=kfp-api"])
    assert found == Said.HTTP_RULES_NEED_WAYPOINT(workloads="app=kfp-api", application="me")


@pytest.mark.parametrize(
    ("registry_only", "want"),
    [(True, Said.EGRESS_REGISTRY_ONLY), (False, Said.EGRESS_OPEN)],
)
def test_outbound_policy_is_named(registry_only, want):
    mesh = dataclasses.replace(ALIVE, registry_only=registry_only, captures_outbound=False)
    (found,) = sidecars.egress(types.SimpleNamespace(mesh=mesh))
    assert found.said is want


def charm(**annotations):
    marks = {key.replace("_", "/"): value for key, value in annotations.items()}
    return {
        "kind": "Pod",
        "metadata": {
            "name": "minio-0",
            "namespace": "a",
            "labels": {"app.kubernetes.io/name": "minio"},
            "annotations": marks,
        },
        "spec": {"containers": [{"name": "charm"}, {"name": "istio-proxy"}]},
    }


PORTS = "traffic.sidecar.istio.io_excludeOutboundPorts"


@pytest.mark.parametrize(
    ("pod", "cut"),
    [
        pytest.param(charm(), True, id="cut-off"),
        pytest.param(charm(**{PORTS: "443, 17070"}), False, id="past-the-proxy"),
        pytest.param(charm(**{PORTS: "443"}), True, id="another-port"),
    ],
)
def test_charm_must_reach_its_controller(pod, cut):
    found = list(sidecars.judge_controller([pod], [17070]))
    named = Said.CONTROLLER_NOT_REACHED(pods="Pod a/minio-0", namespace="a", name="minio-0")
    assert found == ([named] if cut else [])

"""Pods that are not in the mesh as they should be, do not end, or lose calls there."""

import datetime
import re

import pytest

from tests import asked
from tests.unit.cases import cases
from tests.unit.charm import fake_cluster
from tests.unit.charm.ambient_objects import install_ambient
from tests.unit.charm.charm_world import POD, state, workload
from tests.unit.charm.diagnosis.world import add_pod, diagnose, said

pytestmark = pytest.mark.usefixtures("installed")
LIST = "juju run mesh-2/leader list-uninjected"
PROXY, INIT = "istio-proxy", "istio-validation"
TRAFFIC = "traffic.sidecar.istio.io/"
PORTS, RANGES = f"{TRAFFIC}excludeOutboundPorts", f"{TRAFFIC}includeOutboundIPRanges"
EVERY = f"{TRAFFIC}excludeOutboundIPRanges"
READY = {"conditions": [{"type": "Ready", "status": "True"}]}
PROFILE = {"app.kubernetes.io/part-of": "kubeflow-profile"}
TAKEN = {"ambient.istio.io/redirection": "enabled"}


def trouble(workload, reason, message, pod=""):
    return {"workload": workload, "reason": reason, "message": message, "pod": pod}


HELD = trouble("minio", "StillNoSidecar", "again none")
HANGS = trouble("Deployment/web", "ReplacementHangs", "web-1 cannot start", "web-1")
OTHER = {**POD, "namespace": "kf-user", "name": "b", "message": "it is a Job"}
WRONG = {**POD, "reason": "WrongOrder", "message": "its first container is not charm"}


@cases(
    ("pods", "summary", "want"),
    whole=([], {}, [("PODS_IN_MESH", "14/14 pods in mesh", "")]),
    none=(
        [POD, {**POD, "name": "c"}, OTHER],
        {},
        [
            ("NO_SIDECAR", f"no sidecar: kf/c, kf/minio-0: {POD['message']}", LIST),
            ("NO_SIDECAR", "no sidecar: kf-user/b: it is a Job", LIST),
        ],
    ),
    wrong=([WRONG], {}, [("WRONG_POD", "its first container is not charm", LIST)]),
    unwanted=([{**POD, "reason": "SidecarUnwanted"}], {}, [("WRONG_POD", "kf/minio-0", LIST)]),
    excluded=([{**POD, "reason": "Excluded"}], {}, [("WRONG_POD", "kf/minio-0", LIST)]),
    ask=([], {"in_mesh": 1, "proposed": 13}, [("PODS_TO_RESTART", "1/14", "restart-uninjected")]),
    coming=([], {"in_mesh": 2, "converging": 1}, [("PODS_TO_BE_REPLACED", "2/14", LIST)]),
    held=([], {"in_mesh": 2, "troubles": [HELD]}, [("PODS_HANG", "again none", LIST)]),
    hangs=([], {"in_mesh": 2, "troubles": [HANGS]}, [("PODS_HANG", "", "describe pod web-1")]),
)
def test_pods_outside_the_mesh_are_named_with_the_reason(ctx, fake, pods, summary, want):
    add_pod(fake, "web-1")
    rows = diagnose(ctx, "sidecars", state(workload(*pods, **summary)))
    assert said(rows) == [name for name, _, _ in want]
    for row, (_, words, command) in zip(rows, want, strict=True):
        assert words in row.seen
        assert command in row.next


def test_old_proxies_are_named_by_their_reason(ctx):
    old = {**POD, "namespace": "kf-user", "message": "revision 1-30"}
    pods = workload(old, {**old, "namespace": "kf"}, stale=2)
    found = diagnose(ctx, "sidecars", state(pods))[-1]
    assert found.seen == "old proxy: kf-user/minio-0, kf/minio-0: revision 1-30"
    assert found.next == "juju run mesh-2/leader restart-stale"
    assert "/uninjected?stale=" in [path for _, path, _ in asked.SERVICE.requests]


WELL = "Istio's CNI plugin is ready"
ILL = "DaemonSet kube-system/istio-cni-node is not ready on 1 nodes: pods there do not start"
CUT_OFF = "init containers have no network before their classic proxy runs: Pod kf/a, Pod kf/b"


@cases(
    ("pod", "ready", "want"),
    well=({"inits": [INIT]}, 3, WELL),
    a_node_without_it=({"inits": [INIT]}, 2, ILL),
    cut_off=({"inits": [INIT, "init"]}, 3, CUT_OFF),
    excluded=({"inits": [INIT, "init"], "annotations": {PORTS: "17070"}}, 3, WELL),
    # As the injection template of Istio's charts writes them where the plugin redirects.
    noted=({"inits": [INIT, "i"], "annotations": {RANGES: "*", PORTS: ""}}, 3, CUT_OFF),
    ranges_left_out=({"inits": [INIT, "i"], "annotations": {EVERY: "10.0.0.0/8"}}, 3, WELL),
    few_ranges=({"inits": [INIT, "i"], "annotations": {RANGES: "10.0.0.0/8"}}, 3, WELL),
    native=({"inits": [PROXY, "init"], "containers": ["main"]}, 3, WELL),
    of_a_job=({"inits": [INIT, "i"], "status": {"phase": "Failed"}}, 3, CUT_OFF),
)
def test_cni_plugin_and_init_containers(ctx, fake, pod, ready, want):
    fake_cluster.install_istio(fake, cni=True)
    labels, status = {"k8s-app": "istio-cni-node"}, {"desiredNumberScheduled": 3}
    for name, count in (("a-cni-node", 3), ("istio-cni-node", ready)):
        more = {"labels": labels, "status": {**status, "numberReady": count}}
        fake.put("DaemonSet", name, "kube-system", **more)
    fake.put("DaemonSet", "other", "kube-system", status=status)
    for name in ("a", "b"):
        add_pod(fake, name, **{"containers": ["main", PROXY], **pod})
    (found,) = diagnose(ctx, "cni")
    assert found.seen == want
    assert want != ILL or found.next == "kubectl -n kube-system get pods -o wide"


@cases(
    ("pod", "is_named"),
    waiting=({}, True),
    outside=({"labels": {"istio.io/dataplane-mode": "none"}}, False),
    leftover=({"annotations": {"sidecar.istio.io/status": "{}"}}, False),
    host=({"spec": {"hostNetwork": True}}, False),
    not_ready=({"status": {}}, False),
    taken=({"annotations": TAKEN}, False),
    pending=({"annotations": dict.fromkeys(TAKEN, "pending")}, True),
)
def test_pod_that_no_ztunnel_has_is_named(ctx, fake, pod, is_named):
    install_ambient(fake)
    for name in ("web-0", "web-1"):
        add_pod(fake, name, **{"status": READY, **pod})
    (found,) = diagnose(ctx, "ambient", state(mesh_mode="ambient"))
    waiting = "no ztunnel has taken in web-0, web-1"
    assert found.seen == (waiting if is_named else "ztunnel has taken in the pods of the model")


LIMITED = ["EGRESS_REGISTRY_ONLY"]


@cases(
    ("pod", "want"),
    open=(None, ["EGRESS_OPEN"]),
    cut_off=({}, ["CONTROLLER_NOT_REACHED", *LIMITED]),
    past=({"annotations": {PORTS: "443, 17070"}}, LIMITED),
    past_everything=({"annotations": {EVERY: "0.0.0.0/0"}}, LIMITED),
    other_port=({"annotations": {PORTS: "443"}}, ["CONTROLLER_NOT_REACHED", *LIMITED]),
    no_charm=({"labels": {}}, LIMITED),
    no_proxy=({"containers": ["charm"]}, LIMITED),
    ended=({"status": {"phase": "Succeeded"}}, LIMITED),
)
def test_charm_must_reach_its_controller(ctx, fake, monkeypatch, pod, want):
    monkeypatch.setenv("JUJU_API_ADDRESSES", "controller.example.com:443 10.1.2.3:17070")
    outside = f"outboundTrafficPolicy: {{mode: {'ALLOW_ANY' if pod is None else 'REGISTRY_ONLY'}}}"
    fake_cluster.install_istio(fake, mesh_config=outside)
    charm = {"containers": ["charm", PROXY], "labels": {"app.kubernetes.io/name": "minio"}}
    for name in ("minio-0", "minio-1"):
        add_pod(fake, name, **{**charm, **(pod or {})})
    rows = diagnose(ctx, "egress")
    assert said(rows) == want
    if len(want) > 1:
        pods = "Pod kf/minio-0, Pod kf/minio-1"
        assert rows[0].seen == f"the proxies of {pods} keep their charms from Juju's controller"
        assert rows[0].next == "kubectl -n kf delete pod minio-0"


def ago(seconds):
    ended = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)
    return f"{ended:%Y-%m-%dT%H:%M:%SZ}"


def ended(seconds):
    return {"terminated": {"exitCode": 0, "finishedAt": ago(seconds)}}


def add_job(fake, namespace="kf", *, args=(), native=False, **states):
    """Have a pod of a Job with its containers in some states; args are the collector's."""
    named = {key.replace("_", "-"): value for key, value in states.items()}
    statuses = [{"name": name, "state": one} for name, one in named.items() if one]
    inits = [{"name": PROXY, "state": RUNNING}] if native else []
    add_pod(
        fake,
        "job",
        namespace,
        containers=[
            {"name": name, "args": [*args] if "collector" in name else ["-w", "false"]}
            for name in named
        ],
        spec={"restartPolicy": "Never"},
        status={"containerStatuses": statuses, "initContainerStatuses": inits},
    )


RUNNING = {"running": {}}
STOP = "juju run mesh-2/leader stop-proxy pod=job namespace=kf-user"
LOOK = "kubectl -n kf-user describe pod job"
SWITCH = "juju config mesh-2 proxy-shutdown=true"


@cases(
    ("age", "decision", "options", "level", "command"),
    just_now=(1, "stop", {}, "fine", ""),
    not_long_ago=(5, "report", {}, "fine", ""),
    should_be_stopped=(30, "stop", {}, "broken", STOP),
    switched_off=(30, "stop", {"proxy_shutdown": False}, "broken", SWITCH),
    told_not_to=(30, "ignore", {}, "doubtful", LOOK),
    can_not=(30, "report", {}, "doubtful", LOOK),
    none_has_ended=(0, "", {}, "fine", ""),
)
def test_proxy_after_its_payload_is_judged_by_the_rules(  # noqa: PLR0917 - a table
    ctx, fake, monkeypatch, age, decision, options, level, command
):
    add_pod(fake, "job", "kf-user")
    answer = {"namespace": "kf-user", "name": "job", "decision": decision, "reason": "X"}
    answer |= {"message": "all done", "containers": [], "ended": ago(age)}
    young = {**answer, "name": "early", "decision": "stop", "ended": ago(1)}
    monkeypatch.setattr(asked.SERVICE, "ended", [young, answer] if age else [])
    found, *others = diagnose(ctx, "finished pods", state(**options))
    assert (found.level, found.next) == (level, command)
    late = re.fullmatch(r"kf-user/job is not complete \d+ s after its payload: (.*)", found.seen)
    assert (late and late[1]) == (f"all done ({decision})" if level != "fine" else None)
    still = " ended less than 30 s ago, and the proxy still runs"
    names = "kf-user/early" if late else "kf-user/early, kf-user/job"
    assert [row.seen for row in ([*others] if late else [found])] == [
        f"{names}{still}" if age else "no proxy outlives its payload"
    ]


COLLECTOR = "metrics_logger_and_collector"
BOTH = {"istio_proxy": RUNNING, COLLECTOR: RUNNING}


@pytest.mark.parametrize("age", [5, 30])
@cases(
    ("job", "waits"),
    asked_to=({"args": ["-v", "false", "-w", "true"], **BOTH}, True),
    by_default=(BOTH, True),
    native=({"native": True, COLLECTOR: RUNNING}, True),
    told_not_to=({"args": ["-w", "false"], **BOTH}, False),
    middle_of_three_ends=({**BOTH, "late": ended(99)}, True),
    one_of_two=({**BOTH, "other": RUNNING}, False),
    training=({**BOTH, "main": RUNNING}, False),
    no_proxy=({COLLECTOR: RUNNING}, False),
    reported=({"istio_proxy": RUNNING, COLLECTOR: ended(9)}, False),
    not_begun=({**BOTH, "early": None, "main": None}, False),
    no_collector=({"istio_proxy": RUNNING}, False),
)
def test_collector_and_proxy_that_wait_for_each_other_are_named(ctx, fake, job, waits, age):
    fake.namespace("a-user", **PROFILE)
    fake.namespace("kf-gone", **PROFILE)["metadata"]["deletionTimestamp"] = ago(1)
    # A model that is deleted waits for the ends of its pods.
    fake.find("Namespace", "kf")["metadata"]["deletionTimestamp"] = ago(1)
    for namespace in ("kf", "a-user", "kf-gone", "default"):
        add_job(fake, namespace, **{"early": ended(99), "main": ended(age), **job})
    rows = diagnose(ctx, "finished pods")
    wanted = ("COLLECTOR_WAITS" if age >= 30 else "PROXIES_STILL_RUN") if waits else None
    assert said(rows) == [wanted or "NO_PROXY_OUTLIVES"] * (2 if waits and age >= 30 else 1)
    seen = " ".join(row.seen for row in rows)
    named = re.findall(r"[-a-z]+/job", seen)
    # Names in one message are sorted, and messages begin with the model's.
    wanted = ["kf/job", "a-user/job"] if age >= 30 else ["a-user/job", "kf/job"]
    assert named == (wanted if waits else [])


def test_without_the_right_to_list_namespaces_pods_of_the_model_are_checked(ctx, fake):
    fake.namespace("kf-user", **PROFILE)
    fake.forbidden.add(("list", "namespaces"))
    for namespace in ("kf", "kf-user"):
        add_job(fake, namespace, main=ended(35), **BOTH)
    (row,) = diagnose(ctx, "finished pods")
    assert row.seen.startswith("kf/job: metrics-logger-and-collector waits for every process")

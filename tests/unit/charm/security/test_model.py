"""Services, pods and workloads as the charm reads them."""

import msgspec

from integrator_contract import names
from istio_integrator.situation.model import (
    Call,
    Model,
    Pod,
    PodController,
    Probe,
    Service,
    list_calls,
)
from tests.unit.cases import cases
from tests.unit.charm.objects import make
from tests.unit.charm.security import members
from tests.unit.charm.security.callers import pod, service

HTTP = (("http", ""), ("http2", ""), ("HTTP-web", ""), ("grpc-api", ""), ("tcp", "http"))
HTTP += (("tcp", "kubernetes.io/ws"), ("", "kubernetes.io/h2c"))
OTHERS = (("https", ""), ("httpd", ""), ("http", "tcp"), ("web-http", ""), ("", ""))


def test_protocol_of_a_port_is_the_one_that_istiod_reads():
    ports = [
        {"port": 80, "name": name, "appProtocol": protocol} for name, protocol in (*HTTP, *OTHERS)
    ]
    found = msgspec.convert({"metadata": {"name": "a"}, "spec": {"ports": ports}}, Service)
    assert [(each.name, each.app_protocol) for each in found.ports if each.is_http] == [*HTTP]


def assert_has(obj, want):
    assert {key: getattr(obj, key) for key in want} == want


IPS = {"externalIPs": ["192.0.2.1"]}
OUTSIDE = {"is_reachable_from_outside": True}
PORTS = [{"port": 1, "protocol": "UDP"}, {"port": 2, "name": "placeholder"}, {"port": 3}]
PORTS += [{"port": 4, "protocol": "SCTP"}]


@cases(
    ("labels", "spec", "want"),
    external_ips=({}, IPS, {"kind": "externalIPs", **OUTSIDE}),
    balanced=({}, {"type": "LoadBalancer", **IPS}, {"kind": "LoadBalancer", **OUTSIDE}),
    of_nodes=({}, {"type": "NodePort"}, {"kind": "NodePort", **OUTSIDE}),
    internal=({}, {}, {"kind": "ClusterIP", "is_reachable_from_outside": False}),
    alias=({}, {"type": "ExternalName", "selector": {"a": "b"}}, {"selector": frozenset()}),
    made_by_an_application=(
        {names.CREATED_BY: "kfp", names.NAME: "viewer"}, {}, {"application": "kfp"},
    ),
    of_an_application=({names.NAME: "kfp"}, {}, {"application": "kfp"}),
    waypoint=({names.USE_WAYPOINT: "w"}, {}, {"waypoint": ("kf", "w")}),
    waypoint_elsewhere=(
        {names.USE_WAYPOINT: "w", names.USE_WAYPOINT_NAMESPACE: "x"}, {}, {"waypoint": ("x", "w")},
    ),
    no_waypoint=({names.USE_WAYPOINT: "none"}, {}, {"waypoint": None}),
    empty_waypoint=({names.USE_WAYPOINT: ""}, {}, {"waypoint": None}),
)  # fmt: skip
def test_service_is_read(labels, spec, want):
    found = make("Service", "a", labels=labels, spec={"ports": PORTS, **spec})
    read = msgspec.convert(found, Service)
    assert [each.port for each in read.ports] == [3]
    assert_has(read, want)


def http(port, path="/a", **more):
    return {"httpGet": {"port": port, "path": path, **more}}


PROXY = {"name": "istio-proxy", "image": "proxyv2", "ports": [{"containerPort": 15090}]}
OWNERS = [{"name": "node"}, {"name": "web-5", "controller": True}]
OF_POD = dict.fromkeys((names.POD_INDEX, "job-name", "security.istio.io/tlsMode"), "1")
PROBES = {
    "ports": [{"containerPort": 8080, "name": "web"}, {"containerPort": 9, "name": "more"}],
    "livenessProbe": http("web", "live?all=1"),
    "readinessProbe": http(8080, "/ready"),
    "startupProbe": http("more", "/starting"),
    "lifecycle": {"postStart": http(9, "/started"), "preStop": http(9, "/stopping")},
}
UNSEEN = (
    *(http(port) for port in (15020, 15021, 15090, "gone")),
    *(http(15999, f"/app-{kind}/a/livez") for kind in ("health", "lifecycle")),
    *(http(80, host="example.com"), {"grpc": {"port": 15020}}, {"tcpSocket": {"port": 80}}),
)
STARTED = [
    Probe(8080, "/live"),
    Probe(8080, "/ready"),
    *(Probe(9, f"/{each}") for each in ("starting", "started", "stopping")),
]


def near(system):
    """An affinity to nodes of an operating system."""
    wanted = [{"key": "kubernetes.io/os", "operator": "In", "values": [system]}]
    terms = {"nodeSelectorTerms": [{"matchExpressions": wanted}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@cases(
    ("metadata", "spec", "want"),
    ambient=({"annotations": {names.AMBIENT_REDIRECTION: "enabled"}}, {}, {"is_in_mesh": True}),
    left_ambient=(
        {"annotations": {names.AMBIENT_REDIRECTION: "disabled"}}, {}, {"is_in_mesh": False},
    ),
    native=({}, {"initContainers": [PROXY]}, {"is_in_mesh": True, "ports": frozenset()}),
    not_filled_in=({}, {"containers": [{**PROXY, "image": "auto"}]}, {"is_in_mesh": False}),
    router=({}, {"containers": [{**PROXY, "args": ["router"]}]}, {"is_router": True}),
    router_of_another_kind=(
        {}, {"containers": [{"name": "a", "args": ["router"]}]}, {"is_router": False},
    ),
    of_deployment=(
        {"ownerReferences": OWNERS, "labels": {"pod-template-hash": "5", names.NAME: ""}}, {},
        {"controller": "web", "display_name": "a"},
    ),
    of_stateful_set=(
        {"ownerReferences": OWNERS, "labels": {names.NAME: "db", **OF_POD}}, {},
        {"controller": "web-5", "display_name": "db",
        "workload_labels": frozenset({(names.NAME, "db")})},
    ),
    of_none=({"ownerReferences": OWNERS[:1]}, {}, {"controller": "a"}),
    probed=({}, {"containers": [{"name": "a", **PROBES}] * 2}, {"probes": STARTED}),
    probed_by_no_kubelet=(
        {}, {"containers": [{"name": "a", "livenessProbe": each} for each in UNSEEN]},
        {"probes": []},
    ),
    for_windows=({}, {"os": {"name": "windows"}}, {"may_run_on_linux": False}),
    on_windows=(
        {}, {"nodeSelector": {"kubernetes.io/os": "windows"}}, {"may_run_on_linux": False},
    ),
    near_windows=({}, {"affinity": near("windows")}, {"may_run_on_linux": False}),
    near_linux=({}, {"affinity": near("linux")}, {"may_run_on_linux": True}),
    anywhere=(
        {}, {}, {"may_run_on_linux": True, "is_in_mesh": False, "is_router": False,
        "service_account_name": "default", "reference": "Pod kf/a"},
    ),
)  # fmt: skip
def test_pod_is_read(metadata, spec, want):
    read = msgspec.convert(make("Pod", "a", spec=spec, **metadata), Pod)
    for each in (read, read.spec):
        assert_has(each, {key: value for key, value in want.items() if hasattr(each, key)})


def test_phase_and_conditions_of_a_pod_are_read():
    conditions = [{"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "x"}]
    found = {"status": {"conditions": conditions}}
    assert not msgspec.convert(found, Pod).is_ready
    conditions[1]["status"] = "True"
    assert msgspec.convert(found, Pod).is_ready
    phases = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
    ended = [msgspec.convert({"status": {"phase": each}}, Pod).has_ended for each in phases]
    assert ended == [False, False, True, True, False]


def test_pod_belongs_to_the_workload_with_the_narrowest_selector():
    wide, narrow = {"x": "y"}, {"app": "a", "role": "b"}
    selectors = {
        "all": {},
        "wide": wide,
        "z": narrow,
        "b": {"app": "a", "x": "y"},
        "other": {"no": "pod"},
    }
    workloads = [
        msgspec.convert(
            make("Deployment", name, spec={"selector": {"matchLabels": each}}), PodController
        )
        for name, each in selectors.items()
    ]
    found = Model(name="kf", workloads=workloads)
    read = msgspec.convert(make("Pod", "p", labels={**narrow, "x": "y"}), Pod)
    assert found.find_workload(read) == (frozenset(selectors["b"].items()), "b")
    alone = msgspec.convert(make("Pod", "p", labels={"c": "d", **OF_POD}), Pod)
    assert found.find_workload(alone) == (frozenset({("c", "d")}), "p")


def test_callers_of_members_are_pods_of_other_applications():
    machinery = {names.MODELOPERATOR_LABELS[1]: names.MODELOPERATOR}
    labels = ({}, {names.NAME: "mesh-2"}, {names.NAME: "", **machinery}, {names.OWNER: "kf.x"})
    pods = [pod(f"p{number}", labels=each.items()) for number, each in enumerate(labels)]
    found = Model(name="kf", pods=pods).list_callers("mesh-2")
    assert [each.metadata.name for each in found] == ["p0-0"]


def test_selectors_overlap_where_a_pod_has_both_or_one_implies_the_other():
    def select(keys):
        return frozenset((key, "1") for key in keys)

    found = Model(name="kf", pods=[pod("p", labels=select("ab")), pod("q", labels=select("y"))])
    for key, want in (("a", ["b", "ab", "ac"]), ("x", ["x", "xy"]), ("xy", ["x", "xy"])):
        others = map(select, ("b", "ab", "ac", "x", "xy"))
        assert [*found.find_overlapping(select(key), others)] == [*map(select, want)]


def test_service_of_an_application_selects_its_pods_alone():
    made = {names.NAME: "viewer", names.CREATED_BY: "kfp", "all": "1"}
    model = Model(name="kf", pods=[
        pod("kfp", labels={"all": "1"}.items()), pod("viewer", labels=made.items()),
        pod("db", labels={"db": "1"}.items()), pod("", labels={"db": "2"}.items()),
    ])  # fmt: skip
    owned = [
        service("kfp"),
        service("x", selector={"all": "1"}, application="kfp"),
        service("kfp", selector={"db": "2"}),
        service("x", of="kfp"),
        service("kfp", kind="ExternalName"),
    ]
    assert all(model.is_service_of(each, "kfp") for each in owned)
    others = service("kfp", selector={"db": "1"}), service("kfp-2"), service("x", of="kfp-2")
    assert not any(model.is_service_of(each, "kfp") for each in others)


def test_calls_of_api_servers_are_those_to_services_of_the_model():
    objects = [
        members.webhook("b", "katib", None),
        members.webhook("a", "katib", 8443, kind="MutatingWebhookConfiguration"),
        members.webhook("c", "katib", namespace="kf-2"),
        members.webhook("d", "katib", 65536),
        *[members.definition("x", "seldon")] * 2,
        members.definition("y", "seldon", "None"),
        members.api_service("v1.x", "metrics"),
        {**members.webhook("d", "e"), "spec": {"service": {"name": "f", "namespace": "kf"}}},
    ]
    assert list_calls(objects, model="kf") == [
        Call("APIService v1.x", "metrics", 443),
        Call("CustomResourceDefinition x", "seldon", 443),
        Call("MutatingWebhookConfiguration a", "katib", 8443),
        Call("ValidatingWebhookConfiguration b", "katib", 443),
        Call("ValidatingWebhookConfiguration d", "e", 443),
    ]

"""What is read of a model's objects."""

import pytest

from istio_integrator.kube import fences
from istio_integrator.mtls.members import PlainClients, members_of, plain_clients
from istio_integrator.situation.model import Call, Model, Pod, Workload, calls, read
from tests.unit.charm.security import members
from tests.unit.charm.security.members import MODEL, pod, probed, stateful_set


def model(*pods, workloads=()):
    return Model(name=MODEL, pods=read(pods, Pod), workloads=read(workloads, Workload))


def only(*pods, workloads=()):
    (found,) = members_of(model(*pods, workloads=workloads))
    return found


def test_pod_is_chosen_by_what_chooses_the_pods_of_its_workload():
    found = only(pod("minio"), workloads=[stateful_set("minio")])
    assert found.workload == "minio"
    assert found.selector == {("app.kubernetes.io/name", "minio")}


def test_pod_of_no_workload_is_chosen_by_labels_that_its_next_one_has_too():
    marks = {
        "app": "runner",
        "job-name": "x",
        "batch.kubernetes.io/job-name": "x",
        "service.istio.io/canonical-name": "runner",
    }
    assert only(pod("runner", labels=marks)).selector == {("app", "runner")}


@pytest.mark.parametrize(
    "outside",
    [
        pytest.param(pod("a", inside=False), id="no proxy"),
        pytest.param(pod("a", phase="Succeeded"), id="ended"),
        pytest.param(
            pod("a", {"name": "istio-proxy", "args": ["proxy", "router"]}, inside=False),
            id="a gateway",
        ),
    ],
)
def test_pod_that_no_policy_is_about_is_no_member(outside):
    assert members_of(model(outside)) == []


def test_workload_without_a_pod_is_what_its_next_pod_will_be():
    ports = {"name": "x", "ports": [{"containerPort": 8443, "name": "webhook"}]}
    found = only(workloads=[stateful_set("katib", ports)])
    assert ("webhook", 8443) in found.ports
    out = stateful_set("katib", labels={"sidecar.istio.io/inject": "false"})
    assert members_of(model(workloads=[out])) == []


@pytest.mark.parametrize(
    ("container", "want"),
    [
        pytest.param(probed(8080), {8080}, id="by number"),
        pytest.param(probed("web"), {8080}, id="by name"),
        pytest.param(probed(8080, host="10.0.0.1"), set(), id="somebody else"),
        pytest.param({"name": "a", "livenessProbe": {"grpc": {"port": 9}}}, {9}, id="gRPC"),
        pytest.param(
            {"name": "a", "startupProbe": {"tcpSocket": {"port": 9}}}, set(), id="connects only"
        ),
        pytest.param(
            {"name": "a", "lifecycle": {"preStop": {"httpGet": {"port": 9}}}}, {9}, id="preStop"
        ),
        pytest.param(
            {"name": "istio-proxy", "readinessProbe": {"httpGet": {"port": 15021}}},
            set(),
            id="the proxy's own",
        ),
    ],
)
def test_what_the_kubelet_calls_by_itself_is_seen(container, want):
    assert only(pod("a", container)).probed == want


@pytest.mark.parametrize("off", ["false", "False", "0"])
def test_probes_of_a_pod_to_come_count_where_they_are_not_rewritten(off):
    asked = probed(8080)
    assert only(workloads=[stateful_set("a", asked)]).probed == set()
    notes = {"sidecar.istio.io/rewriteAppHTTPProbers": off}
    assert only(workloads=[stateful_set("a", asked, notes=notes)]).probed == {8080}


@pytest.mark.parametrize("off", ["false", "F"])
def test_scraped_port_of_a_pod_to_come_counts_where_metrics_are_not_merged(off):
    notes = {"prometheus.io/scrape": "true", "prometheus.io/port": "9100"}
    assert only(workloads=[stateful_set("a", notes=notes)]).scraped == set()
    notes["prometheus.istio.io/merge-metrics"] = off
    assert only(workloads=[stateful_set("a", notes=notes)]).scraped == {9100}


@pytest.mark.parametrize(
    ("notes", "want"),
    [
        ({}, set()),
        ({"prometheus.io/scrape": "false", "prometheus.io/port": "9100"}, set()),
        ({"prometheus.io/scrape": "true", "prometheus.io/port": "9100"}, {9100}),
        ({"prometheus.io/scrape": "true"}, {8080}),
        ({"prometheus.io/scrape": "true", "prometheus.io/port": "x, 99999999"}, set()),
    ],
)
def test_what_annotations_have_prometheus_call_is_seen(notes, want):
    ports = {"name": "web", "ports": [{"containerPort": 8080}]}
    assert only(pod("a", ports, notes=notes)).scraped == want


@pytest.mark.parametrize(
    ("notes", "intercepted"),
    [
        ({}, {80, 9000}),
        ({"traffic.sidecar.istio.io/excludeInboundPorts": "15020,9000"}, {80}),
        ({"traffic.sidecar.istio.io/includeInboundPorts": "*"}, {80, 9000}),
        ({"traffic.sidecar.istio.io/includeInboundPorts": "80"}, {80}),
        ({"traffic.sidecar.istio.io/includeInboundPorts": ""}, set()),
    ],
)
def test_ports_that_annotations_keep_from_the_proxy_are_known(notes, intercepted):
    found = only(pod("a", notes=notes))
    assert {port for port in (80, 9000, 15020) if found.intercepts(port)} == intercepted


def test_whom_the_api_server_calls_in_the_model_is_found():
    objects = [
        members.webhook("katib", "katib"),
        members.webhook("m", "poddefaults", 4443, kind="MutatingWebhookConfiguration"),
        members.webhook("elsewhere", "katib", namespace="other"),
        members.definition("a.b", "converter"),
        members.definition("c.d", "none", strategy="None"),
        members.api_service("v1.metrics", "metrics"),
        {"kind": "APIService", "metadata": {"name": "local"}, "spec": {"service": None}},
        {"kind": "APIService", "metadata": {"name": "odd"}, "spec": {"service": [1]}},
    ]
    assert calls(objects, model=MODEL) == [
        Call("APIService v1.metrics", "metrics", 443),
        Call("CustomResourceDefinition a.b", "converter", 443),
        Call("MutatingWebhookConfiguration m", "poddefaults", 4443),
        Call("ValidatingWebhookConfiguration katib", "katib", 443),
    ]


@pytest.mark.parametrize(
    ("rule", "want"),
    [
        (members.destination_rule("minio"), ["minio"]),
        (members.destination_rule("minio.kubeflow"), ["minio"]),
        (members.destination_rule("minio.kubeflow.svc.cluster.local", "SIMPLE"), ["minio"]),
        (members.destination_rule("minio.other.svc.cluster.local"), []),
        (members.destination_rule("minio", namespace="alice"), []),
        (members.destination_rule("*.local"), ["*"]),
        (members.destination_rule("*.example.com"), []),
        (members.destination_rule("minio", "ISTIO_MUTUAL"), []),
    ],
)
def test_clients_that_call_without_certificates_are_found(rule, want):
    found = plain_clients([rule], model_name=MODEL, domain="cluster.local")
    assert [each.service for each in found] == want


def test_a_port_alone_can_be_called_without_certificates():
    rule = members.destination_rule("minio", port=9000)
    found = plain_clients([rule], model_name=MODEL, domain="cluster.local")
    assert found == [PlainClients("DestinationRule kubeflow/theirs", "minio", 9000, MODEL)]


def test_outsiders_are_named_but_for_those_who_call_nobody():
    operator = pod("op", inside=False, labels={"operator.juju.is/name": "modeloperator"})
    ours = pod("app", inside=False)
    others = [pod("a"), pod("b", inside=False)]
    found = model(operator, ours, *others, workloads=[stateful_set("b")])
    calling = [pod for pod in found.callers("app") if not pod.is_in_mesh]
    assert [found.workload_of(pod)[1] for pod in calling] == ["b"]


def test_one_odd_object_costs_itself_alone():
    fences.forget()
    odd = {**pod("odd"), "spec": {"containers": [{"name": "x", "ports": [{"name": {}}]}]}}
    odd["metadata"] = {**odd["metadata"], "annotations": {"prometheus.io/scrape": "true"}}
    odd["spec"]["containers"][0]["readinessProbe"] = {"httpGet": {"port": {"a": 1}}}
    odd["spec"]["containers"].append(members.PROXY)
    found = members_of(model(odd, pod("a")))
    assert [each.workload for each in found] == ["a-0"]
    assert list(fences.noted()) == ["Pod kubeflow/odd-0"]

"""Whether the pods of the Service that the operator names can be the model's gateway."""

import pytest

from istio_integrator.ingress import gateway
from istio_integrator.ingress.gateways import named
from istio_integrator.messages import Message, Said

LABELS = {"app": "gw", "istio": "gw"}
HTTP = {"name": "http2", "port": 80, "targetPort": 8080}
HTTPS = {"name": "https", "port": 443, "targetPort": 8443}
STATUS = {"name": "status-port", "port": 15021, "targetPort": 15021}


def asked(**changes):
    values = {"reference": "edge/gw", "model": "kubeflow", "application": "us"}
    values |= {"hosts": ("kf.example.com",)}
    return named.Asked(**{**values, "istiod_namespace": "istio-system", **changes})


def service(*ports, selector=None):
    spec = {"selector": LABELS if selector is None else selector, "ports": list(ports)}
    return {"metadata": {"namespace": "edge", "name": "gw"}, "spec": spec}


def pod(name="gw-1-x", namespace="edge", of="gw-1", *, args=("proxy", "router"), **changes):
    """A pod of the Deployment `gw`, as the injector completed it."""
    proxy = {
        "name": "istio-proxy",
        "args": [*args],
        "ports": [{"name": "http", "containerPort": 8080}],
        "env": [{"name": "CA_ADDR", "value": "istiod-1-31.istio-system.svc:15012"}],
    }
    owners = [{"kind": "ReplicaSet", "name": of, "controller": True}] if of else []
    labels = {**LABELS, "pod-template-hash": of.rpartition("-")[2]}
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": labels,
            "ownerReferences": owners,
        },
        "spec": {"serviceAccountName": "gw-account", "containers": [proxy]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        **changes,
    }


WEB = service(STATUS, HTTP, HTTPS)


def decided(*pods, service=WEB, **changes):
    return named.decide(asked(**changes), service, list(pods))


def test_pods_of_one_workload_are_the_gateway_and_the_services_own_selector_selects_them():
    assert decided(pod(), pod("gw-2-y", of="gw-2")) == gateway.Target(
        namespace="edge",
        selector=LABELS,
        service="gw",
        http_port=80,
        https_port=443,
        hosts=("kf.example.com",),
        ready=True,
        workload="gw",
        account="gw-account",
    )


def of_istiod(namespace):
    found = pod()
    address = f"istiod.{namespace}.svc.cluster.local:15012"
    found["spec"]["containers"][0]["env"] = [{"name": "CA_ADDR", "value": address}]
    return found


@pytest.mark.parametrize(
    ("pods", "changes", "words"),
    [
        pytest.param(
            [pod()], {"hosts": ()}, "needs hosts; run: juju config us hosts=NAME", id="no hosts"
        ),
        pytest.param(
            [], {"service": None}, "edge/gw does not exist; run: kubectl -n edge", id="no Service"
        ),
        pytest.param(
            [pod()], {"service": service(HTTP, selector={})}, "selects no pods", id="no selector"
        ),
        pytest.param(
            [pod(), pod("other-1-x", of="other-1")],
            {},
            "several workloads: edge/gw, edge/other",
            id="two workloads of one namespace",
        ),
        pytest.param(
            [pod(), pod("lone", of="")],
            {},
            "several workloads: edge/gw, edge/lone",
            id="a bare pod",
        ),
        pytest.param(
            [pod(), pod(namespace="team-a")],
            {},
            "also selects pods elsewhere: team-a/gw",
            id="elsewhere",
        ),
        pytest.param(
            [pod(namespace="team-a")],
            {},
            "also selects pods elsewhere: team-a/gw",
            id="only elsewhere",
        ),
        pytest.param(
            [pod(args=("proxy", "sidecar"))], {}, "is not a gateway of Istio", id="sidecar"
        ),
        pytest.param(
            [of_istiod("other")],
            {},
            "its istiod is that of other, the model's that of istio-system",
            id="another istiod",
        ),
        pytest.param(
            [pod()], {"is_scoped": True}, "PILOT_SCOPE_GATEWAY_TO_NAMESPACE", id="scoped istiod"
        ),
        pytest.param([pod()], {"service": service(STATUS)}, "no port for HTTP", id="no port"),
    ],
)
def test_what_can_not_be_the_gateway_is_refused_by_name(pods, changes, words):
    answer = decided(*pods, **changes)
    assert isinstance(answer, Message)
    assert words in answer.text


ENDING = pod()
ENDING["metadata"]["deletionTimestamp"] = "2026-11-25T14:39:26Z"


@pytest.mark.parametrize(
    "pods",
    [[], [pod(status={"phase": "Failed"})], [ENDING]],
    ids=["none", "failed", "ending"],
)
def test_pods_that_are_not_there_are_waited_for_with_the_ports_that_are_known(pods):
    ports = {"name": "https", "port": 443, "targetPort": "named"}
    found = decided(*pods, service=service(STATUS, HTTP, ports))
    assert isinstance(found, gateway.Target)
    assert found.messages == (Said.GATEWAY_WITHOUT_PODS(service="edge/gw"),)
    assert (found.http_port, found.https_port, found.ready) == (80, 443, False)
    assert decided(pod(), *pods).messages == ()


def test_gateway_without_a_ready_pod_is_not_ready():
    answer = decided(pod(status={"phase": "Running"}))
    assert isinstance(answer, gateway.Target)
    assert not answer.ready


@pytest.mark.parametrize(
    ("ports", "want"),
    [
        pytest.param((STATUS, HTTP, HTTPS), (80, 443), id="usual"),
        pytest.param(
            ({"name": "http-web", "port": 8000, "targetPort": 8080},), (8000, None), id="http"
        ),
        pytest.param(({"name": "https-x", "port": 8443},), (None, 8443), id="https"),
        pytest.param(({"port": 80, "targetPort": "http"},), (80, None), id="named target"),
        pytest.param(({"port": 80, "targetPort": "none"}, HTTPS), (None, 443), id="no such name"),
        pytest.param(({"name": "http3", "port": 8080}, HTTPS), (None, 443), id="HTTP/3"),
        pytest.param(
            ({"name": "https", "port": 443, "protocol": "UDP"}, HTTP), (80, None), id="UDP"
        ),
    ],
)
def test_entries_are_ports_of_the_service_that_lead_to_the_pods(ports, want):
    answer = decided(pod(), service=service(*ports))
    assert isinstance(answer, gateway.Target)
    assert (answer.http_port, answer.https_port) == want


@pytest.mark.parametrize("port", sorted(named.RESERVED_PORTS))
def test_ports_of_the_proxy_itself_are_no_entry(port):
    reserved = {"name": "http", "port": 80, "targetPort": port}
    answer = decided(pod(), service=service(reserved, HTTPS))
    assert isinstance(answer, gateway.Target)
    assert (answer.http_port, answer.https_port) == (None, 443)
    assert isinstance(decided(pod(), service=service(reserved)), Message)


def test_istiod_that_is_not_known_is_not_compared():
    assert isinstance(decided(of_istiod("other"), istiod_namespace=""), gateway.Target)

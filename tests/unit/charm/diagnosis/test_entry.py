"""The gateway's address and ports, the Gateways that routes name, and what routes lead to."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gateway
from diagnosis import entry

TARGET = gateway.Target(
    namespace="istio-ingress",
    selector={"istio": "ingressgateway"},
    service="gw",
    http_port=80,
    https_port=443,
    ready=True,
    workload="gw",
)
OWNER = "a.app"


def service(
    kind="ClusterIP", *addresses, ports=((80, 8080),), name="gw", namespace="istio-ingress"
):
    return {
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "type": kind,
            "clusterIP": "10.0.0.1",
            "ports": [
                {"port": port, "targetPort": target, "name": f"http-{port}"}
                for port, target in ports
            ],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": each} for each in addresses]}},
    }


@pytest.mark.parametrize(
    ("given", "target", "want", "words"),
    [
        pytest.param(service(), TARGET, ["✓"], "10.0.0.1 (ClusterIP)", id="inside"),
        pytest.param(service("LoadBalancer", "1.2.3.4"), TARGET, ["✓"], "1.2.3.4", id="outside"),
        pytest.param(service("LoadBalancer"), TARGET, ["!"], "nobody gave it", id="pending"),
        pytest.param(None, TARGET, ["✗"], "has gone", id="no-service"),
        pytest.param(
            service(), dataclasses.replace(TARGET, ready=False), ["✗"], "no ready pod", id="down"
        ),
    ],
)
def test_address_of_the_gateway(given, target, want, words):
    found = list(entry.address(given, target))
    assert [each.level.value for each in found] == want
    assert words in found[0].seen


OPENED = {
    "metadata": {"name": "kubeflow-gateway", "namespace": "a"},
    "spec": {"servers": [{"port": {"number": 80}}, {"port": {"number": 443}}]},
}
POD = {
    "kind": "Pod",
    "metadata": {"name": "gw-1", "namespace": "istio-ingress"},
    "spec": {"containers": [{"name": "p", "ports": [{"name": "tls", "containerPort": 8443}]}]},
}


@pytest.mark.parametrize(
    ("listening", "deaf"),
    [({8080, 8443}, []), ({8080}, [443]), (set(), [80, 443])],
)
def test_gateway_listens_at_the_ports_behind_its_services(listening, deaf):
    found = list(
        entry.listeners(
            OPENED,
            service(ports=((80, 8080), (443, "tls"))),
            POD,
            listening,
            istiod="-n istio-system deploy/istiod",
        )
    )
    ports = [port for port in (80, 443) if any(f"port {port}," in each.seen for each in found)]
    assert ports == deaf
    assert all(each.level.value == ("✗" if deaf else "✓") for each in found)


def route(*, gateways=("a/kubeflow-gateway",), host="web.a.svc.cluster.local", port=80, **labels):
    marks = labels or {"istio-integrator.charmhub.io/owner": OWNER}
    destination = {"host": host, "port": {"number": port}}
    return {
        "kind": "VirtualService",
        "metadata": {"name": "web", "namespace": "a", "labels": marks},
        "spec": {
            "gateways": list(gateways),
            "http": [{"route": [{"destination": destination}]}],
        },
    }


@pytest.mark.parametrize(
    ("gateways", "missing"),
    [
        pytest.param(("a/kubeflow-gateway",), [], id="there"),
        pytest.param(("kubeflow-gateway",), [], id="beside-the-route"),
        pytest.param(("mesh",), [], id="sidecars"),
        pytest.param(("b/kubeflow-gateway", "mesh"), ["b/kubeflow-gateway"], id="elsewhere"),
        pytest.param(("other",), ["a/other"], id="gone"),
    ],
)
def test_gateway_that_a_route_names_and_that_is_not_there(gateways, missing):
    found = list(entry.missing_gateways([route(gateways=gateways)], [OPENED]))
    assert [each.level.value for each in found] == (["✗"] if missing else ["✓"])
    assert all(name in found[0].seen for name in missing)


def slices(*, ready=True, name="http-80"):
    return [
        {
            "metadata": {"namespace": "a", "labels": {"kubernetes.io/service-name": "web"}},
            "ports": [{"name": name, "port": 8080}],
            "endpoints": [{"conditions": {"ready": ready}}],
        }
    ]


WEB = service(name="web", namespace="a")
EXTERNAL = service("ExternalName", name="web", namespace="a")


@pytest.mark.parametrize(
    ("services", "parts", "port", "want"),
    [
        pytest.param([WEB], slices(), 80, "", id="ready"),
        pytest.param([WEB], slices(ready=None), 80, "", id="absent-is-ready"),
        pytest.param([WEB], slices(ready=False), 80, "no ready endpoint", id="not-ready"),
        pytest.param([WEB], slices(name="grpc"), 80, "no ready endpoint", id="another-port"),
        pytest.param([WEB], [], 80, "no ready endpoint", id="no-pods"),
        pytest.param([WEB], slices(), 81, "has no port 81", id="no-such-port"),
        pytest.param([], [], 80, "there is no Service a/web", id="no-service"),
        pytest.param([EXTERNAL], [], 80, "", id="elsewhere"),
    ],
)
def test_backend_of_a_route(services, parts, port, want):
    for one, level in ((route(port=port), "✗"), (route(port=port, team="b"), "!")):
        (found,) = entry.backends([one], services, parts, domain="cluster.local", owner=OWNER)
        assert found.level.value == (level if want else "✓")
        assert want in found.seen


NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,5}[a-z0-9])?", fullmatch=True)


@given(NAMES, NAMES, st.sampled_from(["cluster.local", "k8s.example.com"]))
def test_name_of_a_service_is_read_in_every_spelling(name, namespace, domain):
    for host in (f"{name}.{namespace}.svc.{domain}", f"{name}.{namespace}.svc"):
        assert entry.service_name(host, "x", domain) == f"{namespace}/{name}"
    assert entry.service_name(name, namespace, domain) == f"{namespace}/{name}"
    assert entry.service_name(f"{name}.example.org", namespace, domain) == ""


def test_route_of_others_at_our_gateway_is_ours_to_look_at():
    elsewhere = {**route(), "metadata": {"name": "nb", "namespace": "shop"}}
    third = {**route(gateways=("shop/web",)), "metadata": {"name": "x", "namespace": "shop"}}
    found = entry.relevant([route(), elsewhere, third], namespaces=["a"], model="a")
    assert [each["metadata"]["name"] for each in found] == ["web", "nb"]

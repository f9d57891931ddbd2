"""The gateway's address, and what is applied there before authentication."""

import dataclasses

import pytest

from istio_integrator.diagnosis.checks import gateway
from tests.unit.charm.diagnosis.objects import TARGET, service


@pytest.mark.parametrize(
    ("given", "pods", "level", "words"),
    [
        pytest.param(service(), 1, "✓", "10.0.0.1 (ClusterIP)", id="inside"),
        pytest.param(service("LoadBalancer", "1.2.3.4"), 1, "✓", "1.2.3.4", id="outside"),
        pytest.param(service("LoadBalancer"), 1, "!", "nobody gave it", id="pending"),
        pytest.param(service(), 0, "✗", "no ready pod", id="down"),
    ],
)
def test_address_of_the_gateway(given, pods, level, words):
    # istiod calls a Gateway of the Gateway API ready once it has an address.
    target = dataclasses.replace(TARGET, ready=False)
    found = gateway.judge_address(given, target, [POD] * pods)
    assert (found.level.value, words in found.seen) == (level, True)


POD = {"kind": "Pod", "metadata": {"name": "gw-1", "namespace": "istio-ingress"}}


def filtering(kind, namespace="istio-ingress", **spec):
    return {"kind": kind, "metadata": {"name": "theirs", "namespace": namespace}, "spec": spec}


OURS = {"selector": {"matchLabels": {"istio": "ingressgateway"}}}
OTHERS = {"selector": {"matchLabels": {"istio": "shop"}}}


@pytest.mark.parametrize(
    ("obj", "is_named"),
    [
        (filtering("RequestAuthentication", **OURS), True),
        (filtering("RequestAuthentication"), True),
        (filtering("RequestAuthentication", "istio-system"), True),
        (filtering("RequestAuthentication", **OTHERS), False),
        (filtering("RequestAuthentication", "shop", **OURS), False),
        (filtering("WasmPlugin", **OURS, phase="AUTHN"), True),
        (filtering("WasmPlugin", **OTHERS), False),
        (filtering("WasmPlugin", targetRefs=[{"kind": "Service", "name": "gw"}]), True),
        (filtering("WasmPlugin", targetRefs=[{"kind": "Service", "name": "web"}]), False),
        (
            filtering(
                "RequestAuthentication", targetRef={"kind": "Gateway", "name": "kubeflow-gateway"}
            ),
            True,
        ),
        (filtering("AuthorizationPolicy", action="CUSTOM", **OURS), True),
        (filtering("AuthorizationPolicy", action="ALLOW", **OURS), False),
        (filtering("AuthorizationPolicy", **OURS), False),
    ],
)
def test_what_other_teams_apply_before_our_authentication_is_named(obj, is_named):
    pod = {**POD, "metadata": {**POD["metadata"], "labels": {"istio": "ingressgateway"}}}
    for pods in ([pod], []):
        found = list(gateway.judge_filters([obj], TARGET, pods, root="istio-system"))
        assert bool(found) == is_named
        for each in found:
            reference = f"{obj['kind']} {obj['metadata']['namespace']}/theirs"
            assert each.seen.startswith(f"{reference} is applied at the gateway before")
            where = obj["metadata"]["namespace"]
            assert each.next == f"kubectl -n {where} get {obj['kind'].lower()} theirs -o yaml"

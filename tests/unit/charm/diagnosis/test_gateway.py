"""The gateway's address, and the authentication there."""

import dataclasses

import pytest

from integrator_contract.seen import Cause, Missing, Seen, Unseen
from istio_integrator.diagnosis.checks import gateway
from istio_integrator.messages import Said
from tests.unit.charm.diagnosis.objects import TARGET, service


@pytest.mark.parametrize(
    ("given", "pods", "want", "address"),
    [
        pytest.param(service(), 1, Said.GATEWAY_REACHED, "10.0.0.1 (ClusterIP)", id="inside"),
        pytest.param(
            service("LoadBalancer", "1.2.3.4"), 1, Said.GATEWAY_REACHED, "1.2.3.4", id="outside"
        ),
        pytest.param(service("LoadBalancer"), 1, Said.GATEWAY_WITHOUT_ADDRESS, None, id="pending"),
        pytest.param(service(), 0, Said.GATEWAY_WITHOUT_READY_POD, None, id="down"),
    ],
)
def test_address_of_the_gateway(given, pods, want, address):
    # istiod calls a Gateway of the Gateway API ready once it has an address.
    target = dataclasses.replace(TARGET, ready=False)
    found = gateway.judge_address(given, target, [POD] * pods)
    assert (found.said, found.about.get("address")) == (want, address)


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
        where = obj["metadata"]["namespace"]
        named = Said.FILTER_BEFORE(
            reference=f"{obj['kind']} {where}/theirs",
            namespace=where,
            kind=obj["kind"].lower(),
            name="theirs",
        )
        assert found == ([named] if is_named else [])


SERVICE = "oidc.a.svc.cluster.local:8080"
RIGHT = "get and create pods/portforward in istio-ingress"


UNSEEN = "the gateway's Envoy was not seen: "


@pytest.mark.parametrize(
    ("seen", "want"),
    [
        pytest.param(
            Seen(of="x", unseen=None, guarded=(80, 443)),
            Said.AUTHENTICATED(service=SERVICE, ports="80, 443"),
            id="asked",
        ),
        pytest.param(
            Seen(of="x", unseen=Unseen.FORBIDDEN, detail=RIGHT),
            Said.CHECK_FORBIDDEN(right=RIGHT, application="app"),
            id="forbidden",
        ),
        pytest.param(
            Seen(of="x", unseen=Unseen.UNREACHABLE, detail="refused"),
            Said.CHECK_FAILED(problem=f"{UNSEEN}refused", application="app"),
            id="unreachable",
        ),
        pytest.param(
            Seen(of="x", unseen=Unseen.TOO_LARGE, detail="more than 32 MiB"),
            Said.CHECK_FAILED(problem=f"{UNSEEN}more than 32 MiB", application="app"),
            id="too-large",
        ),
    ],
)
def test_authentication_is_judged_by_what_the_workload_saw(seen, want):
    assert list(gateway.judge_seen(seen, SERVICE, application="app")) == [want]


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(Seen(of=""), id="no-route-is-written"),
        pytest.param(
            Seen(
                of="x",
                unseen=None,
                guarded=(80,),
                missing=(Missing(cause=Cause.CLUSTER_MISSING, about={}),),
            ),
            id="the-status-names-what-is-missing",
        ),
    ],
)
def test_authentication_is_not_confirmed_where_something_is_missing(seen):
    assert list(gateway.judge_seen(seen, SERVICE, application="app")) == []

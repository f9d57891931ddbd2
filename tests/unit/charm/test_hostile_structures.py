"""Objects of every kind that the charm reads, of structures that no schema would let through."""

import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from ops import testing

import charm
from integrator_contract import names
from istio_integrator.admission import admission
from istio_integrator.ingress import ingress
from istio_integrator.kube import cluster as charm_cluster
from tests.unit.charm import fake_cluster
from tests.unit.charm.ingress_world import World, auth, install_gateway, route

OWNER = "kubeflow.istio-integrator"
CUSTOM = (
    ("networking.istio.io/v1", "Gateway"),
    ("networking.istio.io/v1", "VirtualService"),
    ("networking.istio.io/v1", "Sidecar"),
    ("networking.istio.io/v1alpha3", "EnvoyFilter"),
    ("security.istio.io/v1", "AuthorizationPolicy"),
    ("security.istio.io/v1", "PeerAuthentication"),
)
"""What tenants may write, and schemas describe in part."""
TYPED = (("v1", "Service"), ("v1", "ConfigMap"), ("v1", "Pod"), ("apps/v1", "StatefulSet"))
"""What the API server itself knows; labels and annotations are free."""

WORDS = (
    ["spec", "status", "selector", "matchLabels", "labels", "workloadSelector", "servers", "port",
     "number", "name", "hosts", "http", "route", "destination", "host", "gateways", "rules",
     "from", "source", "principals", "to", "operation", "ports", "when", "key", "values", "action",
     "configPatches", "patch", "value", "mtls", "mode", "portLevelMtls", "outboundTrafficPolicy",
     "egress", "webhooks", "clientConfig", "service", "namespace", "namespaceSelector",
     "matchExpressions", "operator", "containers", "initContainers", "env", "args", "conditions",
     "containerStatuses", "state", "terminated", "finishedAt", "running", "endpoints", "targetRef",
     "targetPort", "kind", "provider", "nodeInfo", "loadBalancer", "ingress", "tls"]
)  # fmt: skip
ODD = (
    ["", "a", "tenant/web", "DENY", "ALLOW", "CUSTOM", "STRICT", "REGISTRY_ONLY", "*", "mesh",
     "istio-proxy", "kubeflow/kubeflow-gateway", "request.headers[x]", "2026-13-99T99:99Z",
     "In", "9" * 5000, "1.2.3", "x" * 3000, "\x1b[2J", "kfp-ui.kubeflow.svc.cluster.local"]
)  # fmt: skip
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 10**18),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(ODD),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5)
    ),
    max_leaves=15,
)
TEXTS = st.one_of(
    VALUES.map(json.dumps),
    st.integers(1, 3000).map(lambda count: "[" * count),
    st.just(f'{{"owner": "{OWNER}", "set": [], "before": {{}}}}'),
    st.just(f'{{"owner": "{OWNER}", "set": {{"a": "1"}}, "before": {{"a": "2"}}}}'),
)
MARKS = st.dictionaries(
    st.sampled_from(
        [
            names.OWNER,
            names.COMPONENT,
            names.ANNOTATED_BY,
            "app",
            "kubernetes.io/service-name",
        ]
    ),
    st.sampled_from([OWNER, "routes", "authentication", "gateway-tls", "admission-webhook", "x"]),
)
NOTES = st.dictionaries(
    st.sampled_from(
        [names.ANNOTATIONS, "istio-integrator.charmhub.io/membership",
         "istio-integrator.charmhub.io/seen", "sidecar.istio.io/status",
         "inject.istio.io/templates", "istio.io/dry-run"]
    ),
    TEXTS,
    max_size=2,
)  # fmt: skip


@st.composite
def objects(draw, kinds=CUSTOM + TYPED):
    """Draw what a tenant has made; `@deep@` stands for a thousand lists within each other."""
    api_version, kind = draw(st.sampled_from(kinds))
    found = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"labels": draw(MARKS), "annotations": draw(NOTES)},
    }
    if (api_version, kind) in CUSTOM:
        found["spec"] = draw(st.just({"x": ["@deep@"]}) | VALUES)
        found["status"] = draw(VALUES)
    return found


def filled(fake, hostile):
    """Put objects of a tenant among what is there."""
    fake.spelled['"@deep@"'] = "[" * 1000 + "]" * 1000
    for number, obj in enumerate(hostile):
        metadata = {**obj["metadata"], "name": f"theirs-{number}", "namespace": "tenant"}
        fake.add({**obj, "metadata": metadata})


def decisions(fake):
    """What the charm has decided, as far as it shows in the cluster."""
    return {
        key: {part: obj.get(part) for part in ("spec", "data", "webhooks")}
        for key, obj in fake.objects.items()
        if obj["metadata"].get("labels", {}).get(names.OWNER) == OWNER and key[2] != "tenant"
    }


def honest_world(monkeypatch):
    fake = fake_cluster.FakeCluster()
    for name in ("kubeflow", "default", "tenant"):
        fake.namespace(name)
    fake.node()
    fake.application()
    fake_cluster.install_istio(fake)
    install_gateway(fake)
    monkeypatch.setattr(admission, "PROBE_DELAYS", ())
    monkeypatch.setattr(ingress, "sleep", lambda _: None)
    monkeypatch.setattr(charm_cluster, "connect", fake.api)
    world = World(fake)
    world.related = [route(), auth()]
    world.config["authorization"] = "closed"
    return world


def hooks_pass_among(hostile, *, events):
    with pytest.MonkeyPatch.context() as patch:
        world = honest_world(patch)
        before = world.status()
        decided = decisions(world.fake)
        filled(world.fake, hostile)
        theirs = {key: obj for key, obj in world.fake.objects.items() if key[2] == "tenant"}
        kept = json.dumps(list(theirs.values()))
        for event in events:
            said = world.run(lambda ctx, event=event: getattr(ctx.on, event)()).unit_status
            assert said == before
            assert decisions(world.fake) == decided
        state = testing.State(
            leader=True,
            containers={testing.Container("lifecycle", can_connect=False)},
            model=testing.Model("kubeflow", type="kubernetes"),
        )
        ctx = testing.Context(charm.IstioIntegrator)
        ctx.run(ctx.on.action("diagnose"), state)
        assert "istiod" in ctx.action_results["report"]
        world.remove()
        assert decisions(world.fake) == {}
        assert json.dumps([world.fake.objects[key] for key in theirs]) == kept


SLOW = (HealthCheck.too_slow, HealthCheck.large_base_example, HealthCheck.data_too_large)


@settings(deadline=None, max_examples=5, suppress_health_check=SLOW)
@given(st.lists(objects(), min_size=1, max_size=12))
@example(
    [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "labels": {names.ANNOTATED_BY: OWNER, names.OWNER: OWNER},
                "annotations": {names.ANNOTATIONS: "[" * 2000},
            },
        }
    ]
)
def test_hooks_decide_the_same_among_any_objects_of_a_tenant(hostile):
    hooks_pass_among(hostile, events=["update_status"])


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(deadline=None, max_examples=300, suppress_health_check=SLOW)
@given(st.lists(objects(), min_size=30, max_size=60))
def test_hooks_decide_the_same_among_ten_thousand_objects_of_a_tenant(hostile):
    hooks_pass_among(hostile, events=["config_changed", "upgrade_charm"])

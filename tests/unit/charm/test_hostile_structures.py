"""Objects of every kind that the charm reads, of structures that no schema would let through."""

import datetime
import json
import random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from ops import testing

import charm
from integrator_contract import names
from istio_integrator.admission import admission
from istio_integrator.diagnosis import report
from istio_integrator.diagnosis.checks import (
    cni,
    egress,
    finished_pods,
    others,
    profiles,
    routes,
    users_apart,
    webhooks,
)
from istio_integrator.ingress import exposure
from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.kube import fences
from istio_integrator.mesh import injectors, meshconfig, peer_authentication, plaintext
from istio_integrator.security import (
    called,
    exceptions_found,
    policies,
    policies_judged,
    policies_survey,
    policies_workloads,
)
from tests import asked
from tests.unit.charm import fake_cluster, structures
from tests.unit.charm.ingress_world import World, auth, install_gateway, route

OWNER = "kubeflow.istio-integrator"
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
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


def pods(obj):
    return [{**obj, "kind": "Pod"}] if isinstance(obj.get("spec"), dict) else []


def judged(found):
    """Have everything that looks at objects look at these."""
    everything = [obj for objects in found.values() for obj in objects]
    bodies = [pod for obj in everything for pod in pods(obj)]
    yield injectors.find(everything)
    yield meshconfig.is_registry_only({}, everything, model="tenant")
    for pod in bodies[:5]:
        with fences.around("Pod"):
            yield plaintext.obstacle(pod, everything, root_namespace="tenant", port=80)
    yield list(others.judge(everything, bodies, root="tenant"))
    yield list(profiles.judge(everything, namespace="tenant", account="a"))
    yield list(policies_judged.judge(everything, bodies, owner=OWNER, model="m", application="a"))
    yield list(users_apart.judge_profiles(everything, application="a"))
    yield from decided(everything)
    backends = [webhooks.Backend("w", pod, 80) for pod in bodies]
    yield list(webhooks.judge(backends, everything, root="tenant", application="a"))
    yield list(egress.judge_registry(everything, registry_only=True, namespaces=["tenant"]))
    yield list(egress.judge_controller(bodies, [17070]))
    yield list(routes.judge_gateways(everything, everything))
    yield list(
        routes.judge_backends(
            everything, everything, everything, domain="cluster.local", owner=OWNER, model="m"
        )
    )
    yield list(cni.judge(bodies, everything, application="a"))
    yield list(finished_pods.judge_collectors(bodies, now=NOW))
    ends = ("2026-13-99T99:99Z", "x", "2026-01-01", NOW.isoformat())
    said = [asked.proxy("a", "job", "stop", ended=ended) for ended in ends]
    yield list(finished_pods.judge(said, now=NOW, application="a", is_stopping=True))
    yield [charm_cluster.is_ready(pod) for pod in bodies]
    model = exceptions_found.Model(bodies, everything, everything)
    yield exceptions_found.members(model)
    yield exceptions_found.without_pods(model), exceptions_found.outsiders(model, "a")
    yield called.services(everything)
    yield called.calls(everything, model="tenant")
    yield exceptions_found.plain_clients(everything, model="tenant", domain="cluster.local")
    yield peer_authentication.decide(
        peer_authentication.read_all(everything),
        {"a": "b"},
        namespace="tenant",
        root_namespace="tenant",
        port=80,
    )
    yield list(report.passed_over(fences.noted()))


def decided(everything):
    """Decide who may call whom in a model of these objects and one honest Service."""
    honest = called.Service(name="a", selector=(("a", "a"),), ports=(called.ServicePort(80, "a"),))
    model = policies_workloads.Model(
        name="tenant",
        services=[honest, *called.services(everything)],
        pods=policies_survey.pods(everything),
    )
    for mode in ("related", "closed"):
        asked_for = policies.Asked(
            mode=mode,
            model=model,
            routed=[("a", 80)],
            calls=[called.Call("x", "a", 80)],
            others=everything,
        )
        yield policies.decide(asked_for)


def nobody_raises_about(hostile):
    fences.forget()
    fake = fake_cluster.FakeCluster()
    honest = {
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": "honest", "namespace": "shop"},
        "spec": {"gateways": ["nowhere"], "http": []},
    }
    fake.add(honest)
    filled(fake, hostile)
    api = fake.api()
    found = {kind: api.list(charm_cluster.kind(*kind)) for kind in CUSTOM + TYPED}
    answers = list(judged(found))
    assert any("no Gateway shop/nowhere" in str(answer) for answer in answers)


@settings(deadline=None, max_examples=70)
@given(st.lists(objects(), min_size=1, max_size=3))
def test_whatever_looks_at_objects_goes_on_to_the_next(hostile):
    nobody_raises_about(hostile)


def any_object(seeded):
    """Make what a tenant may have written, as `objects` draws it."""
    api_version, kind = seeded.choice(CUSTOM + TYPED)
    scalars = [None, True, -1, 10**18, 1.5, *ODD]

    def value():
        return structures.structure(seeded, WORDS, scalars)

    notes = {
        names.ANNOTATIONS: json.dumps(value()),
        "sidecar.istio.io/status": "[" * 2000,
    }
    marks = {names.OWNER: OWNER, names.COMPONENT: seeded.choice(("routes", "x"))}
    metadata = {"labels": seeded.choice(({}, marks)), "annotations": seeded.choice(({}, notes))}
    found = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
    if (api_version, kind) not in CUSTOM:
        return found
    return {**found, "spec": seeded.choice((value(), {"x": ["@deep@"]})), "status": value()}


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(20))
def test_whatever_looks_at_a_hundred_thousand_objects_goes_on_to_the_next(seed):
    seeded = random.Random(seed)
    for _ in range(250):
        nobody_raises_about([any_object(seeded) for _ in range(20)])


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
    monkeypatch.setattr(exposure, "SETTLE", 0)
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
        with pytest.raises(testing.ActionFailed):
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

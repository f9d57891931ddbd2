"""Objects of tenants of any structure: hooks pass, and what honest objects say still counts."""

import contextlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ops import testing

from integrator_contract import names
from tests.unit.api_server import TIMEOUT, UNREACHABLE, Refused
from tests.unit.cases import cases
from tests.unit.charm import charm_world
from tests.unit.charm.ingress_world import World, auth, connect, route
from tests.unit.hostile_texts import DEEP

OWNER = "kf.mesh-2"
RECORDS = (
    f'{{"owner": "{OWNER}", "set": [], "before": {{}}}}',
    f'{{"owner": "{OWNER}", "set": {{}}, "before": 5}}',
    "[" * 2000 + "]" * 2000,
    f'{{"owner": "{OWNER}", "set": {{}}, "before": {{"a": {"9" * 5000}}}}}',
    f'{{"owner": "{OWNER}", "set": {{"a": "1"}}, "before": {{"a": "2"}}}}',
)
CUSTOM = (
    ("networking.istio.io/v1", "Gateway"),
    ("networking.istio.io/v1", "VirtualService"),
    ("networking.istio.io/v1", "Sidecar"),
    ("networking.istio.io/v1alpha3", "EnvoyFilter"),
    ("security.istio.io/v1", "AuthorizationPolicy"),
    ("security.istio.io/v1", "PeerAuthentication"),
)
"""Kinds that tenants may write, and that schemas describe in part."""
TYPED = (("v1", "Service"), ("v1", "ConfigMap"), ("v1", "Pod"), ("apps/v1", "StatefulSet"))
"""Built-in kinds, whose labels and annotations are free."""

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
     "istio-proxy", "kf/kubeflow-gateway", "request.headers[x]", "2026-13-99T99:99Z",
     "In", "9" * 5000, "1.2.3", "x" * 3000, "\x1b[2J", "kfp-ui.kf.svc.cluster.local"]
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
    st.sampled_from(RECORDS),
)
MARKS = st.dictionaries(
    st.sampled_from(
        [names.OWNER, names.COMPONENT, names.ANNOTATED_BY, "app", "kubernetes.io/service-name"]
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


def honest(fake, monkeypatch):
    """A model with routes and closed policies, in a cluster with a tenant."""
    connect(fake, monkeypatch)
    fake.application()
    fake.namespace("tenant")
    return World(fake, route(), auth(), authorization="closed")


@pytest.fixture
def world(fake, monkeypatch):
    return honest(fake, monkeypatch)


def decisions(fake):
    """Return the contents of the charm's objects."""
    return {
        key: {part: obj.get(part) for part in ("spec", "data", "webhooks")}
        for key, obj in fake.objects.items()
        if obj["metadata"].get("labels", {}).get(names.OWNER) == OWNER and key[2] != "tenant"
    }


def diagnosed(world):
    """Return the report of the action, which passes or fails."""
    state = testing.State(
        leader=True,
        containers={testing.Container("lifecycle", can_connect=False)},
        relations=set(world.related),
        model=testing.Model("kf", type="kubernetes"),
    )
    with contextlib.suppress(testing.ActionFailed):
        world.ctx.run(world.ctx.on.action("diagnose"), state)
    return world.ctx.action_results["report"]


def hooks_pass_among(world, hostile, *, events):
    """Run hooks beside a tenant's objects, which change no decision and are not changed."""
    before = world.status()
    decided = decisions(world.fake)
    world.fake.spelled['"@deep@"'] = DEEP
    for number, obj in enumerate(hostile):
        metadata = {**obj["metadata"], "name": f"theirs-{number}", "namespace": "tenant"}
        world.fake.add({**obj, "metadata": metadata})
    theirs = {key: obj for key, obj in world.fake.objects.items() if key[2] == "tenant"}
    kept = json.dumps(list(theirs.values()))
    # With the shipped roles, deleting one would be refused.
    world.fake.forbidden |= {("delete", key[1], "tenant") for key in theirs}
    for event in events:
        said = world.run(lambda ctx, event=event: getattr(ctx.on, event)()).unit_status
        assert said == before
        assert decisions(world.fake) == decided
    report = diagnosed(world)
    assert "istiod" in report
    world.remove()
    assert decisions(world.fake) == {}
    assert json.dumps([world.fake.objects[key] for key in theirs]) == kept
    return report


def theirs(api_version, kind, labels, annotations=None, **more):
    metadata = {"labels": labels, "annotations": annotations or {}}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **more}


OURS = [
    ("v1", "Service", "gateway-workload"),
    ("v1", "Service", "admission-webhook"),
    ("v1", "ConfigMap", "admission-webhook"),
    ("v1", "Secret", "gateway-tls"),
    ("apps/v1", "Deployment", "admission-webhook"),
    ("networking.istio.io/v1", "VirtualService", "routes"),
    ("networking.istio.io/v1", "DestinationRule", "grpc"),
    ("networking.istio.io/v1", "Gateway", "gateway"),
    ("networking.istio.io/v1alpha3", "EnvoyFilter", "authentication"),
    ("security.istio.io/v1", "AuthorizationPolicy", "authentication"),
    ("gateway.networking.k8s.io/v1", "Gateway", "managed-gateway"),
    ("gateway.networking.k8s.io/v1", "HTTPRoute", "http-routes"),
]
EVERY_HOOK = ("config_changed", "update_status", "upgrade_charm")


def deep_filter(**labels):
    spec = {"configPatches": [{"applyTo": "CLUSTER", "patch": {"value": {"x": "@deep@"}}}]}
    marks = {**labels, names.COMPONENT: "authentication"}
    return [theirs("networking.istio.io/v1alpha3", "EnvoyFilter", marks, spec=spec)]


PASSED_OVER = "EnvoyFilter tenant/theirs-0 is passed over: it nests more than"


@cases(
    ("hostile", "named"),
    records_of_ours=(
        [
            theirs(
                "v1", "Service", {names.ANNOTATED_BY: OWNER}, {names.ANNOTATIONS: text, "a": "1"}
            )
            for text in RECORDS
        ],
        "",
    ),
    our_labels=(
        [
            theirs(api_version, kind, {names.OWNER: OWNER, names.COMPONENT: component})
            for api_version, kind, component in OURS
        ],
        "",
    ),
    # One without our label is not read at all.
    thousand_lists=(deep_filter(), ""),
    thousand_lists_with_our_label=(deep_filter(**{names.OWNER: OWNER}), PASSED_OVER),
)
def test_hooks_decide_the_same_among_objects_of_a_tenant(world, hostile, named):
    report = hooks_pass_among(world, hostile, events=EVERY_HOOK)
    assert named in report
    assert (PASSED_OVER in report) is bool(named)
    assert ("kubectl -n tenant get envoyfilter theirs-0 -o yaml" in report) is bool(named)


SLOW = (HealthCheck.too_slow, HealthCheck.large_base_example, HealthCheck.data_too_large)


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(max_examples=300, suppress_health_check=SLOW)
@given(st.lists(objects(), min_size=30, max_size=60))
def test_hooks_decide_the_same_among_ten_thousand_objects_of_a_tenant(hostile):
    with pytest.MonkeyPatch.context() as patch:
        world = honest(charm_world.model(), patch)
        hooks_pass_among(world, hostile, events=("config_changed", "upgrade_charm"))


def test_guard_that_stayed_in_another_namespace_is_still_taken_away(world):
    world.run()
    assert world.guard() is not None
    moved = json.loads(json.dumps(world.guard()))
    moved["metadata"]["namespace"] = "old-gateway"
    world.fake.namespace("old-gateway")
    world.fake.add(moved)
    world.run()
    name = moved["metadata"]["name"]
    assert world.fake.find("EnvoyFilter", name, "old-gateway") is None
    assert world.guard() is not None


def test_guard_of_an_earlier_role_is_taken_again(world):
    """A restored cluster has other UIDs."""
    world.run()
    world.fake.delete("ClusterRole", "kf-mesh-2")
    world.fake.application()
    assert world.status().name == "active"
    (owner,) = world.guard()["metadata"]["ownerReferences"]
    assert owner["uid"] == world.fake.find("ClusterRole", "kf-mesh-2")["metadata"]["uid"]


GARBAGE = ("", "<html>", "[1]", "5", "null", '{"items": 5}', '{"items": [5]}', "{}", '{"a": ')


@pytest.mark.parametrize("garbage", [*GARBAGE, "[" * 5000])
def test_answer_that_is_garbage_becomes_a_status(world, garbage):
    world.fake.serve = lambda _: garbage.encode()
    out = world.run()
    assert not isinstance(out.unit_status, testing.ActiveStatus)
    assert out.unit_status.message.isprintable()


@cases(
    ("answer", "words"),
    garbage=("{", "Service istio-ingress/istio-ingressgateway: the answer is not understood: "),
    deep=(
        f'{{"metadata": {{"name": "a", "namespace": "b"}}, "x": {"[" * 64 + "]" * 64}}}',
        "Service b/a can't be read: it nests more than 64 lists",
    ),
    nameless=('{"metadata": {"name": 5}}', "Service 5 can't be read: it has no name"),
)
def test_object_that_can_not_be_read_is_named(world, answer, words):
    path = "/api/v1/namespaces/istio-ingress/services/istio-ingressgateway"
    world.fake.answers[path] = answer.encode()
    assert words in world.status().message


@pytest.mark.parametrize(
    ("code", "words"),
    [(502, "502 page not found"), (UNREACHABLE, "connection refused"), (TIMEOUT, "ReadTimeout")],
)
def test_failure_before_the_api_server_becomes_a_status(world, code, words):
    def refuse(_):
        raise Refused("", code)

    world.fake.serve = refuse
    assert words in world.run().unit_status.message


def test_nodes_that_say_nothing_of_their_kubelets_are_passed_over_and_fill_no_log(world, caplog):
    for name in ("a\x1b[2J\nINFO all is well", *(f"node-{n}" for n in range(200))):
        world.fake.put("Node", name, "")
    shown = world.status()
    caplog.clear()
    world.hook()
    told = [each.getMessage() for each in caplog.records if "passed over" in each.getMessage()]
    assert isinstance(shown, testing.ActiveStatus)
    assert len(told) == 11
    assert told[0] == "Node a\\x1b[2J\\nINFO all is well is passed over: KeyError: 'status'."
    assert told[-1] == "More objects are passed over: the action diagnose counts them."
    report = diagnosed(world)
    assert "Node a\\x1b[2J INFO all is well is passed over" in report
    assert "201 objects" in report
    assert "kubectl get node node-8 -o yaml" in report
    assert "node-9" not in report
    assert all(each.getMessage().isprintable() for each in caplog.records)
    for number in range(9, 200):
        world.fake.delete("Node", f"node-{number}", "")
    report = diagnosed(world)
    assert "node-8" in report
    assert "10 objects" not in report

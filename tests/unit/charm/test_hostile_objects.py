"""Objects of others of any structure: hooks pass, and what honest objects say still counts."""

import contextlib
import copy
import json

import httpx2
import pytest
from ops import testing

from integrator_contract import names
from istio_integrator.config import config
from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.kube import manifests
from istio_integrator.lifecycle import removal_notice
from istio_integrator.situation import situation
from tests import asked
from tests.unit.charm.ingress_world import World, auth, connect, route

OWNER = "kubeflow.istio-integrator"
DEEP = "[" * 1000 + "]" * 1000
RECORDS = (
    f'{{"owner": "{OWNER}", "set": [], "before": {{}}}}',
    f'{{"owner": "{OWNER}", "set": {{}}, "before": 5}}',
    "[" * 2000 + "]" * 2000,
    f'{{"owner": "{OWNER}", "set": {{}}, "before": {{"a": {"9" * 5000}}}}}',
    f'{{"owner": "{OWNER}", "set": {{"a": "1"}}, "before": {{"a": "2"}}}}',
)


@pytest.fixture
def world(fake, monkeypatch):
    connect(fake, monkeypatch)
    fake.application()
    fake.namespace("tenant")
    world = World(fake)
    world.related = [route(), auth()]
    return world


def theirs(fake, kind, name="theirs", api_version="v1", **more):
    """Have a tenant make an object."""
    metadata = {"name": name, "namespace": "tenant", **more.pop("metadata", {})}
    return fake.add({"apiVersion": api_version, "kind": kind, "metadata": metadata, **more})


def of_tenants(fake):
    """Copy every object in the tenant's namespace."""
    return copy.deepcopy({key: obj for key, obj in fake.objects.items() if key[2] == "tenant"})


def said_by_diagnose(world):
    state = testing.State(
        leader=True,
        containers={testing.Container("lifecycle", can_connect=False)},
        relations=set(world.related),
        model=testing.Model("kubeflow", type="kubernetes"),
    )
    with contextlib.suppress(testing.ActionFailed):
        world.ctx.run(world.ctx.on.action("diagnose"), state)
    return world.ctx.action_results["report"]


@pytest.mark.parametrize("event", ["config_changed", "update_status", "remove"])
def test_service_of_a_tenant_with_a_record_of_ours_is_not_touched(world, event):
    for number, record in enumerate(RECORDS):
        annotations = {names.ANNOTATIONS: record, "a": "1"}
        metadata = {"labels": {names.ANNOTATED_BY: OWNER}, "annotations": annotations}
        theirs(world.fake, "Service", f"theirs-{number}", metadata=metadata)
    before = of_tenants(world.fake)
    world.run(lambda ctx: getattr(ctx.on, event)(), units=0 if event == "remove" else 1)
    assert of_tenants(world.fake) == before


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
    ("v1", "ConfigMap", "of-an-older-revision"),
    ("networking.istio.io/v1alpha3", "EnvoyFilter", "of-an-older-revision"),
]


@pytest.mark.parametrize("event", ["config_changed", "upgrade_charm", "remove"])
def test_object_of_a_tenant_with_our_labels_is_not_ours(world, event):
    for api_version, kind, component in OURS:
        marks = {names.OWNER: OWNER, names.COMPONENT: component}
        theirs(world.fake, kind, component, api_version, metadata={"labels": marks})
    before = of_tenants(world.fake)
    # With the shipped roles, deleting one would be refused.
    for found in charm_cluster.KINDS.values():
        world.fake.forbidden.add(("delete", found.plural, "tenant"))
    world.run(lambda ctx: getattr(ctx.on, event)(), units=0 if event == "remove" else 1)
    assert of_tenants(world.fake) == before
    if event != "remove":
        assert isinstance(world.status(), testing.ActiveStatus)


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


@pytest.mark.parametrize("labels", [{}, {names.OWNER: OWNER}], ids=["plain", "labelled"])
def test_filter_with_a_thousand_nested_lists_costs_itself_alone(world, labels):
    marks = {**labels, names.COMPONENT: "authentication"}
    spec = {"configPatches": [{"applyTo": "CLUSTER", "patch": {"value": {"x": "@deep@"}}}]}
    theirs(
        world.fake,
        "EnvoyFilter",
        api_version="networking.istio.io/v1alpha3",
        metadata={"labels": marks},
        spec=spec,
    )
    world.fake.spelled['"@deep@"'] = DEEP
    assert isinstance(world.status(), testing.ActiveStatus)
    assert len(world.routes()) == 1
    report = said_by_diagnose(world)
    # One without our label is not read at all.
    passed_over = "EnvoyFilter tenant/theirs is passed over: it nests more than"
    assert (passed_over in report) is bool(labels)
    assert ("kubectl -n tenant get envoyfilter theirs -o yaml" in report) is bool(labels)
    world.remove()
    assert world.guard() is None


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        "<html>",
        "[1]",
        "5",
        "null",
        '{"items": 5}',
        '{"items": [5]}',
        "{}",
        "[" * 5000,
        '{"a": ',
    ],
)
def test_answer_that_is_garbage_becomes_a_status(world, garbage):
    def answer(request):
        return httpx2.Response(200, text=garbage, request=request)

    world.fake._answer = answer
    out = world.run()
    assert not isinstance(out.unit_status, testing.ActiveStatus)
    assert out.unit_status.message.isprintable()


def test_node_that_says_nothing_of_its_kubelet_is_passed_over(world):
    world.fake.add({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "virtual"}})
    assert isinstance(world.status(), testing.ActiveStatus)
    assert "Node virtual is passed over" in said_by_diagnose(world)


def test_names_with_control_characters_are_written_escaped(world, caplog):
    world.fake.add(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "a\x1b[2J\nINFO all is well"},
        }
    )
    assert world.status().message.isprintable()
    report = said_by_diagnose(world)
    assert "Node a\\x1b[2J INFO all is well is passed over" in report
    assert all(record.getMessage().isprintable() for record in caplog.records)


def test_tenant_fills_no_log_with_what_is_passed_over(world, caplog):
    for n in range(200):
        world.fake.add({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{n}"}})
    world.hook()
    told = [record for record in caplog.records if "passed over" in record.getMessage()]
    assert 0 < len(told) <= 12
    assert "200 objects" in said_by_diagnose(world)


@pytest.mark.parametrize(
    "settings",
    ["- 5", DEEP, "defaultConfig: {statusPort: x}", "defaultConfig: {statusPort: [1]}",
     "defaultConfig: {statusPort: 99999999}", "extensionProviders: [5, {name: [a]}]",
     "extensionProviders: {a: b}", "a: &a [b]\nb: *a", "rootNamespace: [a]"],
)  # fmt: skip
def test_mesh_configuration_that_is_odd_is_left_out(world, settings):
    found = world.fake.find("ConfigMap", "istio", "istio-system")
    found["data"]["mesh"] = settings
    assert isinstance(world.status(), testing.ActiveStatus)
    assert len(world.routes()) == 1


class Rules:
    """A workload that says of every pod that it will hang, and of one nothing sensible."""

    def explain(self, pods):
        found = [pod["metadata"] for pod in pods]
        said = [asked.proxy(each["namespace"], each["name"]) for each in found]
        return [asked.proxy("", ""), *said]


def test_pod_that_takes_no_event_keeps_no_other_from_being_told(world):
    for name in ("a", "b", "c"):
        metadata = {"name": name, "namespace": "kubeflow", "uid": name * 8}
        spec = {"restartPolicy": "Never", "containers": [{"name": "istio-proxy"}]}
        world.fake.add({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    refused = f"b.{removal_notice.REASON.lower()}.bbbbbbbb"
    world.fake.refused.add(refused)
    api = world.fake.api()
    own = manifests.Manifests(api, model="kubeflow", application="istio-integrator")
    scope = situation.Situation(
        cluster=api,
        manifests=own,
        config=config.Config(),
        mesh=None,
        model="kubeflow",
        application="istio-integrator",
        unit="istio-integrator/0",
        leader=True,
    )
    removal_notice.leave(scope, Rules())
    told = [
        obj["involvedObject"]["name"]
        for obj in world.fake.objects.values()
        if obj["kind"] == "Event"
    ]
    assert told == ["a", "c"]

"""What tenants and applications may write to widen, open or slow what protects the model."""

import dataclasses
import json

import msgspec
import ops
import pytest
from ops import testing

from istio_integrator.mtls import exceptions
from istio_integrator.mtls.exceptions import Scene
from istio_integrator.mtls.members import Member, PlainClients, members_of
from istio_integrator.situation.model import Model, Pod
from tests.unit.charm import fake_cluster
from tests.unit.charm.charm_world import state, status
from tests.unit.charm.security import members
from tests.unit.charm.security.callers import (
    decide,
    http,
    pod,
    policy,
    said,
    service,
)


class Counted(dict):
    """Labels that count how often they are compared."""

    asked = 0

    def get(self, key, default=None):
        Counted.asked += 1
        return super().get(key, default)


def test_each_pod_of_a_large_model_is_looked_at_a_few_times_however_many_probes_there_are():
    count = 100
    probes = [http(8080, f"/health/{number}") for number in range(3)]
    names = [f"app-{number}" for number in range(count)]
    pods = [pod(name, *probes) for name in names]
    counted = [
        msgspec.structs.replace(
            each,
            metadata=msgspec.structs.replace(each.metadata, labels=Counted(each.metadata.labels)),
        )
        for each in pods
    ]
    consumers = [
        said(name, policy("a", name), relation=number) for number, name in enumerate(names)
    ]
    services = [service(name, 80) for name in names]
    Counted.asked = 0
    decision = decide(*services, *counted, *consumers, mode="closed")
    assert len(decision.policies) == count
    assert Counted.asked < 10 * count


RULES = 3000


def test_rules_of_tenants_are_told_of_a_few_and_cost_nothing():
    chosen = frozenset({("app", "a")})
    services = [
        service(f"s{number}", *range(1, 21), selector={"app": "a"}) for number in range(50)
    ]
    scene = Scene(
        [Member("a", chosen, chosen)],
        services,
        plain_tenants=[
            PlainClients(f"DestinationRule alice/r{number}", "*") for number in range(RULES)
        ],
    )
    assert scene.victims == []
    told = {each.seen.split(" has ")[0] for each in scene.tenants}
    assert len(told) == exceptions.MOST_RULES


@pytest.fixture
def world(ctx, fake):
    fake_cluster.install_istio(fake)
    members.member(fake, "minio")
    fake.add(members.service("minio", 9000))
    profile = {"app.kubernetes.io/part-of": "kubeflow-profile"}
    fake.add(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "alice", "labels": profile},
        }
    )
    return fake


def peers(fake):
    return {
        obj["metadata"]["name"]: obj["spec"]
        for obj in fake.objects.values()
        if obj["kind"] == "PeerAuthentication"
    }


def test_users_destination_rule_keeps_nobody_from_being_strict_and_is_told(ctx, world):
    world.add(members.destination_rule("minio.kubeflow.svc.cluster.local", namespace="alice"))
    assert isinstance(status(ctx, state(mtls="strict")), ops.ActiveStatus)
    assert set(peers(world)) == {"istio-integrator-strict"}
    ctx.run(ctx.on.action("preview-security", params={"mtls": "strict"}), state())
    report = " ".join(ctx.action_results["report"].split())
    assert "! mtls DestinationRule alice/theirs has clients call minio:9000 without" in report


@pytest.mark.parametrize("namespace", ["kubeflow", "istio-system", "istio-ingress"])
def test_destination_rule_of_the_model_the_mesh_or_a_gateway_keeps_strict_off(
    ctx, world, namespace
):
    host = "minio.kubeflow.svc.cluster.local"
    world.add(members.destination_rule(host, namespace=namespace))
    said = status(ctx, state(mtls="strict"))
    assert isinstance(said, ops.BlockedStatus)
    assert peers(world) == {}


CALLING = [
    pytest.param(members.webhook("lure", "minio", 9000), id="webhook"),
    pytest.param(members.definition("lure", "minio"), id="conversion"),
    pytest.param(members.api_service("lure", "minio"), id="API"),
]


@pytest.mark.parametrize("lure", CALLING)
def test_what_api_servers_are_told_to_call_opens_one_port_and_is_named(ctx, world, lure):
    port = {"webhooks": 9000}.get(next(iter(set(lure) & {"webhooks"}), ""), 443)
    world.add(members.service("minio", port))
    world.add(lure)
    ctx.run(ctx.on.config_changed(), state(mtls="strict"))
    opened = [spec["portLevelMtls"] for spec in peers(world).values() if "selector" in spec]
    assert opened == [{str(port): {"mode": "PERMISSIVE"}}]
    params = {"mtls": "strict", "authorization": "closed", "format": "json"}
    ctx.run(ctx.on.action("preview-security", params=params), state())
    rows = json.loads(ctx.action_results["report"])
    named = [row["check"] for row in rows if f"{lure['kind']} lure" in row["seen"]]
    assert sorted(named) == ["authorization", "mtls"]


def test_service_of_another_namespace_that_api_servers_call_opens_nothing(ctx, world):
    world.add(members.webhook("lure", "minio", 9000, namespace="alice"))
    ctx.run(ctx.on.config_changed(), state(mtls="strict"))
    assert set(peers(world)) == {"istio-integrator-strict"}


def test_annotation_that_names_many_ports_opens_none():
    notes = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": ",".join(map(str, range(1, 40000))),
        "prometheus.istio.io/merge-metrics": "false",
    }
    obj = msgspec.convert(members.pod("minio", notes=notes), Pod)
    (found,) = members_of(Model(name="kubeflow", pods=[obj]))
    assert found.scraped == frozenset()


def test_application_of_another_model_is_refused_by_name_and_writes_nothing(ctx, world):
    text = json.dumps([policy("friend", "minio")])
    remote = testing.Relation(
        "service-mesh",
        remote_app_name="remote-0123456789abcdef0123456789abcdef",
        remote_app_data={"policies": text},
    )
    given = state(authorization="related")
    said = status(ctx, dataclasses.replace(given, relations={remote}))
    assert isinstance(said, ops.BlockedStatus)
    assert "remote-0123456789abcdef0123456789abcdef: is of another model" in said.message
    assert not [obj for obj in world.objects.values() if obj["kind"] == "AuthorizationPolicy"]

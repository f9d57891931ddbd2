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
from istio_integrator.policies.decide import MOST_WORKLOADS
from istio_integrator.situation.model import Model, Pod
from tests.unit.charm import fake_cluster
from tests.unit.charm.charm_world import state, status
from tests.unit.charm.security import members
from tests.unit.charm.security.callers import (
    NAME,
    Call,
    admits,
    decide,
    http,
    pod,
    policy,
    sa,
    said,
    service,
)

MINIO = (service("minio", 9000), pod("minio", labels={"pod-index": "0"}.items()))
EVIL = pod("evil", labels={"pod-index": "0"}.items())


@pytest.mark.parametrize(
    "selector",
    [
        pytest.param({NAME: "minio"}, id="by its name"),
        pytest.param({"pod-index": "0"}, id="by a label of every first pod"),
    ],
)
def test_service_of_an_application_that_leads_to_anothers_pods_is_not_its_own(selector):
    lure = service("evil", (80, 9000), selector=selector, application="evil")
    stated = said("evil", policy("friend", "evil", {"ports": [80]}))
    decision = decide(*MINIO, lure, EVIL, consumers=[stated])
    assert decision.policies == ()
    assert "not its own: Service evil" in decision.problems[0]
    closed = decide(*MINIO, lure, EVIL, mode="closed", consumers=[stated])
    assert not admits(closed, MINIO[1].metadata.labels, Call(sa("friend"), 9000))


def test_service_that_leads_to_pods_which_the_application_made_is_its_own():
    made = pod("viewer", labels={"app.juju.is/created-by": "kfp-viewer"}.items())
    own = service("viewer", 80, of="viewer", application="kfp-viewer")
    stated = said("kfp-viewer", policy("kfp-ui", None, {"ports": [80]}, target_service="viewer"))
    decision = decide(own, made, consumers=[stated])
    assert admits(decision, made.metadata.labels, Call(sa("kfp-ui"), 80))


def units(count):
    for number in range(count):
        labels = {NAME: "evil", "number": str(number)}
        yield policy("b", None, target_type="unit", target_selector_labels=labels)


def test_application_that_speaks_of_many_workloads_is_refused_and_no_other():
    most = MOST_WORKLOADS
    honest = said("minio", policy("kfp-api", "minio"), relation=2)
    few = decide(*MINIO, consumers=[honest, said("evil", *units(most))])
    assert len(few.policies) == most + 1
    assert few.problems == ()
    many = decide(*MINIO, consumers=[said("evil", *units(512)), honest])
    assert len(many.policies) == most + 1
    assert many.problems == (
        "service-mesh:3 evil: speaks of more than 16 workloads by labels: the rest is refused",
    )
    assert admits(many, MINIO[1].metadata.labels, Call(sa("kfp-api"), 9000))


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
    decision = decide(*services, *counted, mode="closed", consumers=consumers)
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

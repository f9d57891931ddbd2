"""Requests of a hook that has nothing to change."""

import collections
import dataclasses

import msgspec
import pytest
from ops import testing

from tests.unit.cases import cases
from tests.unit.charm import charm_world, fake_cluster, ingress_world
from tests.unit.charm.ingress_world import World, auth, route
from tests.unit.charm.security import applications, members

OFTEN = {
    "create pods kf": "each a dry run that shows something else",
    "list pods kf": "the webhook's own, those kept outside of ambient mode, and all",
    "list services kf": "the webhook's own Service, and those of the model",
    "list gateways kf": "Istio's kind, and that of the Gateway API",
    "get secrets kf mesh-2-record": "it names the other Secret's namespace",
}
MOST = 47
MOST_WITH_ROUTES = 44
NATIVE_SAVES = 1
"""If all sidecars are native, the nodes' versions are not read."""


def idle(world: World) -> collections.Counter[str]:
    """Count what a hook asks that has nothing to do."""
    world.run(lambda ctx: ctx.on.start())
    for _ in range(2):
        world.run()
    world.fake.requests.clear()
    world.fake.writes.clear()
    world.run(lambda ctx: ctx.on.update_status())
    assert not world.fake.writes
    return collections.Counter(world.fake.requests)


@pytest.mark.parametrize("event", ["created", "joined", "changed", "departed", "broken"])
def test_events_of_the_peer_relation_read_and_write_nothing(ctx, fake, installed, event):
    peers = testing.PeerRelation("units", peers_data={1: {}})
    given = dataclasses.replace(charm_world.state(), relations={peers})
    emitted = getattr(ctx.on, f"relation_{event}")
    ctx.run(
        emitted(peers, **({"remote_unit": 1} if event in ("joined", "departed") else {})), given
    )
    assert fake.requests == []


@pytest.mark.parametrize("is_native", [False, True])
@pytest.mark.parametrize("routes", [0, 1, 20])
def test_hook_asks_little_and_for_nothing_twice_however_many_routes_there_are(
    fake, monkeypatch, tmp_path, routes, is_native
):
    ingress_world.connect(fake, monkeypatch)
    fake_cluster.set_istiod(fake, native_by_default=is_native)
    fake.application()
    world = World(fake)
    if routes:
        world.related = [auth(), *(route(f"app-{number}") for number in range(routes))]
    world.ctx = charm_world.context(charm_root=charm_world.root(tmp_path))
    found = idle(world)
    assert not {each for each, count in found.items() if count > 1} - OFTEN.keys()
    most = MOST_WITH_ROUTES if routes else MOST
    assert found.total() <= most - NATIVE_SAVES * is_native, found
    # Neither a webhook is in the mesh nor a namespace in which jobs would fail.
    assert found["list peerauthentications"] == found["list ippools"] == 0
    if routes:
        # A model may have hundreds of Deployments.
        assert found["list deployments"] == 0
        lists = collections.Counter(each.split()[1] for each in found if each.startswith("list"))
        # The gateway's pods may be in any namespace, its filters have several owners, and the mesh
        # has policies and Sidecars, too.
        often = {kind for kind, count in lists.items() if count > 1}
        of_mesh = {"authorizationpolicies", "peerauthentications", "sidecars"}
        assert often == {"pods", "envoyfilters", *of_mesh}, lists


def test_objects_of_the_model_are_decoded_once_in_a_hook(world, monkeypatch):
    """With everything that looks at them: policies, mutual TLS, a gateway, and webhooks."""
    for each in ("katib", "minio"):
        world.fake.add(members.stateful_set(each))
        applications.add_application(world.fake, each, 443)
        world.fake.add(members.webhook(f"validator.{each}", each))
    ingress_world.install_gateway(world.fake, "kf")
    world.fake.add(members.profile("kf-user"))
    world.config = {
        "authorization": "closed",
        "mtls": "strict",
        "gateway_service": "kf/istio-ingressgateway",
    }
    asks = {"methods": ["GET"], "endpoints": [{"ports": [443]}]}
    world.related = [auth(), route(), applications.mesh("minio", asks)]
    decoded = collections.Counter()
    convert = msgspec.convert

    def count(obj, *given, **named):
        metadata = obj.get("metadata", {}) if isinstance(obj, dict) else {}
        if metadata.get("namespace") == "kf":
            decoded[obj["kind"], metadata["name"]] += 1
        return convert(obj, *given, **named)

    idle(world)
    monkeypatch.setattr(msgspec, "convert", count)
    world.run(lambda ctx: ctx.on.update_status())
    assert {kind for kind, _ in decoded} == {"Deployment", "Pod", "Service", "StatefulSet"}
    assert [each for each, times in decoded.items() if times > 1] == []


@cases(
    ("drifted", "asked"),
    settings=(("ConfigMap", "mesh-2-admission", "kf"), ["patch configmaps kf mesh-2-admission"]),
    webhook=(
        ("MutatingWebhookConfiguration", "0-istio-integrator.kf.mesh-2"),
        [
            "list mutatingwebhookconfigurations",
            "patch mutatingwebhookconfigurations 0-istio-integrator.kf.mesh-2",
        ],
    ),
)
def test_kind_that_a_hook_writes_is_read_anew_and_no_other(fake, world, drifted, asked):
    fake.application()
    before = idle(world)
    fake.find(*drifted)["metadata"]["annotations"].clear()
    fake.requests.clear()
    world.run(lambda ctx: ctx.on.update_status())
    assert sorted(collections.Counter(fake.requests) - before) == asked

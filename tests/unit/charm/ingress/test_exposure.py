"""The whole charm with ingress relations, on a small API server."""

import base64
import json
import time

from ops import testing

from integrator_contract import names
from integrator_contract.seen import Expectation, Server
from integrator_contract.service import Gateway
from tests.unit.cases import cases
from tests.unit.charm import charm_world
from tests.unit.charm.ingress import wishes
from tests.unit.charm.ingress_world import (
    HOST,
    LABELS,
    OWN,
    OWNER,
    auth,
    authority,
    install_gateway,
    neighbour,
    route,
)


def test_unrelated_ingress_needs_no_right_and_says_and_changes_nothing(world, monkeypatch):
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    kinds = ("gateways", "virtualservices", "envoyfilters")
    world.fake.forbidden |= {(verb, kind) for verb in ("get", "list") for kind in kinds}
    status = world.status()
    assert status.name == "active"
    assert "gateway" not in status.message
    assert "ingress" not in status.message
    assert world.gateway() is None
    assert not [write for write in world.fake.writes if "gateway" in write]
    assert waits == []


def test_workload_is_told_what_the_gateways_envoy_is_to_have(world, tmp_path):
    world.files = tmp_path
    assert charm_world.told(world.ctx, world.run()).gateway is None
    world.related = [route(service="ml-pipeline-ui"), auth()]
    out = world.run()
    told = charm_world.told(world.ctx, out)
    named = {"namespace": "istio-ingress", "name": "istio-ingressgateway"}
    assert told.gateway == Gateway(**named, selector=LABELS)
    expected = charm_world.results(world.ctx, out).expected
    patches = [each["patch"]["value"] for each in world.guard()["spec"]["configPatches"]]
    own = [each["name"] for each in patches if each.get("name", "").startswith("kf.mesh-2.")]
    strip, guard, *filters = list(dict.fromkeys(own))[:4]
    kept, upstreams = values(world), ("3000||ml-pipeline-ui", "8080||oidc")
    assert expected == Expectation(
        namespace="istio-ingress",
        selector=LABELS,
        gateway="kf/kubeflow-gateway",
        servers=(Server(port=80, protocol="HTTP", hosts=(HOST,)),),
        hosts=(HOST,),
        filters=(strip, *filters),
        latest=guard,
        entry="kf.mesh-2.ask",
        routes=1,
        marks=(kept["asked"], kept["free"], kept["root"]),
        proof=(kept["metadata"], kept["seen"]),
        istiod="istio-system",
        clusters=tuple(f"outbound|{each}.kf.svc.cluster.local" for each in upstreams),
    )
    port = {"number": 80, "name": "http", "protocol": "HTTP"}
    servers = [{"port": port, "hosts": [HOST]}]
    assert world.gateway()["spec"] == {"selector": LABELS, "servers": servers}
    assert world.guard()["metadata"]["ownerReferences"][0]["kind"] == "Namespace"
    # An exact path and a prefix.
    world.related.append(wishes.asks("b", wishes.route(wishes.match("/b"), port=81)))
    expected = charm_world.results(world.ctx, world.run()).expected
    assert expected.routes == 3
    assert "outbound|81||app.kf.svc.cluster.local" in expected.clusters
    own = f"istio-integrator.{names.name_owner('kf', 'mesh-2')}"
    world.config = {"tls_secret": "theirs"}
    assert charm_world.told(world.ctx, world.run()).gateway.secrets == ("theirs", own)
    world.config["gateway_service"] = ""
    out = world.run()
    assert charm_world.told(world.ctx, out).gateway.secrets == ("theirs", own)
    # The guard is for every host of the model's own gateway.
    assert charm_world.results(world.ctx, out).expected.hosts == ()
    world.config, world.related = {}, [*world.related, authority()]
    assert charm_world.told(world.ctx, world.run()).gateway.secrets == (own,)


def lead(service, port):
    host = f"{service}.kf.svc.cluster.local"
    return {"destination": {"host": host, "port": {"number": port}}}


def test_virtual_service_is_exported_to_the_gateway_and_never_to_all(world):
    rewritten = route(service="ml-pipeline-ui", prefix="/pipeline", rewrite="/new/")
    world.related = [rewritten, dex(wishes.OPEN), auth()]
    world.run()
    (found,) = world.all("VirtualService")
    assert found["metadata"]["name"] == "mesh-2-routes"
    sources = [f"ingress:{world.related[0].id} kfp-ui", f"{wishes.OPEN}:{world.related[1].id} dex"]
    assert found["metadata"]["annotations"][names.RELATION] == ", ".join(sources)
    mark = {values(world)["header"]: {"exact": values(world)["asked"]}}
    entry = {
        "name": f"mesh-2-ingress-{world.related[0].id}",
        "rewrite": {"uri": "/new/"},
        "route": [lead("ml-pipeline-ui", 3000)],
    }
    free = {values(world)["header"]: {"exact": values(world)["free"]}}
    uris = {"exact": "/dex"}, {"prefix": "/dex/"}
    last = {"match": [{"uri": {"prefix": "/"}}], "directResponse": {"status": 404}}
    assert found["spec"] == {
        "gateways": ["kf/kubeflow-gateway"],
        "hosts": [HOST],
        "exportTo": [".", "istio-ingress"],
        "http": [
            {**entry, "match": [{"uri": {"prefix": "/pipeline/"}, "headers": mark}]},
            {**entry, "match": [{"uri": {"prefix": "/pipeline"}, "headers": mark}]},
            {
                "name": f"{values(world)['routes']}-free",
                "match": [{"uri": each, "headers": free} for each in uris],
                "route": [lead("app", 80)],
            },
            {"name": f"{values(world)['routes']}-end", **last},
        ],
    }
    world.related = [route(prefix="/"), auth()]
    world.run()
    ((matched,), _) = (each["match"] for each in world.http())
    marked = {values(world)["header"]: {"exact": values(world)["root"]}}
    assert matched == {"uri": {"prefix": "/"}, "headers": marked}
    world.related = [auth(), testing.Relation("gateway-info", remote_app_name="kserve")]
    world.run()
    assert world.all("VirtualService") == []


def test_another_route_writes_the_routes_and_the_record_only(world):
    world.related = [route("a"), route("b"), auth()]
    world.run()
    world.fake.writes.clear()
    world.related.append(route("c"))
    world.run()
    record, routes = "patch secrets mesh-2-record", "patch virtualservices mesh-2-routes"
    assert world.fake.writes == [record, routes]


def test_foreign_gateway_of_the_name_is_left_alone(world):
    foreign = neighbour(world.fake)
    world.fake.delete("Gateway", "web", "shop")
    foreign["metadata"] = {"name": "kubeflow-gateway", "namespace": "kf"}
    world.fake.add(foreign)
    world.related = [route(), auth()]
    status = world.status()
    assert isinstance(status, testing.BlockedStatus)
    assert "another tool has Gateway kf/kubeflow-gateway" in status.message


def record(world):
    return world.fake.find("Secret", "mesh-2-record", "kf")


def values(world):
    """Return the values of the headers that requests need to match routes."""
    return json.loads(base64.b64decode(record(world)["data"]["record"]))["values"]


def dex(endpoint, kind="PathPrefix"):
    return wishes.asks("dex", wishes.route(wishes.match("/dex", kind)), endpoint=endpoint)


def replace(place, relation):
    """Return a change that replaces one relation."""
    return lambda world: world.related.__setitem__(place, relation)


def move_gateway(world):
    """Move the other team's gateway to another namespace."""
    for kind, name in (("Deployment", LABELS["app"]), ("Pod", "gateway-0")):
        world.fake.delete(kind, name, "istio-ingress")
    install_gateway(world.fake, "other")
    world.config["gateway_service"] = f"other/{LABELS['app']}"


def select_fewer(world):
    service = world.fake.find("Service", LABELS["app"], "istio-ingress")
    service["spec"]["selector"] = {"app": LABELS["app"]}


@cases(
    ("change", "is_narrower"),
    route_added=(lambda world: world.related.append(route("b")), False),
    route_removed=(lambda world: world.related.pop(0), True),
    route_elsewhere=(replace(0, route("a", port=1)), True),
    route_to_another=(replace(0, route("a", service="b")), True),
    route_of_another_path=(replace(0, route("a", prefix="/b")), True),
    route_of_longer_paths=(replace(1, dex(wishes.OPEN, "PathPrefix")), True),
    route_authenticated=(replace(1, dex(wishes.ASKED, "Exact")), True),
    service_replaced=(replace(2, auth(port=1)), True),
    service_removed=(lambda world: world.related.pop(2), True),
    host_removed=(lambda world: world.config.update(hosts="a.example"), True),
    host_added=(lambda world: world.config.update(hosts="a.example,b.example,c.example"), False),
    own_gateway=(lambda world: world.config.update(OWN), True),
    gateway_moved=(move_gateway, True),
    gateway_of_fewer_labels=(select_fewer, True),
    record_is_of_one_that_is_gone=(
        lambda world: record(world)["metadata"]["labels"].update({OWNER: "kf.gone"}),
        True,
    ),
    record_is_cut=(lambda world: record(world)["data"].update(record="eyI="), True),
    record_is_no_base64=(lambda world: record(world)["data"].update(record="x"), True),
)
def test_values_of_routes_are_new_whenever_access_narrows_and_only_then(
    world, change, is_narrower
):
    world.related = [route("a"), dex(wishes.OPEN, "Exact"), auth()]
    world.config = {"hosts": "a.example,b.example"}
    world.hook()
    first = values(world)
    change(world)
    world.hook()
    assert (values(world) != first) is is_narrower
    assert not is_narrower or not {*values(world).values()} & {*first.values()}


def test_values_are_new_when_authentication_is_switched_on(world):
    world.related, world.config = [route()], {"require_authentication": False}
    world.hook()
    first = values(world)
    world.related.append(auth())
    world.hook()
    assert values(world) != first


def test_values_are_kept_before_they_are_used_and_shown_to_nobody(world):
    """Record, guard and routes are there before the gateway, and this before its hosts."""
    world.related = [route(), auth()]
    world.run()
    written = [write.split()[1] for write in world.fake.writes]
    kinds = ["secrets", "envoyfilters", "virtualservices", "gateways"]
    record = written[written.index("envoyfilters") - 1 :]
    assert [kind for kind in record if kind in kinds] == [*kinds, "gateways"]
    world.run(lambda ctx: ctx.on.action("show-manifests"))
    told = world.ctx.action_results["manifests"]
    assert "VirtualService" in told
    assert not [one for one in values(world).values() if one in told]


def test_roles_for_a_gateway_of_our_own_and_for_grpc_are_only_needed_with_them(world):
    kinds = ("rolebindings", "roles", "destinationrules")
    world.fake.forbidden |= {("list", each) for each in kinds}
    world.related = [route(), auth()]
    assert "1 route served by istio-ingress/istio-ingressgateway" in world.status().message


def test_unit_that_does_not_lead_changes_and_says_nothing(world):
    world.related = [route(), auth()]
    world.config = {"authorization": "closed", "gateway_service_annotations": "{a: b}"}
    world.config["mtls"] = "strict"
    world.run(leader=False)
    assert world.fake.writes == []


def test_ingress_without_rights_to_look_at_gateways_says_which(world):
    world.fake.forbidden.add(("list", "gateways"))
    world.related = [route(), auth()]
    status = world.status()
    assert isinstance(status, testing.BlockedStatus)
    assert "missing permission: list gateways" in status.message

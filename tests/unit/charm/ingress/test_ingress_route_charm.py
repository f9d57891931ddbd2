"""The whole charm with relations of istio_ingress_route, on a small API server."""

import dataclasses
import json

import pytest
from ops import testing

from integrator_contract import names
from istio_integrator import messages
from tests.unit.charm import charm_world
from tests.unit.charm.ingress import wishes
from tests.unit.charm.ingress_world import auth, authority, route, sdi, sign

REFUSAL = 'admission webhook "validation.istio.io" denied the request: no such path'
AWAY = 'failed calling webhook "a.b": failed to call webhook: connection refused'
SERVICE = "istio-ingressgateway"


def path(value, **more):
    return wishes.route(wishes.match(value, **more))


def told(world, place=0):
    return dict(world.related[place].local_app_data)


def test_every_application_is_answered_at_once_and_again_when_it_changes(world, monkeypatch):
    charm_world.search(monkeypatch)
    world.related = [wishes.asks("kfp-ui"), wishes.asks("dex-auth", endpoint=wishes.OPEN)]
    # Closed, and nothing was asked for; HTTPS is not there.
    world.config = {"hosts": "*.example.org"}
    world.run()
    cluster_name = f"{SERVICE}.istio-ingress.svc.{charm_world.DOMAIN}"
    answer = {"external_host": cluster_name, "tls_enabled": "False"}
    assert [told(world, place) for place in (0, 1)] == [answer, answer]
    service = world.fake.find("Service", SERVICE, "istio-ingress")
    for key, address, host in (
        ("ip", "2001:db8::7", "[2001:db8::7]"),
        ("ip", "10.64.140.43", "10.64.140.43"),
        ("hostname", "lb.example.com", "lb.example.com"),
    ):
        first = {"ip": "10.9.9.8", key: address}
        service["status"] = {"loadBalancer": {"ingress": [first, {"hostname": "second"}]}}
        world.run()
        assert told(world)["external_host"] == host
    world.config = {"hosts": "*.example.org,kf.example.com"}
    world.related += [auth(), authority()]
    world.run()
    assert told(world) == {"external_host": "kf.example.com", "tls_enabled": "False"}
    sign(world)
    world.run()
    assert told(world)["tls_enabled"] == "True"
    # The host stays while there is no gateway.
    world.config["gateway_service"] = "istio-ingress/none"
    for hosts in ("*.example.org,ai.example.com", ""):
        world.config["hosts"] = hosts
        world.run()
        assert told(world) == {"external_host": "ai.example.com", "tls_enabled": "False"}


def test_routes_of_both_generations_are_one_object_and_each_trouble_its_own(world, caplog):
    broken = wishes.asks("broken")
    broken = dataclasses.replace(broken, remote_app_data={"config": '{"model": ' + "[" * 9999})
    world.related = [
        wishes.asks("jupyter-ui", path("/jupyter/"), path("/ab"), path("/kfp-ui")),
        route("kfp-ui"),
        wishes.asks("stranger", path("/x"), model="elsewhere"),
        wishes.asks("silent"),
        broken,
        auth(),
        # It has asked for no route of the older generation yet.
        sdi("ingress", "jupyter-ui"),
    ]
    status = world.status()
    (only,) = world.all("VirtualService")
    assert only["metadata"]["name"] == "mesh-2-routes"
    assert only["metadata"]["annotations"][names.RELATION] == (
        f"istio-ingress-route:{world.related[0].id} jupyter-ui, "
        f"ingress:{world.related[1].id} kfp-ui"
    )
    found = [each["uri"] for entry in world.http() for each in entry["match"]]
    assert [*map(str.strip, [next(iter(each.values())) for each in found], "/" * 6)] == [
        *("jupyter", "jupyter", "kfp-ui", "ab", "ab", "")
    ]
    # Juju shows one of them; the log has all.
    assert isinstance(status, testing.BlockedStatus)
    assert "/kfp-ui belongs to kfp-ui" in caplog.text
    assert "broken: sends a document that nests more than" in caplog.text
    assert "stranger: asks for Services of elsewhere" in caplog.text
    assert "waiting for silent on istio-ingress-route" in caplog.text
    assert all(told(world, place)["tls_enabled"] == "False" for place in (0, 2, 3, 4))
    world.fake.writes.clear()
    world.run()
    assert world.fake.writes == []


@pytest.mark.parametrize("code", [400, 403, 422])
def test_relation_whose_routes_are_not_taken_is_named_and_goes_alone(world, code):
    def refuse(obj):
        text = json.dumps(obj["spec"]) if obj["kind"] == "VirtualService" else ""
        if "poison" in text:
            return code, REFUSAL.replace("no such", "some") if "/good" in text else REFUSAL
        return (500, AWAY) if "/away" in text else None

    world.fake.validators.append(refuse)
    world.related = [route("good"), wishes.asks("bad", path("/poison")), auth()]
    out = world.run()
    status, expected = out.unit_status, charm_world.results(world.ctx, out).expected
    ends = ".kf.svc.cluster.local"
    assert expected.clusters == (f"outbound|3000||good{ends}", f"outbound|8080||oidc{ends}")
    assert isinstance(status, testing.BlockedStatus)
    where = f"istio-ingress-route:{world.related[1].id} bad"
    visible = status.message[: messages.VISIBLE]
    assert 'webhook "validation.istio.io" refuses' in visible
    assert "run: juju run mesh-2/leader diagnose" in visible
    assert f"{where.rpartition(' ')[2]} in kf; no such path" in status.message
    assert world.routes() == [f"mesh-2-ingress-{world.related[0].id}"]
    # The routes stay while only the refused relation is left, and while a webhook is away.
    world.related = world.related[1:]
    world.run()
    assert len(world.routes()) == 1
    world.related += [wishes.asks("late", path("/away")), route("new")]
    assert "does not answer" in world.status().message
    assert len(world.routes()) == 1


def test_refresh_writes_the_routes_before_the_former_ones_go(world):
    world.related = [route("kfp-ui"), auth()]
    world.run()
    (new,) = world.all("VirtualService")
    name = f"mesh-2-ingress-{world.related[0].id}"
    world.fake.delete("VirtualService", new["metadata"]["name"], "kf")
    kept = {"labels": new["metadata"]["labels"], "namespace": "kf", "name": name}
    world.fake.add({**new, "metadata": kept})
    world.fake.writes.clear()
    world.run()
    written, gone = "patch virtualservices mesh-2-routes", f"delete virtualservices {name}"
    assert world.fake.writes == [written, gone]


def rules(world):
    return {obj["spec"]["host"]: obj["spec"] for obj in world.all("DestinationRule")}


def test_gateway_speaks_http2_with_grpc_where_nobody_else_says_how(world):
    calls = {**path("/"), "matches": [{"method": {"service": "ml.Store"}}]}
    calls["backends"] = [{"service": "store", "port": 9090}]
    more = {**calls, "matches": [{"method": {"service": "ml.More"}}]}
    more["backends"] = [{"service": "store", "port": 10000}]
    theirs = {**calls, "matches": [{"method": {"service": "ml.Other"}}]}
    theirs["backends"] = [{"service": "other", "port": 9090}]
    world.fake.put("DestinationRule", "theirs", spec={"host": "other"})
    world.related = [wishes.asks("envoy", grpc=[more, calls, theirs]), auth()]
    world.run()
    host, pool = "store.kf.svc.cluster.local", {"http": {"useClientProtocol": True}}
    ports = [{"port": {"number": each}, "connectionPool": pool} for each in (9090, 10000)]
    policy = {"portLevelSettings": ports}
    rule = {"host": host, "exportTo": ["istio-ingress"], "trafficPolicy": policy}
    assert rules(world) == {host: rule}
    (name,) = (each["metadata"]["name"] for each in world.all("DestinationRule"))
    world.fake.put("DestinationRule", "wide", spec={"host": "*.kf.svc.cluster.local"})
    world.run()
    assert rules(world) == {}
    world.fake.delete("DestinationRule", "wide", "kf")
    world.fake.put("DestinationRule", name, spec={"host": "other"})
    world.fake.may_change = {f"destinationrules kf {name}"}
    assert f": another tool has DestinationRule kf/{name}" in world.status().message
    # Without the right to it everything is served all the same.
    world.related.append(route("kfp-ui"))
    world.fake.forbidden.add(("list", "destinationrules"))
    message = world.status().message
    assert "gRPC of istio-ingress-route" in message
    assert len(world.routes()) == 2
    world.fake.forbidden.clear()
    world.fake.delete("DestinationRule", name, "kf")
    world.run()
    assert [*rules(world)] == [host]
    world.remove()
    assert rules(world) == {}
    assert world.routes() == []
    assert world.fake.find("DestinationRule", "theirs", "kf")

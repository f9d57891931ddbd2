"""The model's Gateway and HTTPRoutes with routing=gateway-api.

What keeps the Gateway API from serving it is in relations/test_gateway_metadata.py.
"""

import base64
import json

import pytest
from ops import testing

from integrator_contract import names
from tests.unit.cases import cases
from tests.unit.charm.charm_world import results
from tests.unit.charm.ingress import wishes
from tests.unit.charm.ingress_world import OURS, auth, gateway_api_world, program, route, secret


@pytest.fixture
def world(fake, monkeypatch):
    return gateway_api_world(fake, monkeypatch)


AWAITED = "waiting for istiod to take Gateway kubeflow-gateway"
SAID = "Gateway kubeflow-gateway: istiod says: "


@cases(
    ("said", "severity", "words"),
    nothing_yet=({"accepted": "Unknown", "programmed": "Unknown"}, "waiting", AWAITED),
    accepted=({"programmed": "Unknown"}, "waiting", AWAITED),
    of_an_earlier_generation=({"age": 1}, "waiting", AWAITED),
    not_accepted=({"accepted": "False"}, "blocked", f"{SAID}address pending"),
    not_accepted_without_words=({"accepted": "False", "words": ""}, "waiting", AWAITED),
    not_programmed=({"programmed": "False"}, "waiting", f"{SAID}address pending"),
    served=({}, "active", "Gateway kubeflow-gateway at 203.0.113.7"),
)
def test_what_istiod_says_of_the_gateway_as_it_is_counts(world, said, severity, words):
    world.run()
    program(world.fake, **said)
    status = world.status()
    assert (status.name, words in status.message) == (severity, True), status


def test_virtual_services_of_others_on_our_gateway_are_named_by_both_spellings(world):
    def bound(namespace, name, gateways):
        spec = {"gateways": gateways, "http": []}
        world.fake.put("VirtualService", name, namespace, spec=spec)

    bound("kf-user", "notebook", ["kf/kubeflow-gateway"])
    assert "VirtualServices" not in world.status().message
    world.config["routing"] = "virtualservice"
    world.run()
    bound("kf", "short", ["mesh", "kubeflow-gateway"])
    bound("kf-user", "another", ["kubeflow-gateway", "shop/web"])
    bound("kf-user", "garbled", "kf/kubeflow-gateway")
    world.config["routing"] = "gateway-api"
    status = world.status()
    assert status.name == "blocked"
    assert status.message == (
        "run: juju config mesh-2 routing=virtualservice; kf-user/notebook, kf/short would be cut "
        "off by routing=gateway-api; +1 more; or the owners of these 2 VirtualServices on "
        "kubeflow-gateway move to HTTPRoutes"
    )
    assert world.gateway()["apiVersion"] == "networking.istio.io/v1"
    assert len(world.routes()) == 1
    assert world.fake.find("Deployment", "mesh-2-gateway", "kf")
    for namespace, name in (("kf-user", "notebook"), ("kf", "short")):
        world.fake.delete("VirtualService", name, namespace)
    world.run()
    assert world.fake.find("Deployment", "mesh-2-gateway", "kf") is None
    (gateway,) = world.all("Gateway")
    assert gateway["apiVersion"] == "gateway.networking.k8s.io/v1"
    assert world.all("VirtualService") == []


def test_every_host_has_a_listener_at_each_port_and_each_a_name_of_its_own(world):
    hosts = [f"{number}.example.com" for number in range(32)]
    secret(world.fake, "tls", "kf")
    world.config |= {"hosts": ",".join(hosts), "tls_secret": "tls", "https_redirect": True}
    world.related.append(wishes.asks("dex"))
    out = world.run()
    told = {"external_host": hosts[0], "tls_enabled": "True"}
    assert world.related[-1].local_app_data == told
    expected = results(world.ctx, out).expected
    assert [len(each.hosts) for each in expected.servers] == [32, 32]
    # The guard is for every host of the gateway.
    assert expected.hosts == ()
    found = world.gateway()["spec"]["listeners"]
    assert len({one["name"] for one in found}) == len(found) == 64
    assert {(one["port"], one["hostname"]) for one in found} == {
        (port, host) for port in (80, 443) for host in hosts
    }
    copied = {"group": "", "kind": "Secret", "name": f"istio-integrator.kf.{OURS}"}
    tls = {"mode": "Terminate", "certificateRefs": [copied]}
    assert [one.get("tls") for one in found] == [None] * 32 + [tls] * 32
    redirect = world.fake.find("EnvoyFilter", f"istio-integrator.kf.{OURS}.https", "kf")["spec"]
    chosen = {"gateway.networking.k8s.io/gateway-name": "kubeflow-gateway"}
    assert redirect["workloadSelector"] == {"labels": chosen}
    patch = {"operation": "MERGE", "value": {"require_tls": "ALL"}}
    place = {"applyTo": "VIRTUAL_HOST", "match": {"context": "GATEWAY"}}
    assert redirect["configPatches"] == [{**place, "patch": patch}]


WHOLE = {"type": "ReplaceFullPath", "replaceFullPath": "/b"}
REWRITE = {"type": "URLRewrite", "urlRewrite": {"path": WHOLE}}
RENAMED = wishes.route(wishes.match("/a", "Exact"), filters=[REWRITE])
GRPC = {**wishes.route({"method": {"service": "ml.Store", "method": "Get.All"}})}


@cases(
    ("related", "path", "rewrites"),
    method_of_grpc=(wishes.asks("a", grpc=[GRPC]), ("Exact", "/ml.Store/Get.All"), None),
    prefix=(wishes.asks("a", wishes.route(wishes.match("/a/"))), ("PathPrefix", "/a"), None),
    older=(route("a", prefix="/a/"), ("PathPrefix", "/a"), None),
    older_with_rewrite=(
        route("a", prefix="/a/", rewrite="/b/"), ("PathPrefix", "/a"),
        {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/b"},
    ),
    older_rewritten_to_itself=(route("a", prefix="/a/", rewrite="/a"), ("PathPrefix", "/a"), None),
    everything=(route("a", prefix="/"), ("PathPrefix", "/"), None),
    exact=(wishes.asks("a", RENAMED), ("Exact", "/a"), WHOLE),
    unauthenticated=(wishes.asks("a", RENAMED, endpoint=wishes.OPEN), ("Exact", "/a"), WHOLE),
)  # fmt: skip
def test_route_is_an_http_route_for_authenticated_requests(world, related, path, rewrites):
    world.related = [related, auth()]
    assert results(world.ctx, world.run()).expected.routes == 1
    (found,) = world.all("HTTPRoute")
    (rule,) = found["spec"]["rules"]
    (match,) = rule["matches"]
    assert (match["path"]["type"], match["path"]["value"]) == path
    (mark,) = match["headers"]
    assert mark["value"] in str(world.guard("kf"))
    parent = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "kubeflow-gateway"}
    assert found["spec"]["parentRefs"] == [parent]
    assert found["metadata"]["name"] == f"mesh-2-route-{related.id}-0"
    source = f"{related.endpoint}:{related.id} a"
    assert found["metadata"]["annotations"][names.RELATION] == source
    (backend,) = rule["backendRefs"]
    service, port = ("a", 3000) if related.endpoint == "ingress" else ("app", 80)
    assert backend == {"group": "", "kind": "Service", "name": service, "port": port}
    record = world.fake.find("Secret", f"{OURS}-record", "kf")["data"]["record"]
    values = json.loads(base64.b64decode(record))["values"]
    is_free = related.endpoint == wishes.OPEN
    assert mark == {"name": values["header"], "value": values["free" if is_free else "asked"]}
    assert rule.get("name") == (f"{values['routes']}-free" if is_free else None)
    filters = [each["urlRewrite"]["path"] for each in rule.get("filters", ())]
    assert filters == ([rewrites] if rewrites else [])


@pytest.mark.parametrize("code", [400, 422])
def test_route_that_the_api_server_refuses_costs_its_application_alone(world, caplog, code):
    world.fake.deny("HTTPRoute", code, "must not contain '//'", having="//")
    bad = [wishes.route(*(wishes.match(f"/{name}//b") for name in names)) for names in ("ac", "d")]
    good = wishes.route(wishes.match("/a", "Exact"), wishes.match("/b"))
    world.related = [wishes.asks(f"bad-{n}", each) for n, each in enumerate(bad)]
    world.related += [wishes.asks("good", good), auth()]
    out = world.run()
    status, expected = out.unit_status, results(world.ctx, out).expected
    assert isinstance(status, testing.BlockedStatus)
    assert "must not contain '//'" in status.message
    for each in world.related[:2]:
        source = f"{each.endpoint}:{each.id} {each.remote_app_name}"
        assert f"routes of {source} in kf" in caplog.text
    assert len(world.all("HTTPRoute")) == expected.routes == 2

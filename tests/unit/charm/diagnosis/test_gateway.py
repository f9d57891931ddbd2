"""The gateway's address, the authentication there, and where its routes lead."""

import base64

import pytest
from cryptography import x509

from integrator_contract import names
from integrator_contract.seen import Cause, EnvoyState, MissingPart, ReadFailure
from tests import asked, tls_pairs
from tests.unit.cases import cases, row
from tests.unit.charm import charm_world, fake_cluster, ingress_world
from tests.unit.charm.charm_world import DOMAIN
from tests.unit.charm.diagnosis.world import diagnose_ingress, said
from tests.unit.charm.ingress_world import HOST, OWN, auth, route

MODEL, GATEWAY, SERVICE = "kf", "istio-ingress", "istio-ingressgateway"
OURS = "kf/kubeflow-gateway"


@pytest.fixture
def world(world, monkeypatch):
    """A model with one route."""
    charm_world.search(monkeypatch)
    world.related = [route()]
    return world


BALANCER = {"type": "LoadBalancer"}
EXTERNAL = {"externalIPs": ["5.6.7.8", "9.8.7.6"]}
REACHED = f"{GATEWAY}/{SERVICE} is reached at "


@cases(
    ("spec", "balancer", "seen"),
    inside=({"clusterIP": "10.0.0.1"}, [], f"{REACHED}10.0.0.1 (ClusterIP)"),
    outside=(BALANCER | EXTERNAL, [{"ip": "1.2.3.4"}], f"{REACHED}1.2.3.4"),
    by_name=(BALANCER, [{"ip": "::1"}, {"hostname": "lb.x"}], f"{REACHED}::1, lb.x"),
    external=(EXTERNAL, [], f"{REACHED}5.6.7.8, 9.8.7.6"),
    external_balancer=(BALANCER | EXTERNAL, [], f"{REACHED}5.6.7.8, 9.8.7.6"),
    of_nodes=({"type": "NodePort", "clusterIP": "::1"}, [], f"{REACHED}::1 (NodePort)"),
    pending=(BALANCER, [], f"Service {GATEWAY}/{SERVICE} is a LoadBalancer without an address"),
)
def test_address_of_the_gateway(world, spec, balancer, seen):
    service = world.fake.find("Service", SERVICE, GATEWAY)
    service["spec"] |= spec
    service["status"] = {"loadBalancer": {"ingress": balancer}}
    assert [row.seen for row in diagnose_ingress(world, "gateway")] == [seen]


def serve(world):
    """Have istiod accept a Gateway of the Gateway API, which is told with its address."""
    world.base = {"routing": "gateway-api"}
    world.fake.put("GatewayClass", "mesh", "", spec={"controllerName": names.GATEWAY_CONTROLLER})
    world.run()
    ingress_world.program(world.fake)
    world.run()


def lose(kind, name):
    return lambda world: world.fake.delete(kind, name, GATEWAY)


NOT_ASKED, BESIDE = "AUTHENTICATOR_WITHOUT_PODS", ["FILTERS_ABSENT", "AUTHENTICATED"]
GIVE, SHOW = "juju config mesh-2 gateway-service", f"kubectl -n {GATEWAY} get services"


@cases(
    ("change", "want", "command"),
    no_istio=(lambda world: fake_cluster.uninstall_istio(world.fake), [], None),
    no_service=(lose("Service", SERVICE), ["GATEWAY_ABSENT"], SHOW),
    no_selector=(
        lambda world: world.fake.find("Service", SERVICE, GATEWAY)["spec"].pop("selector"),
        *(["GATEWAY_WITHOUT_SELECTOR"], f"{GIVE}=NAMESPACE/NAME"),
    ),
    no_pods=(lose("Pod", "gateway-0"), [NOT_ASKED, "GATEWAY_WITHOUT_PODS", *BESIDE], GIVE),
    gateway_api=(serve, [NOT_ASKED, *BESIDE, "PROFILES_ADMIT_GATEWAY"], None),
)
def test_checks_of_a_gateway_that_can_not_be_looked_at(world, change, want, command):
    world.fake.namespace("kf-user", **{names.PART_OF: names.PROFILE})
    world.related.append(auth())
    world.config = {"authorization": "related"}
    world.run()
    change(world)
    checks = ("gateway", "gateway filters", "hosts elsewhere", "authentication", "profiles")
    rows = diagnose_ingress(world, *checks)
    assert said(rows) == want
    assert [row.next for row in rows if row.check == "gateway"] == [command] * bool(command)


def test_gateway_without_a_ready_pod_is_named_and_leads_to_its_symptom(world):
    ingress_world.pod_of(world.fake, GATEWAY, status={})
    assert diagnose_ingress(world, "gateway") == []
    rows = diagnose_ingress(world, "status")
    (found,) = (row for row in rows if row.message == "GATEWAY_NOT_READY")
    assert found.symptoms == ["connection-refused-at-the-gateway"]
    assert found.next == f"kubectl -n {GATEWAY} describe pods"
    (found,) = (row for row in rows if "ingress is closed" in row.seen)
    assert found.symptoms == ["403-at-the-gateway"]


def server(host, **selector):
    servers = [{"hosts": ["a.example"]}, {"hosts": ["b.example", host]}]
    return {"selector": selector, "servers": servers}


@cases(
    ("kind", "spec", "is_named"),
    gateway=("Gateway", server(HOST, istio="ingressgateway"), True),
    gateway_of_a_namespace=("Gateway", server(f"shop/{HOST.upper()}"), True),
    gateway_elsewhere=("Gateway", server(HOST, istio="shop"), False),
    gateway_of_the_same_selector=("Gateway", server(HOST, **ingress_world.LABELS), True),
    gateway_at_all_pods=("Gateway", server(HOST), True),
    gateway_with_a_longer_name=("Gateway", server(f"x.{HOST}", istio="ingressgateway"), False),
    wildcard_of_a_platform=("Gateway", server("*", istio="ingressgateway"), False),
    ingress=("Ingress", {"rules": [{"host": "a.example"}, {"host": HOST.upper()}]}, True),
    ingress_without_a_host=("Ingress", {"rules": [{"http": {}}]}, False),
    route=("HTTPRoute", {"hostnames": [f"x.{HOST}", HOST.upper()]}, True),
)
def test_object_of_another_team_with_a_host_of_the_model_is_named(world, kind, spec, is_named):
    world.fake.put(kind, "theirs", "shop", spec=spec, labels={names.OWNER: "shop.mesh-2"})
    rows = diagnose_ingress(world, "hosts elsewhere")
    assert said(rows) == ["HOST_ELSEWHERE"] * is_named
    assert all(f"{kind} shop/theirs has the model's host {HOST}," in row.seen for row in rows)


def test_host_of_the_model_at_its_own_gateways_is_no_host_elsewhere(world):
    world.run()
    assert diagnose_ingress(world, "hosts elsewhere") == []
    world.base = {**OWN, "hosts": HOST}
    world.fake.put("Gateway", "theirs", "shop", spec=server(HOST))
    assert diagnose_ingress(world, "hosts elsewhere") == []


SELECTED = {"selector": {"matchLabels": {"istio": "ingressgateway"}}}
OTHERS = {"selector": {"matchLabels": {"istio": "shop"}}}
TO_US = {"kind": "Gateway", "name": "kubeflow-gateway"}


def target(kind, name):
    return {"targetRefs": [{"kind": kind, "name": name}]}


@pytest.mark.parametrize("is_ready", [True, False], ids=["ready", "not-ready"])
@cases(
    ("kind", "namespace", "spec", "is_named"),
    jwt=("RequestAuthentication", GATEWAY, SELECTED, True),
    jwt_for_all=("RequestAuthentication", GATEWAY, {}, True),
    jwt_of_the_mesh=("RequestAuthentication", fake_cluster.ROOT, {}, True),
    jwt_of_istiod=("RequestAuthentication", "istio-system", {}, False),
    jwt_for_others=("RequestAuthentication", GATEWAY, OTHERS, False),
    jwt_elsewhere=("RequestAuthentication", "shop", SELECTED, False),
    jwt_of_our_gateway=("RequestAuthentication", GATEWAY, {"targetRef": TO_US}, True),
    wasm=("WasmPlugin", GATEWAY, {**SELECTED, "phase": "AUTHN"}, True),
    wasm_for_others=("WasmPlugin", GATEWAY, OTHERS, False),
    wasm_of_the_service=("WasmPlugin", GATEWAY, target("Service", SERVICE), True),
    wasm_elsewhere=("WasmPlugin", "shop", target("Gateway", "kubeflow-gateway"), False),
    wasm_of_another=("WasmPlugin", GATEWAY, target("Service", "web"), False),
    custom=("AuthorizationPolicy", GATEWAY, {**SELECTED, "action": "CUSTOM"}, True),
    allow=("AuthorizationPolicy", GATEWAY, {**SELECTED, "action": "ALLOW"}, False),
    default=("AuthorizationPolicy", GATEWAY, SELECTED, False),
)
def test_filters_of_other_teams_before_our_authentication_are_named(  # noqa: PLR0917 - a table
    world, kind, namespace, spec, is_named, is_ready
):
    if not is_ready:
        ingress_world.pod_of(world.fake, GATEWAY, status={})
    fake_cluster.install_istio(world.fake, mesh_config="rootNamespace: mesh-root")
    world.fake.put(kind, "theirs", namespace, spec=spec)
    (found,) = diagnose_ingress(world, "gateway filters")
    assert found.message == ("FILTER_BEFORE" if is_named else "FILTERS_ABSENT")
    assert (f"{kind} {namespace}/theirs" in found.seen) is is_named


def test_filter_for_one_of_several_workloads_of_the_gateway_is_named(world):
    for version in ("a", "b", "c"):
        labels = {**ingress_world.LABELS, "version": version}
        ingress_world.pod_of(world.fake, name=f"gateway-{version}", labels=labels)
    selector = {"matchLabels": {"version": "b"}}
    world.fake.put("WasmPlugin", "theirs", GATEWAY, spec={"selector": selector})
    assert said(diagnose_ingress(world, "gateway filters")) == ["FILTER_BEFORE"]


MISSING = (MissingPart(cause=Cause.CLUSTER_MISSING),)


@cases(
    ("seen", "wanted"),
    asked=(EnvoyState(of="x", unseen=None, guarded=(80, 443)), ["80, 443"]),
    # The status names what is not seen, and what is missing.
    forbidden=(EnvoyState(of="x", unseen=ReadFailure.FORBIDDEN, detail="a right"), []),
    nothing_written=(EnvoyState(of=""), []),
    missing=(EnvoyState(of="x", unseen=None, guarded=(80,), missing=MISSING), []),
)
def test_authentication_is_judged_by_what_the_workload_saw(world, seen, wanted):
    world.related.append(auth())
    labels = {"kubernetes.io/service-name": "oidc"}
    for number, endpoints in enumerate(([], [{"conditions": {"ready": True}}])):
        world.fake.put("EndpointSlice", f"oidc-{number}", labels=labels, endpoints=endpoints)
    asked.SERVICE.seen = seen
    rows = diagnose_ingress(world, "authentication")
    said = f"oidc.kf.svc.{DOMAIN}:8080 authenticates requests to port {{}} of the gateway"
    assert [row.seen for row in rows] == [said.format(each) for each in wanted]


def test_authentication_that_is_switched_off_is_named_and_one_that_is_missing_closes(world):
    assert diagnose_ingress(world, "authentication") == []
    world.config = {"require_authentication": False}
    assert said(diagnose_ingress(world, "authentication")) == ["NOT_AUTHENTICATED"]


def test_authorization_service_without_pods_is_named(world):
    world.related.append(auth(namespace="sso"))
    world.fake.put("Service", "oidc", "sso")
    others = ("oidc-2", "sso", [{}]), ("oidc", MODEL, [{}])
    for name, namespace, endpoints in (("oidc", "sso", []), *others):
        labels = {"kubernetes.io/service-name": name}
        world.fake.put("EndpointSlice", f"{name}-1", namespace, labels=labels, endpoints=endpoints)
    world.run()
    found, _ = diagnose_ingress(world, "authentication")
    assert found.seen == "Service sso/oidc has no pods"
    assert found.next == "kubectl -n sso get service,endpointslices"


def add_route(
    fake,
    name="web",
    namespace=MODEL,
    *,
    gateways=(OURS,),
    hosts="*",
    to="web",
    how="http",
    port=80,
):
    destination = {"destination": {"host": to, "port": {"number": port} if port else {}}}
    spec = {"gateways": [*gateways], "hosts": [*hosts], how: [{"route": [destination]}]}
    fake.put("VirtualService", name, namespace, spec=spec)


def add_backend(fake, *, kind="ClusterIP", port=80, ready=True, name="http", of="http"):
    """Have a Service with two ports and slices, beside another team's with other endpoints."""
    labels = {"kubernetes.io/service-name": "web"}
    others = {"ready": not ready}
    for namespace, found in ((MODEL, {} if ready is None else {"ready": ready}), ("shop", others)):
        ports = [{"name": "metrics", "port": 79}, {"name": of, "port": port}]
        fake.put("Service", "web", namespace, spec={"type": kind, "ports": ports})
        endpoints = [{"conditions": {"ready": False}}, {"conditions": found}]
        for number, each in enumerate((["metrics", name], ["metrics"])):
            listed = {"ports": [{"name": one} for one in each], "endpoints": endpoints}
            fake.put("EndpointSlice", f"web-{number}", namespace, labels=labels, **listed)


FULL = f"web.kf.svc.{DOMAIN}"


@cases(
    ("backend", "to", "words", "how", "port"),
    {
        "backend": {"ready": False},
        "to": FULL,
        "how": "http",
        "port": 80,
        "words": "Service kf/web has no ready endpoint",
    },
    ready=row(backend={}, words=""),
    short=row(backend={}, to="web", words=""),
    of_namespace=row(backend={}, to="web.kf.svc", words=""),
    absent_is_ready=row(backend={"ready": None}, words=""),
    not_ready=row(),
    not_ready_by_tls=row(how="tls"),
    not_ready_by_tcp=row(how="tcp"),
    without_a_name=row(backend={"of": None, "name": ""}, words=""),
    another_port=row(backend={"name": "grpc"}),
    any_port=row(backend={"port": 81, "name": "grpc"}, port=None, words=""),
    no_such_port=row(backend={"port": 81}, words="Service kf/web has no port 80"),
    no_service=row(backend={}, to="wep.kf.svc", words="Service kf/wep does not exist"),
    external=row(backend={"kind": "ExternalName", "ready": False}, words=""),
)
def test_backend_of_a_route(world, backend, to, words, how, port):  # noqa: PLR0917 - a table
    world.related = [auth()]
    add_backend(world.fake, **backend)
    namespace = MODEL if to == "web" else "shop"
    for name in ("web", "web-2"):
        add_route(world.fake, name, namespace, to=to, how=how, port=port)
    rows = diagnose_ingress(world, "routes")
    seen = [f"VirtualService {namespace}/{name}: {words}" for name in ("web", "web-2")]
    assert [row.seen for row in rows] == (seen if words else ["2 backends of routes are ready"])
    assert {row.level for row in rows} == {"doubtful" if words else "fine"}
    look = "kubectl -n kf get service,endpointslices -l kubernetes.io/service-name="
    assert {row.next for row in rows} == {f"{look}{to.partition('.')[0]}" if words else ""}


def test_of_a_route_with_thousands_of_destinations_some_are_checked(world):
    world.related = [auth()]
    services = [f"web-{number}" for number in range(5000)]
    routes = [{"destination": {"host": name, "port": {"number": 80}}} for name in services]
    spec = {"gateways": [OURS] * 5000, "hosts": services, "http": [{"route": routes}]}
    world.fake.put("VirtualService", "huge", MODEL, spec=spec)
    add_route(world.fake, to="honest")
    found = diagnose_ingress(world, "routes")
    assert len(found) == 65
    assert any("Service kf/honest does not exist" in row.seen for row in found)


def test_backend_of_a_route_of_ours_is_broken_where_it_is_not_ready(world):
    world.run()
    (found,) = diagnose_ingress(world, "routes")
    assert (found.message, found.level) == ("BACKEND_NOT_READY", "broken")
    assert "Service kf/kfp-ui does not exist" in found.seen


def test_routes_are_those_of_the_model_its_profiles_and_its_gateways(world):
    world.related = [auth()]
    world.fake.namespace("kf-user", **{names.PART_OF: names.PROFILE})
    add_route(world.fake, "mine")
    add_route(world.fake, "users", "kf-user", gateways=("shop/web",))
    add_route(world.fake, "bound", "shop")
    add_route(world.fake, "others", "shop", gateways=("shop/web", "kf-2/web"))
    add_route(world.fake, "outside", to="web.kf.svc.example.org")
    add_route(world.fake, "far", to="web.example.org")
    seen = str(diagnose_ingress(world, "routes"))
    every = ("mine", "users", "bound", "others", "outside", "far")
    assert [name for name in every if name in seen] == ["mine", "users", "bound"]


@cases(
    ("gateways", "missing"),
    there=((OURS,), []),
    beside=(("kubeflow-gateway",), []),
    sidecars=(("mesh",), []),
    elsewhere=(("b/kubeflow-gateway", "mesh"), ["b/kubeflow-gateway"]),
    second_is_gone=((OURS, "other"), ["kf/other"]),
    two_are_gone=(("other", "b/kubeflow-gateway"), ["b/kubeflow-gateway", "kf/other"]),
)
def test_gateway_that_a_route_names_and_that_is_not_there(world, gateways, missing):
    world.run()
    add_route(world.fake, gateways=gateways, hosts=(HOST,))
    rows = [row for row in diagnose_ingress(world, "hosts") if not row.message.startswith("HOSTS")]
    text = "Gateway {}, which VirtualService kf/web names, does not exist"
    gone = [text.format(each) for each in missing]
    assert [row.seen for row in rows] == (gone or ["every Gateway that a route names exists"])


@cases(("count", "more"), few=(4, ""), many=(5, " and 1 more"))
def test_of_many_routes_a_few_are_named(world, count, more):
    for number in reversed(range(count)):
        add_route(world.fake, f"r{number}", gateways=("other",))
    found = diagnose_ingress(world, "hosts")[0]
    routes = f"VirtualService kf/r0, kf/r1, kf/r2, kf/r3{more} names"
    assert found.seen == f"Gateway kf/other, which {routes}, does not exist"


IRIS = "iris.kf-user.models.example.com"
INSIDE = f"iris.kf-user.svc.{DOMAIN}"


@cases(
    ("options", "hosts", "lacking"),
    every_host_is_ours=(OWN, [IRIS], None),
    wildcard_of_ours=({**OWN, "hosts": "*.example.com"}, [IRIS], None),
    beside_ours=({**OWN, "hosts": "*.example.com"}, ["a.example.org"], "a.example.org"),
    by_name=({**OWN, "hosts": f"a.example,{HOST}"}, [HOST], None),
    last_of_many_in_upper_case=({}, [*[INSIDE] * 31, HOST.upper()], None),
    every_host_is_the_routes=({}, ["*"], None),
    wildcard_of_the_route=({}, ["*.example.com"], None),
    another_wildcard=({}, ["*.example.org"], "*.example.org"),
    another=({}, [IRIS, "b.example.org"], IRIS),
    longer=({}, [f"x{HOST}"], f"x{HOST}"),
    only_for_pods=({}, [INSIDE, "iris.kf-user.svc"], INSIDE),
    host_for_the_outside=({}, ["iris.kf-user", IRIS, "iris.kf-user.svc", INSIDE], IRIS),
)
def test_route_at_no_host_of_ours_is_named_with_one_to_add(world, options, hosts, lacking):
    world.run()
    if options:
        world.base = options
        world.run()
        world.get_ready("mesh-2-gateway")
    odd = {"hosts": 5, "gateways": [OURS, [1]], "http": {"a": 1}}
    world.fake.put("VirtualService", "odd", "mallory", spec=odd)
    for name in ("iris", "iris-2"):
        add_route(world.fake, name, "kf-user", gateways=("shop/web", "mesh", OURS), hosts=hosts)
    add_route(world.fake, "elsewhere", hosts=[IRIS], gateways=("shop/web",))
    add_route(world.fake, "of-no-host", hosts=[])
    rows = {row.message: row for row in diagnose_ingress(world, "hosts")}
    if lacking is None:
        assert "HOSTS_SERVED" in rows
        return
    found = rows["HOSTS_NOT_SERVED"]
    assert found.seen == (
        f"Gateway {OURS} serves no host of VirtualService kf-user/iris, kf-user/iris-2: add "
        f"{lacking} to the option hosts, or a wildcard for them"
    )
    assert found.next == "kubectl -n kf-user get virtualservice iris -o yaml"


@cases(
    ("days", "words"),
    later=((1, 90), "is valid only from {since}"),
    today=((-1, 90), "is valid until {until}"),
    almost_late=((-81, 10), "is valid until {until}"),
    late=((-83, 8), "ends {until}"),
    over=((-91, -1), "ended {until}"),
)
def test_certificate_of_the_gateway_is_judged_by_its_age(world, days, words):
    world.config = {"tls_secret": "theirs"}
    secret = ingress_world.secret(world.fake, "theirs", GATEWAY)
    secret["data"] = tls_pairs.pair(days=days)
    world.run()
    found = x509.load_pem_x509_certificate(base64.b64decode(secret["data"]["tls.crt"]))
    ends = {"since": found.not_valid_before_utc, "until": found.not_valid_after_utc}
    times = {name: f"{time:%Y-%m-%d %H:%M}" for name, time in ends.items()}
    (row,) = (row for row in diagnose_ingress(world, "certificates") if "(theirs)" in row.seen)
    assert row.seen == f"gateway (theirs): the certificate {words.format(**times)}"
    look = f"kubectl -n {GATEWAY} describe secret theirs"
    assert row.next == ("" if "until" in row.seen else look)

"""A gateway that the options name: which pods can be it, and what changes on it."""

import pytest
from ops import testing

from integrator_contract import names
from istio_integrator import messages
from tests.unit.cases import cases
from tests.unit.charm import istio_objects
from tests.unit.charm.diagnosis.world import diagnose_ingress
from tests.unit.charm.fake_cluster import set_environment
from tests.unit.charm.ingress_world import (
    HOST,
    LABELS,
    OWN,
    auth,
    install_gateway,
    pod_of,
    route,
    secret,
)

GATEWAY = "istio-ingressgateway"
SERVICE = f"istio-ingress/{GATEWAY}"
OPTION = f"gateway-service={SERVICE}"
PORTLESS = f"Service {SERVICE} has no port for HTTP or HTTPS"
HTTP = {"name": "http2", "port": 80, "targetPort": 8080}
HTTPS = {"name": "https", "port": 443, "targetPort": 8443}
STATUS = {"name": "status-port", "port": 15021, "targetPort": 15021}
SCOPED = "PILOT_SCOPE_GATEWAY_TO_NAMESPACE"
HIDES = "of istiod hides the model from gateway"
LABEL = "run: kubectl label namespace istio-ingress model.juju.is/name=kf"
SELECTORS = "discoverySelectors leave out the namespace of"
MORE = "ml.example.com"
BOTH = f"{HOST},{MORE}"
RESERVED = (15000, 15001, 15004, 15006, 15008, 15009, 15020, 15021, 15053, 15090)


@pytest.fixture
def served(world):
    """A model that a named gateway serves."""
    world.related = [route(), auth()]
    return world


def serve(world, *ports, selector=LABELS):
    """Change the Service of the gateway."""
    spec = world.fake.find("Service", GATEWAY, "istio-ingress")["spec"]
    spec.update(selector=selector, ports=[*ports])


def of_istiod(world, namespace):
    """Set the address of istiod in the gateway's proxy."""
    address = {"name": "CA_ADDR", "value": f"istiod.{namespace}.svc.cluster.local:15012"}
    pod_of(world.fake, env=[address])


def ignore_gateways(world):
    """Have istiod serve the model alone."""
    selector = "discoverySelectors: [{matchLabels: {model.juju.is/name: kf}}]"
    world.fake.find("ConfigMap", "istio", "istio-system")["data"] = {"mesh": selector}


@cases(
    ("change", "message"),
    no_hosts=(
        lambda world: world.config.update(hosts=""),
        f"{OPTION} needs hosts; run: juju config mesh-2 hosts=NAME",
    ),
    no_service=(
        lambda world: world.fake.delete("Service", GATEWAY, "istio-ingress"),
        f"run: kubectl -n istio-ingress get services; Service {SERVICE} does not exist",
    ),
    no_selector=(
        lambda world: serve(world, HTTP, selector={}),
        f"run: juju run mesh-2/leader diagnose; Service {SERVICE} selects no pods",
    ),
    also_elsewhere=(
        lambda world: pod_of(world.fake, "istio-ingress-2"),
        f"{OPTION}: its selector also selects pods elsewhere: istio-ingress-2/ingress",
    ),
    sidecar=(
        lambda world: pod_of(world.fake, args=("proxy", "sidecar")),
        f"{OPTION}: Pod istio-ingress/gateway-0 is not a gateway of Istio",
    ),
    another_istiod=(
        lambda world: of_istiod(world, "other"),
        f"{OPTION}: its istiod is that of other, the model's that of istio-system",
    ),
    ignored=(ignore_gateways, f"istiod ignores gateway-service; {LABEL}; {SELECTORS} {SERVICE}"),
    scoped_istiod=(
        lambda world: set_environment(world.fake, SCOPED, "1"),
        f"run: juju config mesh-2 gateway-service=; {SCOPED} {HIDES} {SERVICE}",
    ),
    no_port=(lambda world: serve(world, STATUS), PORTLESS),
    reserved_port=(lambda world: serve(world, {**HTTP, "targetPort": 15021}), PORTLESS),
)
@pytest.mark.parametrize("related", [[], [route(), auth()]], ids=["unrelated", "related"])
def test_what_can_not_be_the_gateway_is_refused_by_name(world, change, message, related):
    world.related = related
    change(world)
    assert world.hook().unit_status == testing.BlockedStatus(message)
    assert (world.routes(), world.gateway()) == ([], None)


def test_named_gateway_that_starts_is_waited_for_once_something_is_related(world):
    world.fake.delete("Pod", "gateway-0", "istio-ingress")
    assert world.hook().unit_status.name == "active"
    world.related = [route(), auth()]
    assert world.hook().unit_status.message.startswith(f"waiting for pods of Service {SERVICE}")


def test_gateway_in_the_model_is_served_whatever_istiod_does_elsewhere(served):
    served.fake.delete("Pod", "gateway-0", "istio-ingress")
    install_gateway(served.fake, "kf")
    set_environment(served.fake, SCOPED, "true")
    served.config = {"gateway_service": f"kf/{GATEWAY}"}
    assert f"1 route served by kf/{GATEWAY}" in served.status().message


def canary(**container):
    """Return the specification of a canary's pod, whose Helm release has its own account."""
    proxy = {"name": "istio-proxy", "args": ["proxy", "router"], **container}
    return {"serviceAccountName": "canary", "containers": [proxy]}


@cases(
    "change",
    two_pods=lambda world: pod_of(world.fake, name="y", of="ingress-6", status={}),
    own_istiod=lambda world: of_istiod(world, "istio-system"),
    istiod_by_another_name=lambda world: pod_of(
        world.fake, env=[{"name": "CA_ADDR", "value": "istiod.other.example:15012"}]
    ),
    canary=lambda world: pod_of(world.fake, name="canary-1-x", of="canary-5"),
    copied_pod=lambda world: pod_of(world.fake, name="lone", of=""),
    without_named_ports=lambda world: pod_of(
        world.fake, name="canary-1-x", of="canary-5", spec=canary()
    ),
)
def test_pods_of_the_services_namespace_are_the_gateway(served, change):
    change(served)
    serve(served, {**HTTP, "targetPort": "http"})
    status = served.status()
    assert status.name == "active"
    assert f"1 route served by {SERVICE}" in status.message
    assert served.gateway()["spec"]["selector"] == LABELS


@cases(
    ("spec", "message"),
    another_workload=(
        canary(args=["proxy", "sidecar"]),
        f"{OPTION}: Pod istio-ingress/canary-1-x is not a gateway of Istio",
    ),
    another_istiod=(
        canary(env=[{"name": "CA_ADDR", "value": "istiod.other.svc:15012"}]),
        f"{OPTION}: its istiod is that of other, the model's that of istio-system",
    ),
    reserved_port=(canary(ports=[{"name": "http", "containerPort": 15021}]), PORTLESS),
)
def test_pod_beside_the_gateway_that_can_not_be_one_is_named(served, spec, message):
    served.run()
    serve(served, {**HTTP, "targetPort": "http"})
    pod_of(served.fake, name="canary-1-x", of="canary-5", spec=spec)
    assert served.status() == testing.BlockedStatus(message)
    assert (served.routes() == []) == (message == PORTLESS)


def test_istiod_that_is_not_known_is_not_compared(served):
    of_istiod(served, "other")
    served.fake.delete("MutatingWebhookConfiguration", "istio-sidecar-injector")
    istio_objects.install_remote(served.fake)
    served.hook()
    assert served.gateway() is not None


@cases(
    ("ports", "want"),
    usual=((STATUS, {**HTTP, "name": "http", "port": 79}, HTTP, HTTPS), [80, 443]),
    http=(({**HTTP, "name": "http-web", "port": 8000},), [8000]),
    http2=(({"name": "grpc", "port": 78}, {**HTTP, "port": 81}), [81]),
    https=(({"name": "https-x", "port": 8443},), [8443]),
    named_target=(({"port": 80, "targetPort": "http"},), [80]),
    no_such_name=(({"port": 80, "targetPort": "none"}, HTTPS), [443]),
    http3=(({"name": "http3", "port": 8080}, HTTPS), [443]),
    udp=(({**HTTPS, "protocol": "UDP"}, HTTP), [80]),
    reserved=(
        (*({"name": f"http-{n}", "port": n - 1000, "targetPort": n} for n in RESERVED), HTTPS),
        [443],
    ),
)
def test_entries_are_ports_of_the_service_that_lead_to_the_pods(served, ports, want):
    secret(served.fake, "tls", "istio-ingress")
    served.config = {"tls_secret": "tls"}
    serve(served, *ports)
    served.hook()
    servers = served.gateway()["spec"]["servers"]
    ports = [(each["port"]["number"], each["port"]["protocol"]) for each in servers]
    assert ports == [(port, "HTTPS" if port in (443, 8443) else "HTTP") for port in want]
    assert [each["port"]["protocol"] == "HTTPS" for each in servers] == [
        "credentialName" in each.get("tls", {}) for each in servers
    ]


@cases("change", none=None, failed={"status": {"phase": "Failed"}}, ending={"is_ending": True})
def test_pods_that_are_away_are_waited_for_and_what_is_served_stays(served, change):
    served.run()
    serve(served, HTTP, {**HTTPS, "targetPort": "named"})
    served.fake.delete("Pod", "gateway-0", "istio-ingress")
    if change:
        pod_of(served.fake, **change)
    status = served.status()
    assert status.name == "waiting"
    assert f"waiting for pods of Service {SERVICE}" in status.message
    assert len(served.routes()) == 1
    pod_of(served.fake, name="next")
    assert served.status().name == "active"


def test_gateway_without_a_ready_pod_is_not_ready(served):
    pod_of(served.fake, status={"conditions": [{"type": "Ready", "status": "False"}]})
    pod_of(served.fake, name="ready-and-ending", is_ending=True)
    assert f"gateway {SERVICE} is not ready" in served.status().message
    pod_of(served.fake, name="ready-and-not-a-gateway", args=("proxy", "sidecar"))
    served.related.append(testing.Relation("gateway-info", remote_app_name="kserve-controller"))
    served.hook()
    assert served.related[-1].local_app_data["gateway_up"] == "false"


def order_of(world):
    names = {"envoyfilters": "guard", "gateways": "gateway", "virtualservices": "routes"}
    found = [write.split() for write in world.fake.writes]
    return [f"{verb} {names[kind]}" for verb, kind, _ in found if kind in names]


def test_other_hosts_are_guarded_before_the_gateway_serves_them(served):
    served.config = {"hosts": "kf.example.com"}
    served.run()
    served.fake.writes.clear()
    served.config = {"hosts": "ai.example.com"}
    served.run()
    assert order_of(served) == ["patch guard", "patch routes", "patch gateway", "patch gateway"]


POLICY = 'admission webhook "validate.kyverno.svc-fail" denied the request: unfit'


def deny(world, kind, is_fit):
    """Have another team's webhook deny objects of a kind whose specification is not fit."""

    def validate(obj):
        return None if obj["kind"] != kind or is_fit(obj["spec"]) else (400, POLICY)

    world.fake.validators.append(validate)


def below(end, protocol="HTTP"):
    """Require hosts with an end of a VirtualService, or of a Gateway's servers of a protocol."""

    def is_fit(spec):
        servers = [{"port": {"protocol": protocol}, **one} for one in spec.get("servers", [spec])]
        judged = [one["hosts"] for one in servers if one["port"]["protocol"] == protocol]
        return all(host.endswith(end) for hosts in judged for host in hosts)

    return is_fit


def kept(world):
    """Return what serves the model, without what the API server counts."""
    kinds = ("EnvoyFilter", "VirtualService", "Gateway")
    return [(obj["kind"], obj["spec"]) for kind in kinds for obj in world.all(kind)]


@cases(
    "hosts",
    exact="kf.corp.example",
    wildcard="*.corp.example",
    long=f"ab.{'a.' * 92}corp.example",
    too_long=f"{'a.' * 94}corp.example,kf.corp.example",
)
def test_first_host_that_a_policy_demands_opens(served, hosts):
    # The placeholder is below the former host, and another server follows.
    served.hook()
    secret(served.fake, "tls", "istio-ingress")
    served.config = {"hosts": hosts, "tls_secret": "tls"}
    deny(served, "Gateway", below(".corp.example"))
    deny(served, "Gateway", below(".corp.example", "HTTPS"))
    served.run()
    opened = [each["hosts"] for each in served.gateway()["spec"]["servers"]]
    assert opened == [hosts.split(",")] * 2


BOUND_KINDS = pytest.mark.parametrize("kind", ["Gateway", "VirtualService"])


@BOUND_KINDS
def test_hosts_that_a_policy_refuses_leave_those_that_are_served(served, kind):
    secret(served.fake, "tls", "istio-ingress")
    served.config = {"tls_secret": "tls"}
    served.run()
    before = kept(served)
    deny(served, kind, below(".example.com", "HTTPS"))
    served.config["hosts"] = "kf.elsewhere.example"
    refused = {"Gateway": "Gateway kf/kubeflow-gateway", "VirtualService": "routes in kf"}[kind]
    for _ in range(2):
        status = served.status()
        assert status.name == "blocked"
        assert f'validate.kyverno.svc-fail" refuses {refused}; ' in status.message[:130]
        assert kept(served) == before
    served.related.append(route("katib-ui"))
    served.run()
    assert len(served.routes()) == 2
    assert served.gateway()["spec"]["servers"][0]["hosts"] == [HOST]
    served.config["hosts"] = "ai.example.com"
    assert served.status().name == "active"
    assert served.gateway()["spec"]["servers"][0]["hosts"] == ["ai.example.com"]


@BOUND_KINDS
def test_every_host_is_served_on_while_a_policy_refuses_others(served, kind):
    served.config = {**OWN, "hosts": ""}
    served.run()
    served.get_ready("mesh-2-gateway")
    before = kept(served)
    assert served.gateway()["spec"]["servers"][0]["hosts"] == ["*"]
    deny(served, kind, lambda spec: not below(".elsewhere.example")(spec))
    served.config["hosts"] = "kf.elsewhere.example"
    for _ in range(2):
        assert served.status().name == "blocked"
        assert kept(served) == before


@BOUND_KINDS
def test_gateway_that_a_policy_refuses_leaves_the_present_one(served, kind):
    served.run()
    before = kept(served)
    fit = {"Gateway": {"selector": LABELS}, "VirtualService": {"exportTo": [".", "istio-ingress"]}}
    deny(served, kind, lambda spec: spec.items() >= fit[kind].items())
    served.config = OWN
    status = served.status()
    assert status.name == "blocked"
    assert 'webhook "validate.kyverno.svc-fail" refuses' in status.message[:110]
    assert kept(served) == before


def test_route_that_a_policy_refuses_keeps_no_other_route_from_new_hosts(served):
    served.related.append(route("katib-ui"))
    served.run()
    deny(served, "VirtualService", lambda spec: "/katib-ui" not in str(spec))
    served.config = {"hosts": "ai.example.com"}
    assert served.status().name == "blocked"
    assert served.gateway()["spec"]["servers"][0]["hosts"] == ["ai.example.com"]
    assert len(served.routes()) == 1


def test_change_that_a_webhook_cannot_try_goes_on(served):
    served.run()
    served.fake.has_side_effects = True
    served.config = {"hosts": "ai.example.com"}
    assert served.status().name == "active"
    assert served.gateway()["spec"]["servers"][0]["hosts"] == ["ai.example.com"]


def test_api_server_that_fails_once_rejects_no_hosts(served):
    served.run()
    failing = [(500, "etcdserver: leader changed")]
    served.fake.validators.append(
        lambda obj: failing.pop() if failing and obj["kind"] == "Gateway" else None
    )
    served.config = {"hosts": "ai.example.com"}
    assert served.hook().unit_status.name == "waiting"
    assert served.status().name == "active"


def test_pods_elsewhere_with_the_gateways_labels_end_the_service_until_they_are_gone(served):
    served.run()
    install_gateway(served.fake, "istio-ingress-2")
    status = served.status()
    assert status.name == "blocked"
    assert "istio-ingress-2/ingress" in status.message
    assert (served.routes(), served.gateway()) == ([], None)
    assert served.guard() is not None
    served.fake.delete("Pod", "gateway-0", "istio-ingress-2")
    assert served.status().name == "active"
    assert len(served.routes()) == 1


OTHER = "kf-2.mesh-2"


def guard_of(world, hosts, *, owner=OTHER, age="2020", namespace="istio-ingress", **labels):
    """Add the EnvoyFilters of another integrator, whose application is there."""
    model, _, application = owner.partition(".")
    world.fake.namespace(model)
    world.fake.put("StatefulSet", application, model)
    world.fake.put(
        "EnvoyFilter",
        f"istio-integrator.{owner}",
        namespace,
        labels={names.OWNER: owner},
        annotations={names.HOSTS: hosts},
        creationTimestamp=f"{age}-01-01T00:00:00Z",
        spec={"workloadSelector": {"labels": labels or LABELS}},
    )
    world.fake.put(
        "EnvoyFilter",
        f"istio-integrator.{owner}.training",
        namespace,
        labels={names.OWNER: owner},
        spec={"workloadSelector": {"labels": {names.POD_TRAFFIC: names.MUTUAL_TLS}}},
    )


@cases(
    ("earlier", "later", "hosts"),
    before_us=({"hosts": HOST, "age": "2099"}, None, MORE),
    two_hosts=({"hosts": f"{HOST},{MORE}"}, None, ""),
    another_host=({"hosts": "shop.example.com"}, None, f"{HOST},{MORE}"),
    another_gateway=({"hosts": HOST, "istio": "other"}, None, f"{HOST},{MORE}"),
    other_labels=({"hosts": HOST, "istio": "ingressgateway", "x": "y"}, None, MORE),
    of_a_tenant=({"hosts": HOST, "namespace": "team-a"}, None, f"{HOST},{MORE}"),
    after_us=(None, {"hosts": HOST, "age": "2099"}, f"{HOST},{MORE}"),
    at_once_and_older=(None, {"hosts": HOST}, MORE),
    at_once_and_first_by_name=(None, {"hosts": HOST, "owner": "a.b", "age": "2026"}, MORE),
    at_once_and_last_by_name=(None, {"hosts": HOST, "age": "2026", "owner": "z.b"}, BOTH),
)
def test_host_stays_with_the_integrator_that_had_it_first(served, earlier, later, hosts):
    served.fake.namespace("team-a")
    served.config = {"hosts": BOTH}
    if earlier:
        guard_of(served, **earlier)
    served.run()
    if later:
        served.guard()["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        guard_of(served, **later)
    for _ in range(2):
        status = served.status()
    opened = served.gateway()["spec"]["servers"][0]["hosts"] if hosts else []
    assert ",".join(opened) == hosts
    written = served.guard()
    claimed = written["metadata"]["annotations"][names.HOSTS] if written else ""
    assert claimed == hosts
    assert (status.name == "blocked") is (hosts != BOTH)
    owner = (later or earlier).get("owner", OTHER).replace(".", "/")
    words = (
        f"{owner} has {HOST}{'' if hosts else f', {MORE}'} at this gateway; "
        "run: juju config mesh-2 hosts=NAME; of two integrators with one host in namespace "
        "istio-ingress, the earlier serves it"
    )
    assert (status.message == words) is (hosts != BOTH)


def test_host_that_another_integrator_has_is_served_once_it_is_free(served):
    served.config = {"hosts": BOTH}
    guard_of(served, HOST)
    guard_of(served, MORE, owner="a.b")
    status = served.status()
    visible = status.message[: messages.VISIBLE]
    for words in ("kf-2/mesh-2 has kf.example.com at", "juju config mesh-2 hosts="):
        assert words in visible
    served.fake.delete("EnvoyFilter", "istio-integrator.a.b", "istio-ingress")
    served.config = {"hosts": HOST}
    assert (served.routes(), served.gateway(), served.guard()) == ([], None, None)
    served.fake.delete("StatefulSet", "mesh-2", "kf-2")
    found = served.status()
    assert f"kf-2/mesh-2 is removed, and its EnvoyFilter guards {HOST}" in found.message
    assert found.message.startswith("run: juju run mesh-2/leader diagnose")
    (row,) = diagnose_ingress(served, "gateway")
    name = f"istio-integrator.{OTHER}"
    assert row.next == f"kubectl -n istio-ingress delete envoyfilter {name}"
    # A host that is left keeps the messages about the gateway.
    served.config = {"hosts": BOTH}
    pod_of(served.fake, name="lone", args=("proxy", "sidecar"))
    assert [row.message for row in diagnose_ingress(served, "gateway")][:2] == [
        *("GATEWAY_IS_NONE", "HOSTS_OF_REMOVED_OWNER")
    ]
    served.fake.delete("Pod", "lone", "istio-ingress")
    served.fake.delete("EnvoyFilter", f"istio-integrator.{OTHER}", "istio-ingress")
    assert served.status().name == "active"
    assert len(served.routes()) == 1


def test_named_gateway_is_refused_with_the_gateway_api(served):
    served.config = {"routing": "gateway-api"}
    leave = "run: juju config mesh-2 gateway-service="
    words = f"{leave}; {SERVICE} is refused with routing=gateway-api"
    assert served.status() == testing.BlockedStatus(words)
    assert (served.routes(), served.gateway()) == ([], None)

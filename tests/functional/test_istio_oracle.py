"""The charm's interpretation of policies and ports, compared with istiod and Envoy.

istiod reads generated policies from a file, so that they have the ages that are wanted. One Envoy
is given its configuration, another one serves all that was given, each at an address of its own.
"""

import contextlib
import json
import random

import msgspec
import pytest
import yaml

from istio_integrator.istio import authorization_policy, peer_authentication
from istio_integrator.istio.authorization_policy import InboundRequest, Truth
from istio_integrator.situation import model
from testbed import loopback
from tests import echo, waiting
from tests.functional import istiod_world, sidecar_world
from tests.kubernetes_objects import made

MODEL, ROOT, OWN = "kubeflow", "istio-system", "td1"
DOMAINS = (OWN, "td2")
LABELS = {"app": "web", "tier": "a"}
SEED = 36
CALLERS = {
    "outside": (None, "127.0.0.9"),
    "minio": ((MODEL, "minio", OWN), "127.0.0.10"),
    "editor": (("alice", "default-editor", OWN), "127.1.0.9"),
    "of an alias": ((MODEL, "minio", "td2"), "127.0.0.10"),
}
"""Their certificates and addresses."""
REQUESTS = (
    ("GET", "/", "web.kubeflow:8080"),
    ("POST", "/api/v1?x=/end", "WEB.example.org"),
    ("GET", "/api/end", "db"),
)


class Istiod:
    """istiod, and what it has a sidecar do."""

    def __init__(self, folder, xds, admin, ports):
        self._folder = folder
        self.xds = xds
        self._admin = admin
        self.ports = ports
        self._marks = 0

    def listeners(self, *policies):
        """The listeners at both ports, for HTTP and for TCP, once it knows these policies."""
        self._marks += 1
        # It changes nothing and is in each listener.
        mark = written("AuthorizationPolicy", f"mark-{self._marks}-", MODEL, action="AUDIT")
        mark["spec"]["rules"] = [{}]
        text = yaml.safe_dump_all([sidecar(*self.ports), *policies, mark])
        fresh = self._folder / "fresh"
        fresh.write_text(text)
        fresh.replace(self._folder / "config" / "policies.yaml")

        def known():
            found = sidecar_world.listeners(self._admin, self.ports)
            is_so = json.dumps(found).count(mark["metadata"]["name"]) >= len(self.ports)
            return found if is_so and len(found) == len(self.ports) else None

        found = waiting.eventually(known)
        assert found, (self._folder / "istiod.log").read_text()[-2000:]
        return found


def written(kind, name, namespace, created="2026-01-01T00:00:00Z", **spec):
    """A policy as the API server would have it."""
    metadata = {"creationTimestamp": created}
    return made("security.istio.io/v1", kind, name, namespace, spec, metadata=metadata)


def sidecar(http_port, tcp_port):
    """Two ports of a pod, of which the proxy sees requests at the first alone."""
    one = sidecar_world.sidecar(MODEL, "web", LABELS, http_port, 9)
    (entry,) = one["spec"]["ingress"]
    port = {"number": tcp_port, "protocol": "TCP", "name": "tcp"}
    one["spec"]["ingress"].append({**entry, "port": port})
    return one


@pytest.fixture(scope="module")
def istiod(kubeconfig, tmp_path_factory):
    """istiod with one sidecar."""
    folder = tmp_path_factory.mktemp("oracle")
    (folder / "config").mkdir()
    ports = loopback.free_ports(2)
    (folder / "config" / "policies.yaml").write_text(yaml.safe_dump(sidecar(*ports)))
    outbound, inbound = loopback.free_ports(2)
    listening = {"proxyListenPort": outbound, "proxyInboundListenPort": inbound}
    settings = {"trustDomain": OWN, "trustDomainAliases": list(DOMAINS[1:]), **listening}
    environment = {"XDS_AUTH_PLAINTEXT": "false", "PILOT_DEBOUNCE_AFTER": "10ms"}
    options = [f"--configDir={folder / 'config'}"]
    with contextlib.ExitStack() as stack:
        xds = stack.enter_context(
            istiod_world.istiod(folder, kubeconfig, settings, environment, options=options)
        )
        given = sidecar_world.configured(folder, xds, "web-0", MODEL, LABELS)
        admin = stack.enter_context(given)
        yield Istiod(folder, xds, admin, ports)


def some(rng, pool, most=2):
    return rng.sample(pool, rng.randint(1, min(most, len(pool))))


PRINCIPALS = (
    *("*", "cluster.local/ns/kubeflow/sa/minio", "td1/ns/alice/sa/default-editor"),
    *("td2/ns/kubeflow/sa/minio", "td3/ns/kubeflow/sa/minio", "*/ns/kubeflow/sa/minio"),
    *("*d2/ns/kubeflow/sa/minio", "*/sa/default-editor", "td1/ns/kubeflow/*"),
    "cluster.local/ns/*",
)
SOURCE = {
    "principals": PRINCIPALS,
    "namespaces": ("kubeflow", "kube*", "*low", "a*ce", "*", "alic"),
    "trustDomains": ("td1", "td2", "td*", "*2", "*", "td3"),
    "ipBlocks": ("127.0.0.0/16", "127.0.0.10", "127.1.0.0/16", "10.0.0.0/8", "::1"),
    "remoteIpBlocks": ("127.0.0.0/8", "10.0.0.0/8"),
    "requestPrincipals": ("*", "iss/sub"),
}
ACCOUNTS = {
    "serviceAccounts": ("minio", "kubeflow/minio", "alice/default-editor", "alice/minio", "min"),
    "ipBlocks": SOURCE["ipBlocks"],
}
OPERATION = {
    "methods": ("GET", "POST", "P*", "*T", "*", "get"),
    "paths": ("/", "/api/*", "*/end", "/api/v1", "*", "/api/{*}"),
    "hosts": ("web.*", "*.ORG", "db", "web.kubeflow:8080", "*"),
}
WHEN = {
    "source.namespace": ("kubeflow", "al*"),
    "source.principal": PRINCIPALS,
    "source.ip": SOURCE["ipBlocks"],
    "request.headers[X-Team]": ("red", "r*", "*d", "*", "blue"),
    "request.auth.claims[iss]": ("x",),
    "destination.ip": ("127.0.0.0/8",),
    "connection.sni": ("web",),
}


def conditions(rng, pools):
    """One or two fields of a source or an operation, some of them excluding."""
    found = {}
    for field in some(rng, sorted(pools)):
        name = field if rng.random() < 0.7 else authorization_policy.name_excluding_field(field)
        found[name] = some(rng, pools[field])
    return found


def rule(rng, ports):
    operation = {**OPERATION, "ports": tuple(map(str, (*ports, 1)))}
    found = {}
    if rng.random() < 0.7:
        # istiod takes accounts and other names in different sources alone.
        pools = ACCOUNTS if rng.random() < 0.2 else SOURCE
        found["from"] = [{"source": conditions(rng, pools)} for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.5:
        found["to"] = [{"operation": conditions(rng, operation)} for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.3:
        key = rng.choice(sorted(WHEN))
        found["when"] = [{"key": key, rng.choice(("values", "notValues")): some(rng, WHEN[key])}]
    return found


SELECTORS = ({}, LABELS, {"app": "web"}, {"app": "db"})


def selecting(rng):
    chosen = rng.choice((None, *SELECTORS))
    return {} if chosen is None else {"selector": {"matchLabels": chosen}}


def access(rng, number, ports):
    """An AuthorizationPolicy."""
    action = rng.choice(("ALLOW", "ALLOW", "DENY", "DENY", "AUDIT"))
    rules = [rule(rng, ports) for _ in range(rng.randint(0 if action == "ALLOW" else 1, 2))]
    spec = {"action": action, **({"rules": rules} if rules else {}), **selecting(rng)}
    if rng.random() < 0.1:
        spec = {**spec, "targetRefs": [{"kind": "Service", "group": "", "name": "web"}]}
        spec.pop("selector", None)
    namespace = rng.choice((MODEL, MODEL, MODEL, ROOT, "elsewhere"))
    found = written("AuthorizationPolicy", f"p{number}", namespace, **spec)
    if action != "AUDIT" and rng.random() < 0.1:
        tried = rng.choice(("true", "1", "T", "false", "F"))
        found["metadata"]["annotations"] = {"istio.io/dry-run": tried}
    return found


def of_peers(rng, number, ports):
    """A PeerAuthentication."""
    spec = {
        **selecting(rng),
        **({"mtls": {"mode": rng.choice(MODES)}} if rng.random() < 0.8 else {}),
    }
    if spec.get("selector", {}).get("matchLabels") and rng.random() < 0.6:
        chosen = some(rng, (*ports, 1))
        spec["portLevelMtls"] = {str(port): {"mode": rng.choice(MODES)} for port in chosen}
    namespace = rng.choice((MODEL, MODEL, ROOT, "elsewhere"))
    created = f"2026-01-0{rng.randint(1, 3)}T00:00:00Z"
    return written(
        "PeerAuthentication", f"p{rng.randint(0, 9)}-{number}", namespace, created, **spec
    )


MODES = ("STRICT", "PERMISSIVE", "DISABLE", "UNSET")


def mode_of(listener):
    """The mode that a listener's filter chains make."""
    shown = {"transport_socket" in each for each in listener["filter_chains"]}
    if len(shown) > 1:
        return "PERMISSIVE"
    return "STRICT" if True in shown else "DISABLE"


def at(address, listener):
    """Move a listener, whose port policies speak of, to an address of its own."""
    listener["name"] = f"{address} {listener['name']}"
    listener["address"]["socket_address"]["address"] = address
    return listener


def asked(ports):
    """Each request, what the charm knows of it, and how it is sent."""
    for method, path, host in REQUESTS:
        headers = (("Host", host), ("X-Team", "red"))
        sent = {"port": ports[0], "method": method, "path": path, "headers": headers}
        yield InboundRequest(port=ports[0]), sent
    yield InboundRequest(port=ports[1], seen_by="tcp"), {"port": ports[1], "protocol": "istio"}


DENIED = {"http": 403, "tcp": 0}
"""How Envoy answers a request that it denies, and a connection."""
QUICK = 30
LONG_ONE = pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(1200)])


@pytest.mark.parametrize("count", [QUICK, LONG_ONE])
def test_caller_is_answered_as_the_charm_says(istiod, tmp_path, count):
    rng = random.Random(SEED)
    authority = sidecar_world.Authority(tmp_path)
    own = authority.certificate(MODEL, "web", OWN)
    cases, served = {}, []
    for number in range(count):
        policies = [access(rng, each, istiod.ports) for each in range(rng.randint(1, 3))]
        address = f"127.9.{number // 200}.{number % 200 + 1}"
        cases[address] = policies
        for one in istiod.listeners(*policies).values():
            with_files = sidecar_world.with_files(one, *own, authority.root)
            served.append(at(address, with_files))
    callers = {
        name: (
            authorization_policy.make_principal(*who) if who else "",
            {"source": source, "pair": authority.certificate(*who) if who else None},
        )
        for name, (who, source) in CALLERS.items()
    }
    wrong, said = [], []
    with (
        echo.serving(echo.Application) as application,
        sidecar_world.serving(tmp_path, served, application.server_port),
    ):
        for address, policies in cases.items():
            read = authorization_policy.read_all(policies, DOMAINS)
            held = [each for each in read if each.selects(LABELS, MODEL, ROOT)]
            for name, (caller, connection) in callers.items():
                for request, sent in asked(istiod.ports):
                    answer = authorization_policy.decide(held, caller, request).answer
                    said.append(answer)
                    status = sidecar_world.ask(address=address, **connection, **sent)
                    got = {200: Truth.YES, DENIED[request.seen_by]: Truth.NO}[status]
                    if answer not in (Truth.MAYBE, got):
                        wrong.append((policies, name, request, answer.name, status))
    assert wrong == []
    # Most answers are known.
    assert 0 < said.count(Truth.MAYBE) < min(said.count(Truth.NO), said.count(Truth.YES))


@pytest.mark.parametrize("count", [QUICK, LONG_ONE])
def test_port_asks_for_mutual_tls_as_the_charm_says(istiod, count):
    rng = random.Random(SEED)
    wrong, said = [], set()
    for _ in range(count):
        policies = [of_peers(rng, each, istiod.ports) for each in range(rng.randint(1, 4))]
        read = peer_authentication.read_all(policies)
        for port, listener in istiod.listeners(*policies).items():
            mode = peer_authentication.decide_mode(
                read, LABELS, namespace=MODEL, root_namespace=ROOT, port=port
            ).mode
            said.add(mode)
            if mode != mode_of(listener):
                wrong.append((policies, port, mode, mode_of(listener)))
    assert wrong == []
    assert said == {"STRICT", "PERMISSIVE", "DISABLE"}


DECLARED = {
    8081: {"name": "http"},
    8082: {"name": "http2-api"},
    8083: {"name": "grpc-api"},
    8084: {"name": "grpc-web"},
    8085: {"name": "main", "appProtocol": "http"},
    8086: {"name": "h2c", "appProtocol": "kubernetes.io/h2c"},
    8087: {"name": "ws", "appProtocol": "kubernetes.io/ws"},
    8088: {"name": "httpd"},
    8089: {"name": "api"},
    8090: {"name": "https"},
    8091: {"name": "tcp-grpc"},
    8092: {"name": "http-but-tcp", "appProtocol": "tcp"},
}
"""Ports of a Service, by the ways in which their protocol is declared or not."""


def test_unknown_host_is_sent_past_the_mesh_at_the_ports_that_are_predicted(
    istiod, admin, namespace, tmp_path
):
    ports = [{**declared, "port": number} for number, declared in DECLARED.items()]
    spec = {"selector": LABELS, "ports": ports}
    written = made("v1", "Service", "mlmd", namespace, spec)
    service = admin.create(written)
    read = msgspec.convert(service, model.Service)
    predicted = {port.port for port in read.ports if port.is_http}
    about = ("envoy-0", namespace, {})
    with sidecar_world.configured(tmp_path, istiod.xds, *about, interception="REDIRECT") as proxy:
        found = waiting.eventually(lambda: past_the_mesh(proxy) == predicted)
        assert found, (past_the_mesh(proxy), predicted)


def past_the_mesh(admin):
    """The ports at which an unknown Host is sent to the called address as it is."""
    dump = istiod_world.administration(admin, "config_dump?resource=dynamic_route_configs")
    return {
        int(each["route_config"]["name"])
        for each in json.loads(dump).get("configs", ())
        for host in each["route_config"].get("virtual_hosts", ())
        if "*" in host["domains"] and "PassthroughCluster" in json.dumps(host)
        if each["route_config"]["name"].isdecimal()
        if int(each["route_config"]["name"]) in DECLARED
    }

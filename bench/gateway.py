"""What a request through the gateway costs, by what comes before the routes of a model.

A real istiod configures one Envoy for each way, all of them with the same routes: no guard, an
ext_authz filter before every route, and the charm's own routes, which match only after
authentication. Another Envoy answers at once, as the application and as the authorization service.
So many connections send requests without a pause. The ways take turns, and each is measured at the
first and at the last route; the ratio is to no guard in the same run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import selectors
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from bench import world
from testbed import command_line, loopback
from tests import gateway_client, waiting
from tests.api import Api
from tests.functional import ingress_world, istiod_world, loopback_istiod
from tests.kubernetes_objects import namespace_of

MODEL = ingress_world.MODEL
NO_GUARD, EXT_AUTHZ, CHARM = "no guard", "ext_authz", "charm"
APPLICATION, SERVICE = "kfp", "oidc"
HEADER = "kubeflow-userid"
END = b"\r\n\r\nok"
EXTENSIONS = "type.googleapis.com/envoy.extensions.filters"


def authorization() -> dict[str, Any]:
    """Return the specification of an EnvoyFilter that authorizes every request by ext_authz."""
    host = f"{SERVICE}.{MODEL}.svc.{ingress_world.DOMAIN}"
    server = {"uri": f"http://{host}", "cluster": f"outbound|80||{host}", "timeout": "10s"}
    matched = [{"exact": HEADER}]
    config = {
        "@type": f"{EXTENSIONS}.http.ext_authz.v3.ExtAuthz",
        "transport_api_version": "V3",
        "http_service": {
            "server_uri": server,
            "authorization_response": {"allowed_upstream_headers": {"patterns": matched}},
        },
        "allowed_headers": {"patterns": [{"exact": "cookie"}]},
    }
    manager = "envoy.filters.network.http_connection_manager"
    patch = {
        "applyTo": "HTTP_FILTER",
        "match": {
            "context": "GATEWAY",
            "listener": {"filterChain": {"filter": {"name": manager}}},
        },
        "patch": {
            "operation": "INSERT_FIRST",
            "value": {"name": "authorize", "typed_config": config},
        },
    }
    return {"configPatches": [patch]}


@dataclasses.dataclass
class Way:
    """A gateway workload with one way to serve the routes."""

    name: str
    label: str
    """Of the workload, and what its objects are called; the charm has labels of its own."""
    port: int
    admin: int
    rates: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    """Requests per second of each round, by path."""
    latencies: dict[str, list[float]] = dataclasses.field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        """Return what selects the workload."""
        return ingress_world.OWN_LABELS if self.name == CHARM else {"istio": self.label}

    @contextlib.contextmanager
    def running(self, api: Api, folder: pathlib.Path, xds: int, client: Any) -> Iterator[None]:
        """Run the workload, whose Service the charm makes where it serves."""
        space = MODEL if self.name == CHARM else istiod_world.GATEWAY_NAMESPACE
        if self.name != CHARM:
            _, service = ingress_world.gateway_workload([("http2", 80, self.port)])
            service["metadata"]["name"] = self.label
            service["spec"]["selector"] = self.labels
            api.create(service)
        folder.mkdir()
        token = istiod_world.gateway_token(client, space)
        about = {"namespace": space, "labels": self.labels}
        with istiod_world.gateway(folder, xds, self.admin, token, **about):
            yield

    def measure(self, path: str, connections: int, seconds: float) -> None:
        """Send requests for so long."""
        began = time.monotonic()
        found = load(self.port, path, connections, seconds)
        self.rates.setdefault(path, []).append(len(found) / (time.monotonic() - began))
        self.latencies.setdefault(path, []).extend(found)

    def is_served(self, path: str) -> bool:
        """Tell whether the application answers a request."""
        with contextlib.closing(gateway_client.Client(port=self.port)) as client:
            return client.get(path).text == "ok"


def load(port: int, path: str, connections: int, seconds: float) -> list[float]:
    """Send a request again on each connection as soon as it is answered.

    Returns:
        The seconds that each took.
    """
    request = f"GET {path} HTTP/1.1\r\nHost: {gateway_client.HOST}\r\nCookie: a=b\r\n\r\n".encode()
    taken: list[float] = []
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as ready:
        for _ in range(connections):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.sendall(request)
            ready.register(client, selectors.EVENT_READ, [time.perf_counter(), b""])
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for key, _ in ready.select(1):
                client: Any = key.fileobj
                key.data[1] += client.recv(65536)
                if not key.data[1].endswith(END):
                    continue
                assert key.data[1].startswith(b"HTTP/1.1 200 "), key.data[1]
                now = time.perf_counter()
                taken.append(now - key.data[0])
                client.sendall(request)
                key.data[:] = time.perf_counter(), b""
    return taken


@contextlib.contextmanager
def answering(api: Api, folder: pathlib.Path) -> Iterator[None]:
    """Have an Envoy answer every request to the application and to the authorization service."""
    ports = loopback.free_ports(2)
    for space in ("istio-system", istiod_world.GATEWAY_NAMESPACE, MODEL):
        api.create(namespace_of(space))
    for name, port in zip((APPLICATION, SERVICE), ports, strict=True):
        for obj in ingress_world.service(MODEL, name, port):
            api.create(obj)
    manager = {
        "@type": f"{EXTENSIONS}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "answering",
        "route_config": {
            "response_headers_to_add": [{"header": {"key": HEADER, "value": "user@example.com"}}],
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [
                        {
                            "match": {"prefix": "/"},
                            "direct_response": {"status": 200, "body": {"inline_string": "ok"}},
                        }
                    ],
                }
            ],
        },
        "http_filters": [
            {
                "name": "router",
                "typed_config": {"@type": f"{EXTENSIONS}.http.router.v3.Router"},
            }
        ],
    }
    listeners = [
        {
            "address": {"socket_address": {"address": "0.0.0.0", "port_value": port}},
            "filter_chains": [{"filters": [{"name": "manager", "typed_config": manager}]}],
        }
        for port in ports
    ]
    folder.mkdir()
    path, log = folder / "answering.json", folder / "answering.log"
    path.write_text(json.dumps({"static_resources": {"listeners": listeners}}))
    argv = [istiod_world.ENVOY, "-c", path, "--concurrency", "1", "--use-dynamic-base-id"]
    with loopback_istiod.process(argv, log) as started:
        istiod_world.wait_for_port(ports[-1], started, log)
        yield


@dataclasses.dataclass(frozen=True)
class Row:
    """What requests took in one way, the median in milliseconds."""

    routes: int
    way: str
    path: str
    rate: float
    """Requests per second."""
    slower: float
    """How many times slower than without a guard in the same run."""
    median: float


class Bench:
    """Routes of a model, served in each way."""

    def __init__(self, client: Any, api: Api, ways: list[Way], count: int) -> None:
        self._client = client
        self._api = api
        self._ways = ways
        self.paths = [f"/app-{number:03}" for number in range(1, count + 1)]

    @contextlib.contextmanager
    def served(self) -> Iterator[None]:
        """Have every way serve the routes."""
        with contextlib.ExitStack() as stack:
            for way in self._ways:
                if way.name == CHARM:
                    place = self._charm(way)
                    stack.enter_context(place.there(*ingress_world.installation()))
                    ports = (way.port, loopback.free_port())
                    stack.enter_context(ingress_world.own_ports(place, *ports))
                    place.reconcile()
                    stack.callback(place.remove)
                    continue
                for obj in self._plain(way):
                    self._api.create(obj)
                    stack.callback(self._api.delete, obj)
            for way in self._ways:
                for path in (self.paths[0], self.paths[-1]):
                    served = waiting.eventually(lambda w=way, p=path: w.is_served(p), 120)
                    assert served, f"{way.name} does not serve {path}"
            yield

    def _charm(self, way: Way) -> ingress_world.Place:
        ports = (way.port, 0, way.admin)
        place = ingress_world.Place(self._client, self._api, ports, [], [])
        place.options = {"gateway_service": "", "hosts": ""}
        place.auths = [dataclasses.replace(ingress_world.COMPLETE, id=9000)]
        place.requests = [
            ingress_world.request(number, APPLICATION, path, None)
            for number, path in enumerate(self.paths, 1)
        ]
        return place

    def _plain(self, way: Way) -> Iterator[dict[str, Any]]:
        name = way.label
        gateway = ingress_world.gateway(MODEL, name, ingress_world.server(80, ["*"]))
        gateway["spec"]["selector"] = way.labels
        host = f"{APPLICATION}.{MODEL}.svc.{ingress_world.DOMAIN}"
        routes = [
            {"match": [{"uri": {"prefix": path}}], "route": ingress_world.lead(host)}
            for path in self.paths
        ]
        yield gateway
        yield ingress_world.virtual_service(MODEL, name, [f"{MODEL}/{name}"], ["*"], *routes)
        if way.name == EXT_AUTHZ:
            yield {
                "apiVersion": "networking.istio.io/v1alpha3",
                "kind": "EnvoyFilter",
                "metadata": {"name": name, "namespace": istiod_world.GATEWAY_NAMESPACE},
                "spec": {**authorization(), "workloadSelector": {"labels": way.labels}},
            }

    def compare(self, connections: int, seconds: float, rounds: int) -> Iterator[Row]:
        """Have the ways take turns at the first and at the last route."""
        paths = list(dict.fromkeys((self.paths[0], self.paths[-1])))
        ways = self._ways
        for way in ways:
            way.rates, way.latencies = {}, {}
            load(way.port, paths[0], connections, seconds / 4)
        for turn in range(rounds):
            for path in paths:
                for way in ways[turn % len(ways) :] + ways[: turn % len(ways)]:
                    way.measure(path, connections, seconds)
        for path in paths:
            most = statistics.median(ways[0].rates[path])
            for way in ways:
                rate, latencies = statistics.median(way.rates[path]), way.latencies[path]
                middle = 1000 * statistics.median(latencies)
                yield Row(len(self.paths), way.name, path, rate, most / rate, middle)


@contextlib.contextmanager
def gateways() -> Iterator[tuple[Any, Api, list[Way]]]:
    """Run a gateway for each way; yield a client, an API and the ways."""
    with contextlib.ExitStack() as stack:
        kubeconfig, client = stack.enter_context(world.served("bench-gateway"))
        api = stack.enter_context(Api(client.config))
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        stack.enter_context(answering(api, folder / "answering"))
        xds = stack.enter_context(istiod_world.istiod(folder, kubeconfig))
        ways: list[Way] = []
        for number, name in enumerate((NO_GUARD, EXT_AUTHZ, CHARM)):
            port, admin = loopback.free_ports(2)
            way = Way(name, f"bench-{number}", port, admin)
            stack.enter_context(way.running(api, folder / str(number), xds, client))
            ways.append(way)
        yield client, api, ways


def main() -> None:
    """Print what requests cost in each way, for some numbers of routes."""
    example = "python -m bench.gateway --routes 1,20,200 --seconds 5 --rounds 3"
    parser = command_line.parser("bench.gateway", __doc__, example)
    parser.add_argument("--routes", default="1,20,200", help="with commas between them")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="in which all ways take turns")
    given = parser.parse_args()
    print("routes  before them  path      requests/s  times slower  p50 ms")
    with gateways() as about:
        for count in map(int, given.routes.split(",")):
            bench = Bench(*about, count)
            with bench.served():
                for row in bench.compare(given.connections, given.seconds, given.rounds):
                    print(
                        f"{row.routes:6}  {row.way:11}  {row.path:8}  {row.rate:10.0f}"
                        f"  {row.slower:12.2f}  {row.median:6.2f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()

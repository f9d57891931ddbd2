"""When the gateway is looked at, and what comes of a look that is not possible."""

import asyncio
import dataclasses
import json
from typing import Any

import pytest

from integrator_contract.seen import EnvoyState, Expectation, ReadFailure, Server
from tests.unit.api_server import Refused
from tests.unit.cases import cases, row
from tests.unit.workload import service_world
from tests.unit.workload.fake_apiserver import FakeApiserver, until
from tests.unit.workload.fake_proxy import Proxy
from tests.unit.workload.test_rules_seen import asks, chain, listener, routes

EXPECTED = Expectation(
    namespace="ingress",
    selector={"istio": "gw", "app": "gateway"},
    gateway="kf/kubeflow-gateway",
    servers=(Server(port=80, protocol="HTTP"),),
    filters=("guard",),
    entry="ask",
)
HTTP = Server(port=80, protocol="HTTP", hosts=("kf.example.com",))
ROUTED = dataclasses.replace(EXPECTED, servers=(HTTP,), routes=1, istiod="istio-system")
MANAGER = {"rds": {"route_config_name": "http.80"}, "http_filters": [{"name": "guard"}]}
LISTENER = {"filter_chains": [{"filters": [{"typed_config": MANAGER}]}]}
HOST = {"name": "blackhole:80", "domains": ["*"]}
DUMPS: dict[str, list[Any]] = {
    "dynamic_listeners": [{"active_state": {"listener": LISTENER}}],
    "dynamic_route_configs": [{"route_config": {"name": "http.80", "virtual_hosts": [HOST]}}],
}
DEEP = b'{"configs":[{"a":' + b"[" * 4983
OK, NO_HTTP = b"HTTP/1.1 200 OK\r\n", "the port does not speak HTTP"


class Envoy(Proxy):
    """A proxy whose administration answers."""

    def __init__(self, port: int = 15000) -> None:
        super().__init__()
        self.port = str(port)
        self.raw: bytes | None = None
        """An answer that replaces the usual ones."""
        self.routes: bytes | None = None
        """An answer about routes; an empty one never ends."""

    async def port_forward(self, request: Any, socket: Any, quits: Any) -> None:
        assert request.query["ports"] == self.port
        for channel in (b"\0", b"\1"):
            await socket.send_bytes(channel + int(self.port).to_bytes(2, "little"))
        if self.mode == "hang":
            await self.release.wait()
        async for message in socket:
            wanted = message.data[1:].split(b" ")[1].decode()
            self.requests.append(wanted)
            resource = wanted.partition("resource=")[2].partition("&")[0]
            answer = self.raw or answer_to(resource)
            if self.routes is not None and resource == "dynamic_route_configs":
                answer = self.routes
            for at in range(0, len(answer), 50):
                await socket.send_bytes(b"\0" + answer[at : at + 50])


def answer_to(resource: str) -> bytes:
    body = json.dumps({"configs": DUMPS[resource]} if resource in DUMPS else {}).encode()
    half = len(body) // 2
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(x), x) for x in (body[:half], body[half:]))
    return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


@pytest.fixture
async def envoy(cluster: FakeApiserver) -> Envoy:
    add(cluster, "gw-0")
    return cluster.proxies["gw-0"]  # pyright: ignore[reportReturnType]


def add(cluster: FakeApiserver, name: str, ready: str = "True", **metadata: Any) -> None:
    conditions = [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": ready}]
    labels = {"istio": "gw", "app": "gateway"}
    meta = {"name": name, "namespace": "ingress", "labels": labels, **metadata}
    cluster.put("pods", {"metadata": meta, "status": {"conditions": conditions}})
    cluster.proxies[name] = Envoy()


async def look(cluster: FakeApiserver) -> dict[str, Any]:
    """Return what the charm is told of the gateway, once it gets a notice."""
    async with service_world.running(cluster, expected=EXPECTED) as service:
        await until(service.told)
        return await service.get("/seen")


async def test_looks_come_each_second_for_a_while_and_each_half_minute_later(
    cluster: FakeApiserver, envoy: Envoy
):
    async with service_world.running(cluster, expected=EXPECTED):
        await asyncio.sleep(29)
        early = len(envoy.requests) // 4
        assert 20 <= early <= 30
        resources = "listeners", "route_configs", "warming_secrets&mask=name"
        wanted = {f"dynamic_{each}" for each in (*resources, "active_clusters&mask=cluster.name")}
        assert set(envoy.requests) == {f"/config_dump?resource={each}" for each in wanted}
        await asyncio.sleep(300)
        assert 8 <= len(envoy.requests) // 4 - early <= 13


async def test_charm_that_asks_has_the_gateway_looked_at_soon(
    cluster: FakeApiserver, envoy: Envoy
):
    async with service_world.running(cluster, expected=EXPECTED) as service:
        await asyncio.sleep(45)
        before = len(envoy.requests)
        await service.get("/seen")
        await asyncio.sleep(2)
        assert len(envoy.requests) - before == 4
        # What was seen says nothing about a gateway that is not expected any more.
        service.change(expected=None)
        await asyncio.sleep(2)
        before = len(envoy.requests)
        answer = await service.get("/seen")
        assert (answer["of"], answer["is_open"]) == ("", False)
        await asyncio.sleep(60)
        assert len(envoy.requests) == before


@cases(
    ("clusters", "lateness"),
    complete=((), [False]),
    lacking=(("outbound|80||a.b.svc.c",), [False, True]),
)
async def test_charm_is_told_once_of_an_answer_and_again_when_something_is_late(
    cluster: FakeApiserver, envoy: Envoy, clusters: tuple[str, ...], lateness: list[bool]
):
    expected = dataclasses.replace(EXPECTED, clusters=clusters)
    told: list[bool] = []
    async with service_world.running(cluster, expected=expected) as service:
        for seconds in (14, 4):
            await asyncio.sleep(seconds)
            answer = await service.get("/seen")
            assert len(answer["missing"]) == len(clusters)
            told += [answer["is_late"]] * service.told()
            service.noticed.clear()
    assert told == lateness


async def test_of_many_pods_some_are_looked_at(cluster: FakeApiserver):
    for number in range(8):
        add(cluster, f"gw-{number}")
    add(cluster, "going", deletionTimestamp="2026-01-01T00:00:00Z")
    add(cluster, "coming", ready="False")
    add(cluster, "of-another-application", labels={"istio": "gw"})
    add(cluster, "of-another-mesh", labels={"app": "gateway"})
    add(cluster, "in-another-namespace", namespace="shop")
    answer = await look(cluster)
    assert (answer["unseen"], answer["pods"], answer["ready"]) == (None, 5, 8)
    assert answer["guarded"] == [80]


async def test_istiods_words_about_rejected_routes_are_told(cluster: FakeApiserver, envoy: Envoy):
    """One of its pods serves another gateway's Envoy of that name."""
    expected = dataclasses.replace(ROUTED, clusters=("outbound|80||a.b.svc.c",))
    add(cluster, "gw-1")
    kind = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
    for number, (proxy, words) in enumerate((("gw-0.shop", "theirs"), ("gw-1.ingress", "bad"))):
        add(cluster, f"istiod-{number}", namespace="istio-system", labels={"app": "istiod"})
        told = [{"proxy": proxy, "resources": {kind: {"lastError": words}}}]
        body = json.dumps(told).encode()
        istiod = cluster.proxies[f"istiod-{number}"] = Envoy(15014)
        istiod.raw = OK + b"Content-Length: %d\r\n\r\n" % len(body) + body
    async with service_world.running(cluster, expected=expected) as service:
        await until(service.told)
        assert (await service.get("/seen"))["words"] == "bad"


@pytest.mark.parametrize("part", ["/istio-system/pods", "/istiod-0/portforward"])
async def test_istiod_that_cannot_be_asked_hides_no_answer(
    cluster: FakeApiserver, envoy: Envoy, part: str
):
    about = {"namespace": "istio-system", "labels": {"app": "istiod"}}
    add(cluster, "istiod-0", **about)
    cluster.denied = lambda _, path: path.endswith(part)
    async with service_world.running(cluster, expected=ROUTED) as service:
        await until(service.told)
        answer = await service.get("/seen")
    assert [each["cause"] for each in answer["missing"]] == ["routes missing"]
    assert (answer["unseen"], answer["words"]) == (None, "")


RIGHT = "get and create pods/portforward in ingress"
DENIED = 'admission webhook "deny.k-rail.io" denied the request: no port-forwards here'
POLICY = (
    "pods \"gw-0\" is forbidden: ValidatingAdmissionPolicy 'no-forwards' with binding 'all' "
    "denied request: ask the platform team"
)
AUTHOR = "ValidatingAdmissionPolicy no-forwards"


@cases(
    ("part", "code", "message", "detail", "author"),
    {"part": "/portforward", "message": "", "author": 'webhook "deny.k-rail.io"'},
    port_forward=row(code=403, detail=RIGHT, author=None),
    unauthorized=row(code=401, detail=RIGHT, author=None),
    pods=row(part="/ingress/pods", code=403, detail="list pods in ingress", author=None),
    webhook=row(code=400, message=DENIED, detail=f"400 : {DENIED}"),
    webhook_403=row(code=403, message=DENIED, detail=f"403 Forbidden: {DENIED}"),
    policy=("/portforward", 422, POLICY, f"422 Invalid: {POLICY}", AUTHOR),
)
async def test_missing_right_or_policy_that_rejects_port_forwards_is_named(
    cluster: FakeApiserver,
    envoy: Envoy,
    *,
    part: str,
    code: int,
    message: str,
    detail: str,
    author: str | None,
):
    def refuse(method: str, path: str) -> None:
        if path.endswith(part):
            raise Refused(message, code)

    cluster.before_answer = refuse
    answer = await look(cluster)
    unseen = ReadFailure.UNREACHABLE if author else ReadFailure.FORBIDDEN
    assert (answer["unseen"], answer["detail"]) == (unseen, detail[:200])
    refusal = answer["refusal"] or {"author": None, "words": ""}
    assert refusal["author"] == author
    assert message.endswith(refusal["words"])


async def test_routes_that_are_too_large_or_too_late_blind_it_to_no_filter(
    cluster: FakeApiserver, envoy: Envoy
):
    answers = {
        OK + b"\r\n2000001\r\n": ("routes unread", ""),
        b"": ("routes unanswered", "TimeoutError"),
        OK + b"content-length: 5000\r\n\r\n" + DEEP: ("routes unanswered", "recursion"),
    }
    for answer, (cause, words) in answers.items():
        envoy.routes = answer
        found = await look(cluster)
        assert (found["unseen"], found["guarded"], found["routes"]) == (None, [80], 0)
        (missing,) = found["missing"]
        assert (missing["cause"], words in missing["words"]) == (cause, True)


async def test_one_pod_of_each_workload_is_looked_at(cluster: FakeApiserver):
    for number in reversed(range(8)):
        owner = "stable" if number < 7 else "canary"
        add(cluster, f"gw-{number}", ownerReferences=[{"uid": owner, "controller": True}])
    await look(cluster)
    assert {name for name in cluster.proxies if cluster.proxies[name].requests} == {
        *("gw-0", "gw-1", "gw-2", "gw-3", "gw-7")
    }


async def test_charm_is_told_of_each_part_of_an_answer_that_changes(
    cluster: FakeApiserver, monkeypatch: pytest.MonkeyPatch
):
    ports = (443, 8443, 9443, 10443)
    servers = (*ROUTED.servers, *(Server(port=each, protocol="HTTPS") for each in ports))
    parts = {"entry": "kf.us.ask", "marks": ("V", "U"), "proof": ("N", "S"), "routes": 2}
    clusters = ("outbound|80||a.b.svc.c",)
    expected = dataclasses.replace(ROUTED, servers=servers, **parts, clusters=clusters)

    def serve(filters: dict[int, str], *entries: dict[str, Any], marks: str = "XY") -> None:
        named = {f"https.{port}.https.kubeflow-gateway.kf": name for port, name in filters.items()}
        chains = [chain(route, name) for route, name in {"http.80": "guard", **named}.items()]
        found = [{"route_config": {"name": name}} for name in named]
        found.append(routes("http.80", "kf.example.com:80", marks=marks, entries=entries))
        monkeypatch.setitem(DUMPS, "dynamic_listeners", [listener(*chains)])
        monkeypatch.setitem(DUMPS, "dynamic_route_configs", found)

    def know(name: str) -> None:
        monkeypatch.setitem(DUMPS, "dynamic_active_clusters", [{"cluster": {"name": name}}])

    def forbid(part: str) -> None:
        cluster.denied = lambda _, path: path.endswith(part)

    serve({})
    some, more = {443: "guard", 8443: "other"}, {443: "guard", 8443: "other", 9443: "other"}
    async with service_world.running(cluster, expected=expected) as service:
        await until(service.told)
        found = await service.get("/seen")
        assert (found["of"], found["unseen"]) == (expected.digest(), ReadFailure.NO_PODS)
        for change in (
            lambda: add(cluster, "gw-0"),
            lambda: serve({443: "guard"}),
            lambda: serve(some),
            lambda: serve(more),
            lambda: know("outbound|80||a.b.svc.c"),
            lambda: serve(more, asks("kf.us.ask")),
            lambda: serve(more, asks("kf.us.ask"), marks="VX"),
            lambda: forbid("/portforward"),
            lambda: forbid("/ingress/pods"),
        ):
            await asyncio.sleep(90)
            service.noticed.clear()
            change()
            await until(service.told, seconds=60)


async def test_charm_is_told_of_what_decides_and_not_of_names_that_tenants_choose(
    cluster: FakeApiserver, envoy: Envoy, monkeypatch: pytest.MonkeyPatch
):
    expected = dataclasses.replace(EXPECTED, hosts=("kf.example.com",))
    async with service_world.running(cluster, expected=expected) as service:
        await until(service.told)
        await asyncio.sleep(60)
        service.noticed.clear()
        for number in range(20):
            host = {"name": f"tenant-{number}:81", "domains": ["kf.example.com"]}
            config = {"name": "http.80", "virtual_hosts": [HOST, host]}
            monkeypatch.setitem(DUMPS, "dynamic_route_configs", [{"route_config": config}])
            await service.get("/seen")
            await asyncio.sleep(3)
        assert service.told() == 1
        assert f"tenant-{number}" in json.dumps(await service.get("/seen"))


@cases(
    ("raw", "unseen", "detail"),
    {"unseen": ReadFailure.TOO_LARGE, "detail": "more than 33554432 bytes"},
    no_envoy=(b"HTTP/1.1 404 Not Found\r\n\r\n", ReadFailure.UNREACHABLE, "the port answers 404"),
    no_http=(b"ICY 200 OK\r\n", ReadFailure.UNREACHABLE, f"{NO_HTTP}: b'ICY 200 OK'"),
    no_line=(b"x" * 20_000, ReadFailure.UNREACHABLE, f"{NO_HTTP}: b'{'x' * 60}'"),
    no_dump=row(
        raw=OK + b"content-length: 4\r\n\r\n[42]",
        unseen=ReadFailure.UNREACHABLE,
        detail="not understood: Expected `object`, got `array`",
    ),
    no_length=(OK + b"\r\nzz\r\n", ReadFailure.UNREACHABLE, f"{NO_HTTP}: b'zz'"),
    as_large_as_may_be=(OK + b"\r\n2000000\r\n", ReadFailure.UNREACHABLE, "TimeoutError: "),
    chunk_too_large=row(raw=OK + b"\r\n2000001\r\n"),
    chunks_too_large=row(raw=OK + b"\r\n1\r\nx\r\n2000000\r\n"),
    too_large=row(raw=OK + b"content-length: 33554433\r\n\r\n"),
    negative=row(raw=OK + b"content-length: -1\r\n\r\n"),
)
async def test_answer_that_is_no_dump_is_not_read(
    cluster: FakeApiserver, envoy: Envoy, raw: bytes, unseen: ReadFailure, detail: str
):
    envoy.raw = raw
    answer = await look(cluster)
    state = EnvoyState(of=EXPECTED.digest(), unseen=unseen, detail=detail, ready=1)
    assert answer == dataclasses.asdict(state) | {"guarded": [], "unguarded": [], "missing": []}


async def test_envoy_that_does_not_answer_is_given_up(cluster: FakeApiserver, envoy: Envoy):
    async with service_world.running(cluster, expected=EXPECTED) as service:
        await until(service.told)
        envoy.mode = "hang"
        expected = dataclasses.replace(EXPECTED, entry="another")
        service.change(expected=expected)
        await asyncio.sleep(2)
        found = await service.get("/seen")
        assert (found["of"], found["unseen"]) == (expected.digest(), ReadFailure.NOT_YET)
        assert found["guarded"] == [], "those of the earlier expectation say nothing"
        await asyncio.sleep(5)
        assert (await service.get("/seen"))["unseen"] == ReadFailure.UNREACHABLE


OUTBOUND = "/outbound?namespace=ingress&pod=gw-0&name=istio-integrator.kf.mesh-2.training"
CHAINS = [{"name": "istio-integrator.kf.mesh-2.training.10.1.0.0/16"}, {"name": "PassthroughC"}]
SIMILAR = [
    {"name": f"{start}istio-integrator.kf.mesh-2.training{end}.10.1.0.0/16"}
    for start, end in (("", "-2"), ("x.", ""))
]


def outbound(*chains: Any, state: str = "active_state") -> list[Any]:
    return [{state: {"listener": {"filter_chains": [*chains]}}}]


@cases(
    ("listeners", "has"),
    followed=(outbound(*CHAINS), True),
    followed_soon=(outbound(*CHAINS, state="warming_state"), True),
    ignored=(outbound(CHAINS[1]), False),
    of_another=(outbound(*SIMILAR), False),
    not_configured=([], None),
)
async def test_chains_of_a_pods_proxy_are_looked_for(
    cluster: FakeApiserver,
    envoy: Envoy,
    monkeypatch: pytest.MonkeyPatch,
    listeners: list[Any],
    has: bool | None,
):
    monkeypatch.setitem(DUMPS, "dynamic_listeners", listeners)
    add(cluster, "gw-1")
    async with service_world.running(cluster) as service:
        async with service.asked.get(OUTBOUND) as answer:
            text = await answer.text()
        if has is None:
            assert (answer.status, text) == (502, "Envoy of Pod gw-0 has no outbound listener")
        else:
            assert json.loads(text)["answer"] is has
        name = "&name_regex=^virtualOutbound$"
        assert envoy.requests == [f"/config_dump?resource=dynamic_listeners{name}"]

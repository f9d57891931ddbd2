"""When the gateway is looked at, and what comes of a look that is not possible."""

import asyncio
import dataclasses
import json
from typing import Any

import pytest

from integrator_contract.seen import Expectation, ReadFailure, Server
from tests.unit.api_server import Refused
from tests.unit.cases import cases
from tests.unit.workload import service_world
from tests.unit.workload.fake_apiserver import FakeApiserver, until
from tests.unit.workload.fake_proxy import Proxy

EXPECTED = Expectation(
    namespace="ingress",
    selector={"istio": "gw", "app": "gateway"},
    gateway="kf/kubeflow-gateway",
    servers=(Server(port=80, protocol="HTTP"),),
    filters=("guard",),
    entry="ask",
)
MANAGER = {"rds": {"route_config_name": "http.80"}, "http_filters": [{"name": "guard"}]}
LISTENER = {
    "filter_chains": [{"filters": [{"typed_config": MANAGER}]}, {"name": "kf.us.peers"}],
}
HOST = {"name": "blackhole:80", "domains": ["*"]}
DUMPS: dict[str, list[Any]] = {
    "dynamic_listeners": [{"active_state": {"listener": LISTENER}}],
    "dynamic_route_configs": [{"route_config": {"name": "http.80", "virtual_hosts": [HOST]}}],
}


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
        answer = await service.get("/seen")
        assert (answer["of"], answer["is_open"]) == ("", False)


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
        for seconds in (10, 90):
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
    answer = await look(cluster)
    assert (answer["unseen"], answer["pods"], answer["ready"]) == (None, 5, 8)
    assert answer["guarded"] == [80]


@cases(
    ("part", "code", "right"),
    port_forward=("/portforward", 403, "get and create pods/portforward in ingress"),
    unauthorized=("/portforward", 401, "get and create pods/portforward in ingress"),
    pods=("/pods", 403, "list pods in ingress"),
)
async def test_missing_right_is_named(
    cluster: FakeApiserver, envoy: Envoy, part: str, code: int, right: str
):
    cluster.failures = [(f"/ingress/pods/gw-0{part}" if code == 401 else part, code, {})] * 9
    answer = await look(cluster)
    assert (answer["unseen"], answer["detail"]) == (ReadFailure.FORBIDDEN, right)


async def test_istiods_words_about_rejected_routes_are_told(cluster: FakeApiserver, envoy: Envoy):
    """One of its pods serves another gateway's Envoy of that name."""
    server = Server(port=80, protocol="HTTP", hosts=("kf.example.com",))
    expected = dataclasses.replace(EXPECTED, servers=(server,), routes=1, istiod="istio-system")
    kind = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
    for number, (proxy, words) in enumerate((("gw-0.shop", "theirs"), ("gw-0.ingress", "bad"))):
        add(cluster, f"istiod-{number}", namespace="istio-system", labels={"app": "istiod"})
        told = [{"proxy": proxy, "resources": {kind: {"lastError": words}}}]
        body = json.dumps(told).encode()
        istiod = cluster.proxies[f"istiod-{number}"] = Envoy(15014)
        istiod.raw = OK + b"content-length: %d\r\n\r\n" % len(body) + body
    async with service_world.running(cluster, expected=expected) as service:
        await until(service.told)
        assert (await service.get("/seen"))["words"] == "bad"


@cases(("name", "found"), chain=("kf.us", True), start_of_a_part=("kf.u", False), no=("us", False))
async def test_outbound_chain_of_a_pod_is_found_by_the_first_parts_of_its_name(
    cluster: FakeApiserver, envoy: Envoy, name: str, found: bool
):
    add(cluster, "gw-1")
    async with service_world.running(cluster) as service:
        path = "/outbound?namespace=ingress&pod=gw-0&name="
        assert await service.get(path + name) is found
        assert envoy.requests == [
            "/config_dump?resource=dynamic_listeners&name_regex=^virtualOutbound$"
        ]
        envoy.raw = OK + b"content-length: 2\r\n\r\n{}"
        async with service.asked.get(path + name) as answer:
            text = "Envoy of Pod gw-0 has no outbound listener"
            assert (answer.status, await answer.text()) == (502, text)


DENIED = 'admission webhook "deny.k-rail.io" denied the request: no port-forwards here'


@pytest.mark.parametrize("part", ["/istio-system/pods", "/istiod-0/portforward"])
async def test_istiod_that_cannot_be_asked_hides_no_answer(
    cluster: FakeApiserver, envoy: Envoy, part: str
):
    server = Server(port=80, protocol="HTTP", hosts=("kf.example.com",))
    expected = dataclasses.replace(EXPECTED, servers=(server,), routes=1, istiod="istio-system")
    about = {"namespace": "istio-system", "labels": {"app": "istiod"}}
    add(cluster, "istiod-0", **about)
    cluster.denied = lambda _, path: path.endswith(part)
    async with service_world.running(cluster, expected=expected) as service:
        await until(service.told)
        answer = await service.get("/seen")
    assert [each["cause"] for each in answer["missing"]] == ["routes missing"]
    assert (answer["unseen"], answer["words"]) == (None, "")


POLICY = (
    "pods \"gw-0\" is forbidden: ValidatingAdmissionPolicy 'no-forwards' with binding 'all' "
    "denied request: ask the platform team"
)


@cases(
    ("code", "message", "author"),
    webhook=(400, DENIED, 'webhook "deny.k-rail.io"'),
    webhook_403=(403, DENIED, 'webhook "deny.k-rail.io"'),
    policy=(422, POLICY, "ValidatingAdmissionPolicy no-forwards"),
)
async def test_policy_that_rejects_port_forwards_is_named(
    cluster: FakeApiserver, envoy: Envoy, code: int, message: str, author: str
):
    def refuse(method: str, path: str) -> None:
        if path.endswith("/portforward"):
            raise Refused(message, code)

    cluster.before_answer = refuse
    answer = await look(cluster)
    assert answer["unseen"] == ReadFailure.UNREACHABLE
    assert answer["refusal"]["author"] == author
    assert message.endswith(answer["refusal"]["words"])


async def test_routes_that_are_too_large_or_too_late_blind_it_to_no_filter(
    cluster: FakeApiserver, envoy: Envoy
):
    answers = {
        OK + b"\r\n2000001\r\n": ("routes unread", ""),
        b"": ("routes unanswered", "TimeoutError"),
        OK + b"content-length: 2\r\n\r\n42": ("routes unanswered", "not understood"),
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


OK = b"HTTP/1.1 200 OK\r\n"


@cases(
    ("raw", "unseen"),
    no_envoy=(b"HTTP/1.1 404 Not Found\r\n\r\n", ReadFailure.UNREACHABLE),
    no_http=(b"SSH-2.0\r\n", ReadFailure.UNREACHABLE),
    no_dump=(OK + b"content-length: 4\r\n\r\n[42]", ReadFailure.UNREACHABLE),
    no_length=(OK + b"\r\nzz\r\n", ReadFailure.UNREACHABLE),
    chunk_too_large=(OK + b"\r\n2000001\r\n", ReadFailure.TOO_LARGE),
    too_large=(OK + b"content-length: 33554433\r\n\r\n", ReadFailure.TOO_LARGE),
    negative=(OK + b"content-length: -1\r\n\r\n", ReadFailure.TOO_LARGE),
)
async def test_answer_that_is_no_dump_is_not_read(
    cluster: FakeApiserver, envoy: Envoy, raw: bytes, unseen: ReadFailure
):
    envoy.raw = raw
    assert (await look(cluster))["unseen"] == unseen


async def test_envoy_that_does_not_answer_is_given_up(cluster: FakeApiserver, envoy: Envoy):
    envoy.mode = "hang"
    began = asyncio.get_running_loop().time()
    async with service_world.running(cluster, expected=EXPECTED) as service:
        assert (await service.get("/seen"))["unseen"] == ReadFailure.NOT_YET
        await until(service.told)
        assert (await service.get("/seen"))["unseen"] == ReadFailure.UNREACHABLE
    assert asyncio.get_running_loop().time() - began < 7


OUTBOUND = "/outbound?namespace=ingress&pod=gw-0&name=istio-integrator.kf.mesh-2.training"
CHAINS = [{"name": "istio-integrator.kf.mesh-2.training.10.1.0.0/16"}, {"name": "PassthroughC"}]
SIMILAR = [{"name": "istio-integrator.kf.mesh-2.training-2.10.1.0.0/16"}]


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
    async with service_world.running(cluster) as service:
        async with service.asked.get(OUTBOUND) as answer:
            text = await answer.text()
        if has is None:
            assert (answer.status, text) == (502, "Envoy of Pod gw-0 has no outbound listener")
        else:
            assert json.loads(text)["answer"] is has
        assert "&name_regex=^virtualOutbound$" in envoy.requests[-1]

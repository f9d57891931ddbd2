"""The listener on 127.0.0.1, as the charm asks it."""

import asyncio
import functools
import json
from typing import Any

import aiohttp
import pytest
import yarl
from sidecar_lifecycle.decide.convergence import memory

from integrator_contract import seen
from integrator_contract.reasons import Reason
from tests.unit.workload.converging import MEMORY, MODEL, converging, injected, without_sidecar
from tests.unit.workload.fake_apiserver import FakeApiserver

served = functools.partial(
    converging, leader=False, proxy_revision="default", proxy_version="1.31.1"
)


async def listed(model: FakeApiserver, **settings: Any) -> dict[str, Any]:
    """Ask for the pods without their sidecar."""
    async with served(model, **settings) as service:
        return await service.get("/uninjected")


async def test_pods_without_their_sidecar_are_listed(model: FakeApiserver):
    found = await listed(model)
    (pod,) = found["pods"]
    assert (pod["namespace"], pod["name"], pod["fixable"]) == (MODEL, "web-0", True)
    assert pod["workload"] == "StatefulSet/web"
    summary = found["summary"]
    assert (summary["eligible"], summary["in_mesh"]) == (1, 0)


async def test_answer_follows_the_settings_that_the_charm_has_just_written(model: FakeApiserver):
    async with served(model, restart_pods="manual") as service:
        for restart_pods, reason in (("manual", Reason.NOT_ASKED), ("auto", Reason.QUEUED)):
            service.change(restart_pods=restart_pods)
            (pod,) = (await service.get("/uninjected"))["pods"]
            assert pod["reason"] == reason


async def test_pods_with_an_old_sidecar_are_listed_where_they_are_asked_for(model: FakeApiserver):
    old = injected(without_sidecar())
    old["metadata"]["labels"]["service.istio.io/canonical-name"] = "web"
    status = {"revision": "default", "containers": ["istio-proxy"]}
    old["metadata"]["annotations"] = {"sidecar.istio.io/status": json.dumps(status)}
    old["spec"]["containers"][-1]["image"] = "istio/proxyv2:1.30.0"
    model.put("pods", old)
    async with served(model) as service:
        stale = await service.get("/uninjected?stale=")
        lacking = await service.get("/uninjected")

    assert [pod["name"] for pod in stale["pods"]] == ["web-0"]
    assert lacking["pods"] == []
    assert lacking["summary"]["stale"] == stale["summary"]["stale"] == 1


async def test_what_the_gateway_has_is_told_while_something_is_expected(model: FakeApiserver):
    expected = seen.Expectation(
        namespace="ingress",
        selector={"a": "b"},
        gateway="kf/gw",
        servers=(),
        filters=(),
        entry="ask",
    )

    def looks() -> int:
        return model.requests.count(("GET", "/api/v1/namespaces/ingress/pods"))

    async with served(model) as service:
        assert (await service.get("/seen"))["of"] == ""
        service.change(expected=expected)
        await asyncio.sleep(5)
        found = await service.get("/seen")
        assert (found["of"], found["unseen"]) == (expected.digest(), "no pods")
        service.change(expected=None)
        await asyncio.sleep(5)
        assert (await service.get("/seen"))["of"] == ""
        before = looks()
        assert before > 0
        await asyncio.sleep(60)
        assert looks() == before


@pytest.mark.parametrize(("how", "forced"), [("", False), ("force=", True)])
async def test_restart_is_left_to_the_leader(model: FakeApiserver, how: str, forced: bool):
    async with served(model) as service:
        planned = await service.post("/restart?dry-run=")
        assert [pod["name"] for pod in planned["pods"]] == ["web-0"]
        assert not model.find("configmaps", MODEL, MEMORY)
        await service.post(f"/restart?{how}")
        stored = memory.decode(model.get("configmaps", MODEL, MEMORY)["data"])
        await asyncio.sleep(60)

    assert stored.request is not None
    assert (stored.request.uids, stored.request.force) == (("uid-1",), forced)
    assert model.evicted == []


@pytest.mark.parametrize("scheme", [None, "Bearer another", "Basic a-token", "Bearer "])
async def test_who_does_not_know_the_token_is_told_nothing(
    model: FakeApiserver, scheme: str | None
):
    async def refused(method: str, path: str, given: str | None) -> bool:
        headers = {} if given is None else {"Authorization": given}
        async with aiohttp.request(method, service.listener + path, headers=headers) as answer:
            told = answer.status, await answer.text()
            return told == (401, "the token is another one")

    async with served(model) as service:
        for method, path in (("GET", "/uninjected"), ("POST", "/restart"), ("GET", "/x")):
            assert await refused(method, path, scheme)
        service.change(token="")
        assert await refused("GET", "/uninjected", "Bearer ")


@pytest.mark.parametrize("token", [b"\xff", "\u0416".encode(), b"a-token\xc3", b"\x00"])
async def test_token_of_any_bytes_is_refused(model: FakeApiserver, token: bytes):
    async with served(model) as service:
        url = yarl.URL(service.listener)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        lines = b"GET /uninjected HTTP/1.1", b"Host: x", b"Authorization: Bearer " + token
        writer.write(b"\r\n".join([*lines, b"Connection: close", b"", b""]))
        status, *_ = (await reader.read()).splitlines()
        writer.close()
    # aiohttp itself refuses control characters.
    assert status.split()[1] == (b"400" if token == b"\x00" else b"401")


async def test_reading_does_not_act(model: FakeApiserver):
    async with served(model) as service, service.asked.get("/restart") as answer:
        assert answer.status == 405


async def test_answer_that_takes_too_long_is_given_up(model: FakeApiserver):
    async with served(model) as service:
        model.before_answer = lambda method, path: asyncio.sleep(14)
        async with service.asked.get("/uninjected") as answer:
            assert answer.status == 504

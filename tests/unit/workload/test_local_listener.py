"""The listener on 127.0.0.1, as the charm asks it."""

import asyncio
import functools
import json
from typing import Any

import aiohttp
import pytest
import yarl
from aiohttp import web
from sidecar_lifecycle.decide.convergence import memory

from integrator_contract.reasons import Reason
from tests.unit.api_server import Refused
from tests.unit.cases import cases
from tests.unit.workload.converging import (
    MEMORY,
    MODEL,
    converging,
    injected,
    without_sidecar,
    workload,
)
from tests.unit.workload.fake_apiserver import FakeApiserver
from tests.unit.workload.service_world import now

served = functools.partial(
    converging, leader=False, proxy_revision="default", proxy_version="1.31.1"
)


async def listed(model: FakeApiserver, **settings: Any) -> dict[str, Any]:
    """Ask for the pods without their sidecar."""
    async with served(model, **settings) as service:
        return await service.get("/uninjected")


async def test_answer_follows_the_settings_that_the_charm_has_just_written(model: FakeApiserver):
    async with served(model, restart_pods="manual") as service:
        for restart_pods, reason in (("manual", Reason.NOT_ASKED), ("auto", Reason.QUEUED)):
            service.change(restart_pods=restart_pods, token=reason)
            found = await service.get("/uninjected")
            (pod,) = found["pods"]
            wanted = (MODEL, "web-0", "StatefulSet/web", reason)
            assert tuple(pod[key] for key in ("namespace", "name", "workload", "reason")) == wanted
            assert (found["summary"]["eligible"], found["summary"]["in_mesh"]) == (1, 0)


def add(model: FakeApiserver, name: str, *, image: str = "", **metadata: Any) -> None:
    """Create a pod of a StatefulSet, with an old sidecar if it has an image."""
    pod = without_sidecar(f"uid-{name}", name)
    workload(model, "statefulsets", name)
    if image:
        pod = injected(pod)
        pod["metadata"]["labels"]["service.istio.io/canonical-name"] = name
        status = {"revision": "default", "containers": ["istio-proxy"]}
        pod["metadata"]["annotations"] = {"sidecar.istio.io/status": json.dumps(status)}
        pod["spec"]["containers"][-1]["image"] = image
    pod["metadata"] |= metadata
    model.put("pods", pod)


OLD, GOING = "istio/proxyv2:1.30.0", {"deletionTimestamp": "2026-01-01T00:02:00Z"}
AGE = "its proxy is 1.30.0, istiod is 1.31.1"


def rows(found: dict[str, Any]) -> list[tuple[str, bool, str, str]]:
    """Return the pods of an answer, all of which are in the model."""
    assert {each["namespace"] for each in found["pods"]} <= {MODEL}
    keys = ("name", "fixable", "reason", "message")
    return [tuple(each[key] for key in keys) for each in found["pods"]]


async def test_pods_with_an_old_sidecar_are_listed_where_they_are_asked_for(model: FakeApiserver):
    add(model, "web", image=OLD, uid="uid-1")
    add(model, "db", image=OLD)
    add(model, "going", image=OLD, **GOING)
    async with served(model) as service:
        stale = await service.get("/uninjected?stale=")
        lacking = await service.get("/uninjected")
        planned = await service.post("/restart?stale=&dry-run=")
        await service.post("/restart")

    # A request for no pod would replace the request of another action.
    assert not model.find("configmaps", MODEL, MEMORY)
    assert rows(stale) == [(f"{name}-0", True, "OldProxy", AGE) for name in ("db", "web")]
    assert {each[0]: each[1:] for each in rows(planned)} == {
        f"{name}-0": (True, "Requested", AGE) for name in ("db", "web")
    }
    assert lacking["pods"] == []
    assert lacking["summary"]["stale"] == stale["summary"]["stale"] == 2


@pytest.mark.parametrize(("how", "forced"), [("", False), ("force=", True)])
async def test_restart_is_left_to_the_leader(model: FakeApiserver, how: str, forced: bool):
    add(model, "db")
    add(model, "bare", ownerReferences=[])
    add(model, "going", **GOING)

    def write(data: dict[str, str]) -> None:
        model.put("configmaps", {"metadata": {"name": MEMORY, "namespace": MODEL}, "data": data})

    async with served(model) as service:
        listed = [(each[0], each[2]) for each in rows(await service.get("/uninjected"))]
        assert listed == [("bare-0", "BarePod"), ("db-0", "Queued"), ("web-0", "Queued")]
        planned = await service.post("/restart?dry-run=")
        assert sorted(rows(planned)) == [
            ("bare-0", False, "BarePod", "nothing would create it again"),
            *((f"{name}-0", True, "Requested", "to be replaced") for name in ("db", "web")),
        ]
        assert not model.find("configmaps", MODEL, MEMORY)
        write({"rejections": "{}"})
        # The leader writes between this unit's read and its write.
        model.interference = [lambda: write({"rejections": "{}", "state": "{}"})]
        await service.post(f"/restart?{how}")
        data = model.get("configmaps", MODEL, MEMORY)["data"]
        stored = memory.decode(data)
        await asyncio.sleep(60)

    assert data.keys() == {"rejections", "state", memory.REQUEST}
    assert stored.request is not None
    assert (sorted(stored.request.uids), stored.request.force) == (["uid-1", "uid-db"], forced)
    assert 0 <= now() - stored.request.at < 300
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


@cases(
    ("failure", "words"),
    denied=(Refused("not you", 403), "403 Forbidden: not you"),
    no_answer_of_the_server=(web.HTTPBadGateway(text="no upstream"), "502 : no upstream"),
)
async def test_words_of_what_refuses_a_request_are_told(
    model: FakeApiserver, failure: Exception, words: str
):
    def refuse(method: str, path: str) -> None:
        if path.endswith(MEMORY):
            raise failure

    model.before_answer = refuse
    async with served(model) as service, service.asked.get("/uninjected") as answer:
        assert (answer.status, await answer.text()) == (502, words)


async def test_reading_does_not_act(model: FakeApiserver):
    async with served(model) as service, service.asked.get("/restart") as answer:
        assert answer.status == 405


async def test_answer_that_takes_too_long_is_given_up(model: FakeApiserver):
    async with served(model) as service:
        model.before_answer = lambda method, path: asyncio.sleep(14)
        async with service.asked.get("/uninjected") as answer:
            assert (answer.status, await answer.text()) == (504, "no answer within 10 s")

"""The listener on 127.0.0.1, as the charm asks it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from sidecar_lifecycle.decide.convergence import memory
from sidecar_lifecycle.shell import run, serving
from sidecar_lifecycle.shell.settings import Live

from integrator_contract import schema, seen
from integrator_contract.reasons import Reason
from tests.unit.workload.converging import MEMORY, MODEL, STAND_BY, injected, without_sidecar
from tests.unit.workload.fake_apiserver import FakeApiserver, running_task, until

VIRTUAL_TIME = True
TOKEN = "a-token"
ASKED = {"Authorization": f"Bearer {TOKEN}"}
SETTINGS = dataclasses.replace(
    STAND_BY, token=TOKEN, proxy_revision="default", proxy_version="1.31.1"
)


@contextlib.asynccontextmanager
async def served(
    cluster: FakeApiserver, settings: Any = SETTINGS, path: pathlib.Path | None = None
) -> AsyncIterator[tuple[aiohttp.ClientSession, run.Program]]:
    program = run.Program(
        cluster.client,
        Live(settings, path),
        listen=("127.0.0.1", 0),
        port=0,
    )
    async with running_task(program.run()):
        await until(lambda: program.port)
        async with aiohttp.ClientSession(
            f"http://127.0.0.1:{program.port}", headers=ASKED
        ) as session:
            yield session, program


async def listed(cluster: FakeApiserver) -> dict[str, Any]:
    """Ask for the pods without their sidecar."""
    async with served(cluster) as (session, _), session.get("/uninjected") as answer:
        found = await answer.json()
    assert found["contract"] == schema.SCHEMA
    return found["answer"]


async def test_pods_without_their_sidecar_are_listed_with_the_word_of_the_contract(
    model: FakeApiserver,
):
    found = await listed(model)
    (pod,) = found["pods"]
    assert (pod["namespace"], pod["name"], pod["fixable"]) == (MODEL, "web-0", True)
    assert pod["workload"] == "StatefulSet/web"
    summary = found["summary"]
    assert (summary["eligible"], summary["in_mesh"]) == (1, 0)


async def test_answer_follows_the_settings_that_the_charm_has_just_written(
    model: FakeApiserver, tmp_path: pathlib.Path
):
    file = tmp_path / "settings.json"
    file.write_text(dataclasses.replace(SETTINGS, restart_pods="off").document())
    async with served(model, path=file) as (session, _):
        for restart_pods, reason in (("off", Reason.NOT_ASKED), ("auto", Reason.QUEUED)):
            file.write_text(dataclasses.replace(SETTINGS, restart_pods=restart_pods).document())
            async with session.get("/uninjected") as answer:
                (pod,) = (await answer.json())["answer"]["pods"]
            assert pod["reason"] == reason


async def test_pods_with_an_old_sidecar_are_listed_where_they_are_asked_for(model: FakeApiserver):
    old = injected(without_sidecar())
    old["metadata"]["labels"]["service.istio.io/canonical-name"] = "web"
    status = {"revision": "default", "containers": ["istio-proxy"]}
    old["metadata"]["annotations"] = {"sidecar.istio.io/status": json.dumps(status)}
    old["spec"]["containers"][-1]["image"] = "istio/proxyv2:1.30.0"
    model.put("pods", old)
    async with served(model) as (session, _):
        async with session.get("/uninjected?stale=") as answer:
            stale = (await answer.json())["answer"]
        async with session.get("/uninjected") as answer:
            lacking = (await answer.json())["answer"]

    assert [pod["name"] for pod in stale["pods"]] == ["web-0"]
    assert lacking["pods"] == []
    assert lacking["summary"]["stale"] == stale["summary"]["stale"] == 1


async def test_what_the_gateway_has_is_told_while_something_is_expected(model: FakeApiserver):
    expected = seen.Expectation(
        namespace="ingress",
        selector={"a": "b"},
        gateway="kubeflow/gw",
        servers=(),
        filters=(),
        entry="ask",
    )

    async def told(session: aiohttp.ClientSession) -> Any:
        async with session.get("/seen") as answer:
            found = await answer.json()
        assert found["contract"] == schema.SCHEMA
        return found["answer"]

    def looks() -> int:
        return model.requests.count(("GET", "/api/v1/namespaces/ingress/pods"))

    async with served(model) as (session, program):
        assert (await told(session))["of"] == ""
        program.live.change(dataclasses.replace(SETTINGS, expected=expected))
        await asyncio.sleep(5)
        found = await told(session)
        assert (found["of"], found["unseen"]) == (expected.word(), "no pods")
        program.live.change(SETTINGS)
        await asyncio.sleep(5)
        assert (await told(session))["of"] == ""
        before = looks()
        assert before > 0
        await asyncio.sleep(60)
        assert looks() == before


@pytest.mark.parametrize(("how", "forced"), [("", False), ("force=", True)])
async def test_restart_is_left_to_the_leader(model: FakeApiserver, how: str, forced: bool):
    async with served(model) as (session, _):
        async with session.post("/restart?dry-run=") as answer:
            assert [pod["name"] for pod in (await answer.json())["answer"]["pods"]] == ["web-0"]
        assert not [each for each in model.all("configmaps") if _name(each) == MEMORY]
        async with session.post(f"/restart?{how}") as answer:
            assert answer.status == 200
        stored = memory.decode(model.get("configmaps", MODEL, MEMORY)["data"])
        await asyncio.sleep(60)

    assert stored.request is not None
    assert (stored.request.uids, stored.request.force) == (("uid-1",), forced)
    assert model.evicted == []


@pytest.mark.parametrize("given", [None, "Bearer another", f"Basic {TOKEN}", "Bearer "])
async def test_who_does_not_know_the_token_is_told_nothing(
    model: FakeApiserver, given: str | None
):
    headers = {} if given is None else {"Authorization": given}
    async with served(model) as (_, program):
        address = f"http://127.0.0.1:{program.port}"
        async with aiohttp.ClientSession(address) as session:
            for method, path in (("GET", "/uninjected"), ("POST", "/restart"), ("GET", "/x")):
                async with session.request(method, path, headers=headers) as answer:
                    assert answer.status == 401
        program.live.change(dataclasses.replace(SETTINGS, token=""))
        async with (
            aiohttp.ClientSession(address) as session,
            session.get("/uninjected", headers={"Authorization": "Bearer "}) as answer,
        ):
            assert answer.status == 401


async def test_reading_does_not_act(model: FakeApiserver):
    async with served(model) as (session, _), session.get("/restart") as answer:
        assert answer.status == 405


async def test_answer_that_takes_too_long_is_given_up(
    model: FakeApiserver, monkeypatch: pytest.MonkeyPatch
):
    async def never(_: object) -> None:
        await asyncio.Event().wait()

    app = serving.charm_application(lambda: TOKEN, {"/never": never}, {})
    async with (
        serving.serve(app, ("127.0.0.1", 0)) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=ASKED) as session,
        session.get("/never") as answer,
    ):
        assert answer.status == 504


def _name(found: dict[str, Any]) -> str:
    return found["metadata"]["name"]

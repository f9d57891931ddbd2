"""The request by which the charm's action stops one proxy."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from integrator_contract import schema
from tests.unit.workload import pods
from tests.unit.workload.fake_apiserver import FakeApiserver
from tests.unit.workload.test_local_listener import SETTINGS, served

VIRTUAL_TIME = True
OFF = dataclasses.replace(SETTINGS, proxy_shutdown=False)
KEPT = {"istio-integrator.charmhub.io/proxy-shutdown": "disabled"}


@pytest.fixture(autouse=True)
def unfinished(cluster: FakeApiserver) -> None:
    cluster.namespace("default")
    cluster.put("pods", pods.pod_json(name="done", uid="1", namespace="default"))
    cluster.put("pods", pods.pod_json(pods.running(), name="busy", uid="2", namespace="default"))
    cluster.put("pods", pods.pod_json(name="kept", uid="3", namespace="default", annotations=KEPT))


async def ask(cluster: FakeApiserver, name: str) -> tuple[int, Any]:
    query = {"namespace": "default", "pod": name}
    async with served(cluster, OFF) as (session, _), session.post("/stop", params=query) as answer:
        if answer.status != 200:
            return answer.status, await answer.text()
        found = await answer.json()
    assert found["contract"] == schema.SCHEMA
    return 200, found["proxy"]


def phase(cluster: FakeApiserver, name: str) -> str:
    return cluster.get("pods", "default", name)["status"]["phase"]


async def test_proxy_of_a_finished_pod_is_stopped(cluster: FakeApiserver):
    _, told = await ask(cluster, "done")
    assert (told["decision"], told["result"], told["transport"]) == (
        "stop",
        "acknowledged",
        "port-forward",
    )
    assert phase(cluster, "done") == "Succeeded"


async def test_the_other_way_is_taken_where_one_is_closed(cluster: FakeApiserver):
    cluster.denied = lambda _, path: path.endswith("portforward")
    _, told = await ask(cluster, "done")
    assert (told["result"], told["transport"]) == ("acknowledged", "exec")
    assert phase(cluster, "done") == "Succeeded"


async def test_proxy_that_ends_before_its_answer_is_out_counts_as_stopped(cluster: FakeApiserver):
    cluster.proxies["done"].mode = "cut"
    _, told = await ask(cluster, "done")
    assert (told["result"], told["transport"]) == ("acknowledged", "port-forward")
    assert cluster.proxies["done"].requests == ["port-forward"]


async def test_proxy_that_hangs_is_tried_both_ways(cluster: FakeApiserver):
    proxy = cluster.proxies["done"]
    proxy.mode = proxy.exec_mode = "hang"
    _, told = await ask(cluster, "done")
    assert (told["result"], told["transport"]) == ("timeout", "exec")


@pytest.mark.parametrize(("name", "decision"), [("busy", "wait"), ("kept", "ignore")])
async def test_pod_that_must_not_be_stopped_is_left_alone(
    cluster: FakeApiserver, name: str, decision: str
):
    _, told = await ask(cluster, name)
    assert (told["name"], told["decision"], told["result"]) == (name, decision, "")
    assert phase(cluster, name) == "Running"


async def test_pod_that_is_not_there_is_named(cluster: FakeApiserver):
    status, text = await ask(cluster, "gone")
    assert status == 502
    assert "404" in text

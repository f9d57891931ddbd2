"""Events: written once, by whichever replica, never a reason to fail."""

import asyncio
import datetime
import json
import re

import pytest

from tests.unit.cases import cases
from tests.unit.workload import pods
from tests.unit.workload.fake_apiserver import FakeApiserver, until
from tests.unit.workload.shutdown_world import unit

TIMES = ("firstTimestamp", "lastTimestamp")
EVENTS = "/api/v1/namespaces/kf/events"


def is_event(method: str, path: str) -> bool:
    return method == "POST" and path.endswith("/events")


async def test_event_is_about_the_pod_and_shown_by_describe(cluster: FakeApiserver):
    name = f"job-{'x' * 249}"
    cluster.put("pods", pods.pod_json(name=name))
    async with unit(cluster):
        await until(lambda: cluster.all("events"))
        cluster.delete("pods", "kf", name)
        cluster.put("pods", pods.pod_json(name=name, uid="of-the-next"))
        await until(lambda: len(cluster.all("events")) == 2)

    event, later = cluster.all("events")
    assert later["involvedObject"]["uid"] == "of-the-next"
    meta, first, last = (event.pop(key) for key in ("metadata", *TIMES))
    assert meta["namespace"] == "kf"
    assert re.fullmatch(rf"{name[:230]}\.[0-9a-f]{{16}}", meta["name"])
    assert first == last == datetime.datetime.fromisoformat(last).strftime("%Y-%m-%dT%H:%M:%SZ")
    pod = {"namespace": "kf", "name": name, "uid": "uid-1"}
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "type": "Normal",
        "count": 1,
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", **pod},
        "reason": "ProxyStopped",
        "message": "Stopped the Istio proxy (port-forward): main ended with 0.",
        "source": {"component": "istio-integrator"},
    }


async def test_failure_does_not_keep_the_next_one_from_being_written(
    cluster: FakeApiserver, capsys: pytest.CaptureFixture[str]
):
    cluster.denied = is_event
    cluster.put("pods", pods.pod_json())
    async with unit(cluster):
        await until(lambda: ("POST", EVENTS) in cluster.requests)
        cluster.denied = lambda *_: False
        cluster.before_answer = lambda *asked: asyncio.sleep(1e6) if is_event(*asked) else None
        cluster.put("pods", pods.pod_json(name="slow", uid="slow"))
        await until(lambda: cluster.requests.count(("POST", EVENTS)) == 2)
        cluster.before_answer = lambda *_: None
        await asyncio.sleep(15)
        cluster.put("pods", pods.pod_json(name="next", uid="next"))
        await until(lambda: cluster.all("events"))
        # Another unit wrote this Event before.
        cluster.delete("pods", "kf", "next")
        written = cluster.requests.count(("POST", EVENTS))
        cluster.put("pods", pods.pod_json(name="next", uid="next"))
        await until(lambda: cluster.requests.count(("POST", EVENTS)) > written)
        await asyncio.sleep(1)

    lines = map(json.loads, capsys.readouterr().err.splitlines())
    told = [each for each in lines if each["message"] == "event not written"]
    assert [each["error"] for each in told] == ["403 Forbidden: Forbidden", "TimeoutError: "]
    assert told[0]["reason"] == "ProxyStopped"
    assert told[0]["name"].startswith("job-x.")
    assert [each["involvedObject"]["name"] for each in cluster.all("events")] == ["next"]


async def test_few_events_are_written_at_once(cluster: FakeApiserver):
    under_way: list[str] = []
    most = 0

    async def answer_late() -> None:
        nonlocal most
        under_way.append("")
        most = max(most, len(under_way))
        await asyncio.sleep(1)
        under_way.pop()

    cluster.before_answer = lambda *asked: answer_late() if is_event(*asked) else None
    for number in range(50):
        cluster.put("pods", pods.pod_json(name=f"job-{number}", uid=f"uid-{number}"))
    async with unit(cluster):
        await until(lambda: len(cluster.all("events")) == 50)

    assert most == 8


@cases(("seconds", "written"), in_time=(0.5, 1), late=(60, 0))
async def test_events_are_waited_for_at_the_end_but_not_for_long(
    cluster: FakeApiserver, seconds: float, written: int
):
    loop = asyncio.get_running_loop()
    cluster.before_answer = lambda *asked: asyncio.sleep(seconds) if is_event(*asked) else None
    cluster.put("pods", pods.pod_json())
    async with unit(cluster):
        await until(lambda: any(is_event(*each) for each in cluster.requests))
        began = loop.time()

    assert loop.time() - began < 2
    assert len(cluster.all("events")) == written

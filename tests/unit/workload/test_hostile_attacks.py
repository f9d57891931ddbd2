"""Objects made to end the process end nothing, and cost nobody else anything."""

from __future__ import annotations

import asyncio
import json

import pytest
from sidecar_lifecycle.decide import finished
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell.kube import watch

from tests.unit.workload import pods, scripted
from tests.unit.workload.fake_apiserver import FakeApiserver, running_task, until
from tests.unit.workload.shutdown_world import NAMESPACE, event_reasons, phase, reconciler

VIRTUAL_TIME = True
PREFIX = "istio-integrator.charmhub.io/"


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming-list", "paged-list"])
async def test_pod_that_can_not_be_decoded_gets_one_event_and_others_complete(
    cluster: FakeApiserver, streaming: bool
):
    cluster.streaming_lists = streaming
    hostile = pods.pod_json(name="hostile", uid="h")
    hostile["spec"]["nodeName"] = 5
    cluster.put("pods", hostile)
    cluster.put("pods", pods.pod_json())
    async with reconciler(cluster) as controller:
        await until(lambda: phase(cluster) == "Succeeded")
        assert controller.pods.live
        cluster.put("pods", hostile)
        cluster.put("pods", pods.pod_json(name="later", uid="l"))
        await until(lambda: phase(cluster, "later") == "Succeeded")

    told = [each for each in cluster.all("events") if each["reason"] == "ObjectNotUnderstood"]
    assert [each["involvedObject"]["name"] for each in told] == ["hostile"]
    assert [each["count"] for each in told] == [1]


async def test_rules_that_raise_about_one_pod_leave_the_others_to_complete(
    cluster: FakeApiserver, monkeypatch: pytest.MonkeyPatch
):
    rules = finished.finished

    def broken(pod: types.Pod, policy: finished.Policy) -> finished.Decision:
        if pod.metadata.name == "hostile":
            raise RecursionError
        return rules(pod, policy)

    monkeypatch.setattr(finished, "finished", broken)
    cluster.put("pods", pods.pod_json(name="hostile", uid="h"))
    async with reconciler(cluster) as controller:
        await until(lambda: len(controller.view) == 1)
        cluster.put("pods", pods.pod_json())
        await until(lambda: phase(cluster) == "Succeeded")
        # A namespace that changes has all its pods judged anew.
        cluster.namespace(NAMESPACE, annotations={f"{PREFIX}proxy-shutdown": "disabled"})
        await asyncio.sleep(5)
        cluster.namespace(NAMESPACE)
        cluster.put("pods", pods.pod_json(name="later", uid="l"))
        await until(lambda: phase(cluster, "later") == "Succeeded")

    assert event_reasons(cluster).count("ObjectNotUnderstood") == 1
    assert cluster.proxies["hostile"].requests == []


async def test_what_can_not_be_decoded_is_forgotten_when_it_is_deleted():
    server = scripted.Scripted()
    server.present["pods"] = [json.dumps(pods.pod_json()).encode()]
    seen: list[str] = []

    async def follow() -> None:
        async for change in watch.watch(server, types.Pod):  # type: ignore[arg-type]
            name = change.object.metadata.name if change.object else ""
            seen.append(f"{change.kind} {name}".strip())

    async with running_task(follow()):
        await until(lambda: seen == ["added job-x", "synced"])
        bad = pods.pod_json() | {"spec": 5}
        server.say("pods", "MODIFIED", bad)
        server.say("pods", "DELETED", bad)
        await until(lambda: seen[2:] == ["deleted job-x"])

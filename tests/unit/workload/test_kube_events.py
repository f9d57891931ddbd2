"""Events: written once, by whichever replica, never a reason to fail."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell.kube import events

from tests.unit.workload import pods
from tests.unit.workload.fake_apiserver import FakeApiserver

VIRTUAL_TIME = True


def recorder(cluster: FakeApiserver) -> events.Recorder:
    return events.Recorder(cluster.client)


async def record(writer: events.Recorder, *event: Any) -> None:
    writer.record(*event)
    await writer.drain(60)


async def test_event_is_about_the_pod_and_shown_by_describe(cluster: FakeApiserver):
    for message in ("Done.", "Done.", "Done again."):
        await record(recorder(cluster), pods.pod(), "ProxyStopped", message)

    event, _ = cluster.all("events")
    assert event["metadata"]["namespace"] == "kubeflow"
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "kubeflow",
        "name": "job-x",
        "uid": "uid-1",
    }
    assert (event["reason"], event["type"], event["count"]) == ("ProxyStopped", "Normal", 1)
    assert event["firstTimestamp"] == event["lastTimestamp"] is not None


async def test_failure_does_not_keep_the_next_try_from_writing(cluster: FakeApiserver):
    cluster.failures = [("/events", 403, {})]
    writer = recorder(cluster)
    await record(writer, pods.pod(), "ProxyLost", "Oh.")
    assert cluster.all("events") == []
    await record(writer, pods.pod(), "ProxyLost", "Oh.")
    assert len(cluster.all("events")) == 1


async def test_cluster_scoped_object_gets_its_event_in_default(cluster: FakeApiserver):
    namespace = types.Namespace(metadata=types.ObjectMeta(name="model", uid="u"))
    await record(recorder(cluster), namespace, "Skipped", "Served by another.")

    assert cluster.all("events")[0]["metadata"]["namespace"] == "default"


async def test_few_events_are_written_at_once(cluster: FakeApiserver):
    writer = recorder(cluster)
    under_way = most = 0
    request = cluster.client.request

    async def counting(*arguments: Any, **options: Any) -> bytes:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        answer = await request(*arguments, **options)
        under_way -= 1
        return answer

    cluster.client.request = counting  # type: ignore[method-assign]
    for number in range(50):
        writer.record(pods.pod(name=f"job-{number}", uid=f"uid-{number}"), "ProxyStopped", "Done.")
    await writer.drain(60)

    assert len(cluster.all("events")) == 50
    assert most == events.AT_ONCE


async def test_events_that_can_not_be_written_in_time_are_left(cluster: FakeApiserver):
    writer = recorder(cluster)

    async def hanging(*_: Any, **__: Any) -> bytes:
        return await asyncio.Event().wait() and b""

    cluster.client.request = hanging  # type: ignore[method-assign]
    writer.record(pods.pod(), "ProxyStopped", "Done.")
    began = asyncio.get_running_loop().time()
    await writer.drain(1)

    assert asyncio.get_running_loop().time() - began == pytest.approx(1, abs=0.1)
    assert cluster.all("events") == []

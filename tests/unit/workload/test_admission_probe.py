"""The minute's question whether new pods are prepared."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import prometheus_client
import pytest
from sidecar_lifecycle.shell.admission import probe

from tests.unit.workload.fake_apiserver import FakeApiserver, running_task, until

VIRTUAL_TIME = True


class Leader:
    is_leader = True


@pytest.fixture
async def cluster() -> AsyncIterator[FakeApiserver]:
    fake = FakeApiserver()
    async with fake:
        yield fake


@pytest.fixture
def registry() -> prometheus_client.CollectorRegistry:
    return prometheus_client.CollectorRegistry()


def prepared_by(*backends: str) -> Any:
    """Prepare the probes of these backends, as the real ones do."""

    def admit(pod: dict[str, Any]) -> dict[str, Any]:
        asked = pod["metadata"]["labels"]["istio-integrator.charmhub.io/probe"]
        settings = {"istio-integrator.charmhub.io/settings": "0123"}
        metadata = {**pod["metadata"], "annotations": settings if asked in backends else {}}
        return {**pod, "metadata": metadata}

    return admit


def answers(registry: prometheus_client.CollectorRegistry) -> dict[str, float]:
    return {
        sample.labels["backend"]: sample.value
        for family in registry.collect()
        for sample in family.samples
    }


async def test_each_backend_is_asked_and_its_answer_shown(
    cluster: FakeApiserver, registry: prometheus_client.CollectorRegistry
):
    cluster.admission = prepared_by("webhook")
    asking = probe.run(cluster.client, "kubeflow", Leader(), registry=registry)
    async with running_task(asking):
        await until(lambda: answers(registry) == {"policy": 0, "webhook": 1})
        cluster.admission = prepared_by("policy")
        await until(lambda: answers(registry) == {"policy": 1, "webhook": 0})
    assert cluster.objects == {}


def test_pod_that_asks_is_one_that_every_namespace_takes():
    """By the restricted pod security standard, which some namespaces enforce."""
    (container,) = probe.pod("policy")["spec"]["containers"]
    rights = container["securityContext"]
    assert rights["allowPrivilegeEscalation"] is False
    assert rights["runAsNonRoot"] is True
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert rights["seccompProfile"] == {"type": "RuntimeDefault"}


async def test_what_can_not_be_asked_is_not_shown_as_broken(
    cluster: FakeApiserver, registry: prometheus_client.CollectorRegistry
):
    cluster.admission = prepared_by("policy")
    asking = probe.run(cluster.client, "kubeflow", Leader(), registry=registry)
    async with running_task(asking):
        await until(lambda: answers(registry) == {"policy": 1, "webhook": 0})
        cluster.denied = lambda method, path: method == "POST"
        await until(lambda: answers(registry) == {})


async def test_unit_that_stands_by_asks_nothing(
    cluster: FakeApiserver, registry: prometheus_client.CollectorRegistry
):
    leader = Leader()
    cluster.admission = prepared_by("policy")
    asking = probe.run(cluster.client, "kubeflow", leader, registry=registry)
    async with running_task(asking):
        await until(lambda: answers(registry) != {})
        leader.is_leader = False
        await until(lambda: answers(registry) == {})
        leader.is_leader = True
        await until(lambda: answers(registry) != {})


async def test_injector_that_is_down_has_no_say(
    cluster: FakeApiserver, registry: prometheus_client.CollectorRegistry
):
    asked: list[dict[str, str]] = []

    def admit(pod: dict[str, Any]) -> dict[str, Any]:
        asked.append(pod["metadata"]["labels"])
        return pod

    cluster.admission = admit
    async with running_task(probe.run(cluster.client, "kubeflow", Leader(), registry=registry)):
        await until(lambda: len(asked) >= 2)
    assert all(labels["sidecar.istio.io/inject"] == "false" for labels in asked)

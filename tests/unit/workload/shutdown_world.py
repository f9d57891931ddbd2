"""A unit's service, and what is seen of the pods whose proxies it stops."""

from contextlib import AbstractAsyncContextManager
from typing import Any

from tests.unit.workload import service_world
from tests.unit.workload.fake_apiserver import FakeApiserver

NAMESPACE = service_world.MODEL
OWNED = [
    {"kind": "Queue", "name": "q", "uid": "q"},
    {"kind": "Job", "name": "j", "uid": "u", "controller": True},
]
TURN = 5
"""Seconds by which each unit acts later than the one before it."""
START_WITHIN = 60
"""Seconds that a proxy has to start in, once the payload has ended."""
OLD_END_COUNTS_AFTER = 300
"""Seconds until an end counts that is older than the start of its pod."""


def unit(
    cluster: FakeApiserver, number: int = 0, **extra: Any
) -> AbstractAsyncContextManager[service_world.Service]:
    """Run the service of a unit; the first one is Juju's leader."""
    told = {"leader": number == 0, **extra}
    name = f"{service_world.APPLICATION}/{number}"
    return service_world.running(cluster, unit=name, **told)


def phase(cluster: FakeApiserver, name: str = "job-x", namespace: str = NAMESPACE) -> str:
    return cluster.get("pods", namespace, name)["status"]["phase"]


def event_reasons(cluster: FakeApiserver) -> list[str]:
    """Return the reasons of the Events, all of which warn but that of a stop."""
    told = cluster.all("events")
    assert all((each["type"] == "Normal") is (each["reason"] == "ProxyStopped") for each in told)
    return sorted(each["reason"] for each in told)


def opened(cluster: FakeApiserver, name: str = "job-x") -> list[str]:
    """By which ways the proxy of a pod was opened, used or not."""
    ends = (f"/pods/{name}/portforward", f"/pods/{name}/exec")
    return [path.rpartition("/")[2] for _, path in cluster.requests if path.endswith(ends)]

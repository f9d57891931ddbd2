"""A name may have another pod or another proxy by now: only what was judged is touched."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sidecar_lifecycle.decide import finished
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell import metrics
from sidecar_lifecycle.shell.shutdown import reports, stop

from integrator_contract.answers import Action
from tests.unit.workload import pods
from tests.unit.workload.fake_apiserver import FakeApiserver, until
from tests.unit.workload.shutdown_world import (
    NAMESPACE,
    event_reasons,
    finished_pod,
    opened,
    phase,
    reconciler,
)

VIRTUAL_TIME = True


def with_proxy(number: int, **extra: Any) -> dict[str, Any]:
    """A finished pod whose proxy has been started so many times before."""
    pod = finished_pod(policy="OnFailure", **extra)
    for status in pod["status"]["containerStatuses"]:
        if status["name"] == "istio-proxy":
            status["containerID"] = f"containerd://proxy-{number}"
    return pod


CHANGES = [
    pytest.param(with_proxy(0, uid="uid-2"), id="another-pod"),
    pytest.param(with_proxy(1), id="another-proxy"),
    pytest.param(with_proxy(0, main=pods.running()), id="the-payload-runs"),
    pytest.param(with_proxy(0, deletionTimestamp="2026-01-01T00:02:00Z"), id="deleted"),
]


def decide(pod: types.Pod) -> finished.Decision:
    return finished.finished(pod, finished.Policy())


async def stopped(cluster: FakeApiserver, transport: stop.Transport) -> stop.Outcome:
    """Send a stop that was decided about the pod as `with_proxy(0)` has it."""
    judged = pods.pod(policy="OnFailure")
    judged.status.containerStatuses[-1].containerID = "containerd://proxy-0"
    decision = decide(judged)
    assert decision.action is Action.STOP
    return await stop.Stopper(cluster.client).stop(judged, decision, transport, decide)


@pytest.mark.parametrize("transport", list(stop.Transport))
async def test_what_was_judged_is_stopped(cluster: FakeApiserver, transport: stop.Transport):
    cluster.put("pods", with_proxy(0))

    outcome = await stopped(cluster, transport)

    assert outcome.result is stop.Result.ACKNOWLEDGED
    assert cluster.proxies["job-x"].requests == [transport]


@pytest.mark.parametrize("now", CHANGES)
@pytest.mark.parametrize("transport", list(stop.Transport))
async def test_what_is_not_as_it_was_judged_gets_no_stop(
    cluster: FakeApiserver, transport: stop.Transport, now: dict[str, Any]
):
    cluster.put("pods", now)

    outcome = await stopped(cluster, transport)

    assert outcome.result is stop.Result.CHANGED
    assert cluster.proxies["job-x"].requests == []


def change_before_sending(cluster: FakeApiserver, pod: dict[str, Any]) -> None:
    """Have another pod or proxy under the name as soon as the way in is asked for."""

    def change(method: str, path: str) -> None:
        if path.endswith("/portforward"):
            cluster.before_answer = lambda method, path: None
            if pod["metadata"]["uid"] != "uid-1":
                cluster.delete("pods", NAMESPACE, "job-x")
            cluster.put("pods", pod)

    cluster.before_answer = change


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(with_proxy(0, uid="uid-2"), id="another-pod"),
        pytest.param(with_proxy(1), id="another-proxy"),
    ],
)
async def test_what_took_its_place_is_judged_anew_and_then_stopped(
    cluster: FakeApiserver, now: dict[str, Any]
):
    changed = metrics.STOPS.labels(stop.Transport.PORT_FORWARD, stop.Result.CHANGED)._value
    before = changed.get()
    cluster.put("pods", with_proxy(0))
    change_before_sending(cluster, now)
    async with reconciler(cluster):
        await until(lambda: phase(cluster) == "Succeeded")

    # The first way in was left unused: it was opened for somebody else.
    assert opened(cluster) == 2
    assert cluster.proxies["job-x"].requests == ["port-forward"]
    assert changed.get() - before == 1


async def test_pod_of_the_same_name_whose_payload_runs_is_left_alone(cluster: FakeApiserver):
    cluster.put("pods", with_proxy(0))
    change_before_sending(cluster, with_proxy(0, uid="uid-2", main=pods.running()))
    async with reconciler(cluster) as controller:
        await until(lambda: [each.pod.metadata.uid for each in controller.view] == ["uid-2"])
        await asyncio.sleep(60)

    assert opened(cluster) == 1
    assert cluster.proxies["job-x"].requests == []
    assert phase(cluster) == "Running"


async def test_proxy_that_comes_back_while_its_stop_ends_is_stopped_again(
    cluster: FakeApiserver,
):
    def quit_and_come_back(namespace: str, name: str) -> None:
        cluster._quit = quit_for_good  # type: ignore[method-assign]
        cluster.set_state(namespace, name, "istio-proxy", pods.ended(1))
        # At once, so that the stop under way sees neither its end nor its beginning.
        cluster.objects["pods", namespace, name]["status"]["phase"] = "Running"
        cluster.put("pods", with_proxy(1))

    quit_for_good = cluster._quit
    cluster._quit = quit_and_come_back  # type: ignore[method-assign]
    cluster.put("pods", with_proxy(0))
    async with reconciler(cluster):
        await until(lambda: phase(cluster) == "Succeeded")

    assert cluster.proxies["job-x"].requests == ["port-forward", "port-forward"]


OWNED = [{"kind": "Job", "name": "j", "uid": "u", "controller": True}]


def broken_pod(**extra: Any) -> dict[str, Any]:
    return finished_pod(main=pods.running(), proxy=pods.ended(), ownerReferences=OWNED, **extra)


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"uid": "uid-2"}, id="another-pod"),
        pytest.param({"resourceVersion": "999999"}, id="the-pod-in-another-state"),
    ],
)
async def test_only_the_very_pod_that_was_judged_is_replaced(
    cluster: FakeApiserver, metadata: dict[str, str]
):
    cluster.put("pods", broken_pod())

    def change(method: str, path: str) -> None:
        if method == "DELETE":
            cluster.get("pods", NAMESPACE, "job-x")["metadata"].update(metadata)

    cluster.before_answer = change
    async with reconciler(cluster, delete_broken_pods=True):
        await until(lambda: any(method == "DELETE" for method, _ in cluster.requests))
        await asyncio.sleep(5)

    assert metadata.items() <= cluster.get("pods", NAMESPACE, "job-x")["metadata"].items()


@pytest.mark.parametrize(
    ("owners", "replaced"),
    [
        pytest.param(
            [{"kind": "Job", "name": "j", "uid": "u", "controller": True}], True, id="job"
        ),
        pytest.param([], False, id="bare"),
    ],
)
async def test_broken_pod_is_replaced_if_asked_and_owned(
    cluster: FakeApiserver, owners: list[Any], replaced: bool
):
    cluster.put(
        "pods", finished_pod(main=pods.running(), proxy=pods.ended(), ownerReferences=owners)
    )
    async with reconciler(cluster, delete_broken_pods=True):
        await until(lambda: event_reasons(cluster) == ["ProxyLost"])
        await asyncio.sleep(5)
        assert (cluster.all("pods") == []) is replaced


async def test_broken_pod_that_may_not_be_deleted_says_so(cluster: FakeApiserver):
    owners = [{"kind": "Job", "name": "j", "uid": "u", "controller": True}]
    cluster.denied = lambda method, path: method == "DELETE"
    cluster.put(
        "pods", finished_pod(main=pods.running(), proxy=pods.ended(), ownerReferences=owners)
    )
    async with reconciler(cluster, delete_broken_pods=True):
        await until(lambda: event_reasons(cluster) == ["PodNotReplaced", "ProxyLost"])


async def test_pod_part_of_whose_work_is_done_is_not_replaced(cluster: FakeApiserver):
    helper = {"helper": pods.running()}
    cluster.put("pods", finished_pod(others=helper, proxy=pods.ended(), ownerReferences=OWNED))
    async with reconciler(cluster, delete_broken_pods=True):
        await until(lambda: event_reasons(cluster) == ["PodNotReplaced", "ProxyLost"])
        await asyncio.sleep(5)

    assert len(cluster.all("pods")) == 1
    messages = {each["reason"]: each["message"] for each in cluster.all("events")}
    assert messages["PodNotReplaced"] == (
        "The pod is not replaced: main succeeded, and a new pod would run it again."
    )


async def test_controller_whose_pods_lose_their_proxy_again_and_again_is_left(
    cluster: FakeApiserver,
):
    def broken(number: int, owner: str) -> dict[str, Any]:
        owned = [{"kind": "Job", "name": owner, "uid": owner, "controller": True}]
        return finished_pod(
            name=f"{owner}-{number}",
            uid=f"{owner}-{number}",
            main=pods.running(),
            proxy=pods.ended(),
            ownerReferences=owned,
        )

    async with reconciler(cluster, delete_broken_pods=True):
        for number in range(reports.MOST_REPLACED):
            cluster.put("pods", broken(number, "j"))
            await until(lambda: cluster.all("pods") == [])
        cluster.put("pods", broken(reports.MOST_REPLACED, "j"))
        await until(lambda: "PodNotReplaced" in event_reasons(cluster))
        cluster.put("pods", broken(0, "other"))
        await until(lambda: len(cluster.all("pods")) == 1)
        await asyncio.sleep(60)

    assert [each["metadata"]["name"] for each in cluster.all("pods")] == ["j-3"]
    assert event_reasons(cluster).count("PodNotReplaced") == 1

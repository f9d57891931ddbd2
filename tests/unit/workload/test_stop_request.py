"""The request by which the charm's action stops one proxy."""

import asyncio
import dataclasses
import operator
from typing import Any

from integrator_contract import names
from tests.unit.cases import cases
from tests.unit.workload import pods, service_world
from tests.unit.workload.fake_apiserver import FakeApiserver, until
from tests.unit.workload.shutdown_world import opened, phase

OFF = dataclasses.replace(service_world.SETTINGS, proxy_shutdown=False)
KEPT: dict[str, Any] = {"annotations": {names.PROXY_SHUTDOWN: "disabled"}}
FORWARD, EXEC = "port-forward", "exec"
BOTH = [FORWARD, EXEC]
REFUSED, BROKEN_OFF = ("refused", EXEC), "exec ended: CLOSE (1000)"
FAILED = "command terminated with non-zero exit code: exit status 1: no"


@cases(
    ("pod", "modes", "denied", "want", "asked"),
    finished=({}, "ok ok", "-", ("stop", "acknowledged", FORWARD, ""), [FORWARD]),
    one_way_closed=({}, "ok ok", "portforward", ("stop", "acknowledged", EXEC, ""), [EXEC]),
    command_ends_in_garbage=({}, "refused garbage", "-", ("stop", *REFUSED, "{]: OK"), [EXEC]),
    command_fails=({}, "refused exit-1", "-", ("stop", *REFUSED, f"{FAILED} admin port"), [EXEC]),
    command_breaks_off=(*({}, "refused cut", "-", ("stop", *REFUSED, BROKEN_OFF), [EXEC]),),
    answer_is_lost=({}, "vanish exit-1", "-", ("stop", *REFUSED, f"{FAILED} admin port"), BOTH),
    answer_is_cut_off=({}, "cut ok", "-", ("stop", "acknowledged", FORWARD, ""), [FORWARD]),
    hangs=({}, "hang hang", "-", ("stop", "timeout", EXEC, "TimeoutError: "), BOTH),
    busy=({"main": pods.running()}, "ok ok", "-", ("wait", "", "", ""), []),
    kept=(KEPT, "ok ok", "-", ("ignore", "", "", ""), []),
    absent=(None, "ok ok", "-", (400, "namespace team has no pod job.x"), []),
    unreadable=({}, "ok ok", "/pods/job.x", (502, "403 Forbidden"), []),
)
async def test_proxy_of_a_finished_pod_is_stopped_when_the_charm_asks(
    cluster: FakeApiserver,
    *,
    pod: dict[str, Any] | None,
    modes: str,
    denied: str,
    want: tuple[str, str, str, str] | tuple[int, str],
    asked: list[str],
):
    proxy = cluster.proxies["job.x"]
    proxy.mode, proxy.exec_mode = modes.split()
    cluster.denied = lambda _, path: path.endswith(denied)
    if pod is not None:
        cluster.put("pods", pods.pod_json(name="job.x", namespace="team", **pod))
    path = "/stop?namespace=team&pod=job.x"
    async with service_world.running(cluster, OFF) as service:
        if isinstance(want[0], int):
            async with service.asked.post(path) as answer:
                assert answer.status == want[0]
                assert want[1] in await answer.text()
            return
        told = await service.post(path)

    assert (told["name"], told["decision"], told["result"]) == ("job.x", *want[:2])
    assert (told.get("transport", ""), told.get("detail", "")) == want[2:]
    assert proxy.requests == asked
    assert (phase(cluster, "job.x", "team") == "Succeeded") is (want[1] == "acknowledged")


PATH = "/api/v1/namespaces/team/pods/job.x"
RUNS = operator.methodcaller("set_state", "team", "job.x", "main", pods.running())
GOES = operator.methodcaller("delete", "pods", "team", "job.x")


@cases(
    ("denied", "reads", "changes", "want"),
    runs=("/portforward", 2, RUNS, ["changed", EXEC, "PayloadRunning: main is running"]),
    goes=("-", 3, GOES, ["acknowledged", FORWARD, ""]),
)
async def test_pod_that_changes_before_the_second_way_was_stopped_only_by_a_sent_request(
    cluster: FakeApiserver, denied: str, reads: int, changes: Any, want: list[str]
):
    def change(method: str, path: str) -> None:
        if path == PATH and cluster.requests.count((method, path)) == reads:
            changes(cluster)

    cluster.proxies["job.x"].mode = "cut"
    cluster.denied = lambda _, path: path.endswith(denied)
    cluster.before_answer = change
    cluster.put("pods", pods.pod_json(name="job.x", namespace="team"))
    async with service_world.running(cluster, OFF) as service:
        told = await service.post("/stop?namespace=team&pod=job.x")

    assert [told["result"], told["transport"], told.get("detail", "")] == want


@cases(
    ("query", "want"),
    no_pod=({"namespace": "kf"}, "pod="),
    another_path=({"namespace": "..", "pod": "a"}, "namespace=.."),
    long=({"namespace": "kf", "pod": "x" * 300}, "pod=xxx"),
    longer_than_a_line=({"namespace": "x" * 9000, "pod": "a"}, "bytes"),
)
async def test_request_without_the_names_of_a_pod_is_refused(
    cluster: FakeApiserver, query: dict[str, str], want: str
):
    async with (
        service_world.running(cluster, OFF) as service,
        service.asked.post("/stop", params=query) as answer,
    ):
        assert answer.status == 400
        assert want in await answer.text()


async def test_pods_whose_payload_has_ended_are_listed_even_if_proxies_are_not_stopped(
    cluster: FakeApiserver,
):
    cluster.put("pods", pods.pod_json(others={"agent": pods.running()}))
    cluster.put("pods", pods.pod_json(pods.running(), name="busy", uid="b"))
    async with service_world.running(cluster, OFF, ignore_containers=("agent",)) as service:
        await until(service.is_ready)
        (found,) = await service.get("/ended")
        await asyncio.sleep(60)

    assert not opened(cluster)
    assert (found["name"], found["decision"]) == ("job-x", "stop")
    assert found["ended"] == "2026-01-01T00:01:00Z"

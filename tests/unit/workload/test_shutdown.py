"""The life of pods whose work ends: by which way the proxy is stopped, and what is reported."""

import asyncio
import functools
import json
import random
from typing import Any

import pytest

from integrator_contract import names
from tests.unit.api_server import Refused
from tests.unit.cases import cases, row
from tests.unit.workload.fake_apiserver import FakeApiserver, until
from tests.unit.workload.pods import ended, pod_json, running, waiting
from tests.unit.workload.shutdown_world import (
    NAMESPACE,
    OLD_END_COUNTS_AFTER,
    OWNED,
    START_WITHIN,
    event_reasons,
    opened,
    phase,
    unit,
)

NEVER = {"restartPolicy": "Never"}
UNMARKED: dict[str, Any] = {"labels": {}}
NO_PORT = {"annotations": {names.STATUS_PORT: "0"}}
WITHOUT_ENVOY = {"annotations": {names.TEMPLATES: "grpc-agent"}}
MISSPELT = {"annotations": {names.WAIT_FOR_CONTAINERS: "mian"}}
AGENTS = {"agent": running(), "spare": running()}
BUSY: dict[str, Any] = {"main": running(), "ownerReferences": OWNED}
ON_FAILURE = {**BUSY, "policy": "OnFailure"}
BEFORE_ITS_POD = ended(finished="2025-12-31T23:59:00Z")
SOON, LATER = START_WITHIN - 5, START_WITHIN + 5
FORWARD, EXEC = "port-forward", "exec"
STOPPED = ["ProxyStopped"]
TYPOS = [f"typo-{number}-{'x' * 40}" for number in range(10, 40)]


def sidecar(seconds: float, state: dict[str, Any]) -> tuple[float, str, dict[str, Any]]:
    return seconds, "istio-proxy", state


def main(seconds: float, state: dict[str, Any]) -> tuple[float, str, dict[str, Any]]:
    return seconds, "main", state


@cases(
    ("pod", "modes", "steps", "asked", "told"),
    {"modes": ("ok", "ok"), "asked": [FORWARD], "told": STOPPED},
    finished_while_nobody_watched=({}, ("ok", "ok"), [], [FORWARD], STOPPED),
    finishes_under_watch=(BUSY, ("ok", "ok"), [main(9, ended())], [FORWARD], STOPPED),
    finishes_after_retries=(
        ON_FAILURE,
        ("ok", "ok"),
        [main(30, each) for each in (ended(1), waiting(), running(), ended(1), ended(0))],
        [FORWARD],
        STOPPED,
    ),
    # How a proxy may take the request.
    ends_without_an_answer=({}, ("mute", "ok"), [], [FORWARD], STOPPED),
    ends_after_its_connection=({}, ("cut", "ok"), [], [FORWARD], STOPPED),
    refuses=({}, ("refused", "ok"), [], [EXEC], STOPPED),
    forbids=({}, ("403", "ok"), [], [FORWARD, EXEC], STOPPED),
    speaks_no_http=({}, ("no-http", "ok"), [], [FORWARD, EXEC], STOPPED),
    answers_with_thousands_of_digits=({}, ("digits", "ok"), [], [FORWARD, EXEC], STOPPED),
    opens_no_port=({}, ("silent", "ok"), [], [EXEC], STOPPED),
    hangs=({}, ("hang", "ok"), [], [FORWARD, EXEC], STOPPED),
    runs_on_after_its_connection=({}, ("vanish", "ok"), [], [FORWARD, EXEC], STOPPED),
    runs_on_after_its_answer=({}, ("deaf", "ok"), [], [FORWARD, EXEC], STOPPED),
    never_ends=({}, ("vanish", "exit-1"), [], [FORWARD, EXEC], ["ProxyStopFailed"]),
    has_no_command=({}, ("refused", "missing"), [], [EXEC], ["ProxyStopFailed"]),
    command_ends_in_garbage=({}, ("refused", "garbage"), [], [EXEC], ["ProxyStopFailed"]),
    command_never_stops_talking=({}, ("refused", "talks"), [], [EXEC], ["ProxyStopFailed"]),
    # Pods that are injected in an unusual way.
    without_a_label=(UNMARKED, ("ok", "ok"), [], [FORWARD], STOPPED),
    always_but_each_container_never=row(
        pod={"policy": "Always", "main_spec": NEVER, "proxy_spec": NEVER}, steps=[]
    ),
    another_status_port=row(
        pod={"annotations": {names.STATUS_PORT: "15099", names.PROXY_CONFIG: "statusPort: 15098"}},
        steps=[],
    ),
    without_a_status_port=(NO_PORT, ("ok", "ok"), [], [EXEC], STOPPED),
    no_status_port_in_the_configuration=row(
        pod={"annotations": {names.PROXY_CONFIG: "statusPort: 0"}}, steps=[], asked=[EXEC]
    ),
    proxy_without_envoy=(WITHOUT_ENVOY, ("ok", "ok"), [], [], ["ProxyWithoutEnvoy"]),
    name_that_the_pod_lacks=row(
        pod={**BUSY, **MISSPELT}, steps=[main(9, ended())], told=[*STOPPED, "UnknownContainer"]
    ),
    # Proxies that do not run.
    proxy_that_never_starts=row(
        pod={"proxy": waiting("ErrImagePull")},
        steps=[sidecar(LATER, waiting("ImagePullBackOff"))],
        asked=[],
        told=["ProxyNotRunning"],
    ),
    proxy_that_starts_late=row(
        pod={"proxy": waiting("ContainerCreating")}, steps=[sidecar(SOON, running())]
    ),
    proxy_that_starts_after_the_report=row(
        pod={"proxy": waiting("ImagePullBackOff")},
        steps=[sidecar(SOON, waiting("ErrImagePull")), sidecar(LATER - SOON, running())],
        told=["ProxyNotRunning", *STOPPED],
    ),
    payload_runs_again_before_the_report=row(
        pod={"proxy": waiting("ContainerCreating")},
        steps=[main(SOON, running())],
        asked=[],
        told=[],
    ),
    proxy_lost=row(
        pod=BUSY, steps=[sidecar(9, ended()), main(11, ended(1))], asked=[], told=["ProxyLost"]
    ),
    proxy_that_the_kubelet_ends_first=row(
        pod=BUSY, steps=[sidecar(9, ended()), main(9, ended(143))], asked=[], told=[]
    ),
    # A node whose clock stepped back; a status of the pod's earlier life.
    end_before_its_pod=({"main": BEFORE_ITS_POD}, ("ok", "ok"), [], [FORWARD], STOPPED),
    end_before_its_pod_corrected=row(
        pod={"main": BEFORE_ITS_POD},
        steps=[main(OLD_END_COUNTS_AFTER * part, running()) for part in (0.95, 0.1)],
        asked=[],
        told=[],
    ),
)
async def test_proxy_is_stopped_once_when_the_work_is_done(
    cluster: FakeApiserver,
    *,
    pod: dict[str, Any],
    modes: tuple[str, str],
    steps: list[tuple[float, str, dict[str, Any]]],
    asked: list[str],
    told: list[str],
):
    proxy = cluster.proxies["job-x"]
    proxy.mode, proxy.exec_mode = modes
    proxy.port = pod.get("annotations", {}).get(names.STATUS_PORT, proxy.port)
    cluster.put("pods", pod_json(**pod))
    async with unit(cluster):
        for seconds, container, state in steps:
            await asyncio.sleep(seconds)
            assert not proxy.requests
            cluster.set_state(NAMESPACE, "job-x", container, state)
        await until(lambda: event_reasons(cluster) == told, seconds=OLD_END_COUNTS_AFTER + 15)
        await asyncio.sleep(START_WITHIN + 10)

    is_over = phase(cluster) == "Succeeded"
    assert (proxy.requests if is_over else [*dict.fromkeys(proxy.requests)]) == asked
    assert event_reasons(cluster) == told
    assert [each["count"] for each in cluster.all("events")] == [1] * len(told)
    assert is_over is ("ProxyStopped" in told)


@cases(
    ("pod", "forbidden", "refusal", "reason", "words"),
    {"forbidden": "-", "refusal": "Forbidden"},
    without_envoy=row(
        pod=WITHOUT_ENVOY,
        reason="ProxyWithoutEnvoy",
        words="work finished, but only a signal ends the pilot-agent of template grpc-agent; run:"
        " kubectl -n kf exec job-x -c istio-proxy -- bash -c 'kill 1'",
    ),
    forbidden=row(
        pod=NO_PORT,
        forbidden="/exec",
        reason="ProxyStopFailed",
        words="Could not stop the Istio proxy (exec, forbidden); grant the application pods/exec"
        " here. Retrying.",
    ),
    both_forbidden=row(
        pod={},
        forbidden=("/portforward", "/exec"),
        reason="ProxyStopFailed",
        words="Could not stop the Istio proxy (port-forward, forbidden); grant the application"
        " pods/portforward, or pods/exec, here. Retrying.",
    ),
    refused_by_a_policy=row(
        pod={},
        forbidden=("/portforward", "/exec"),
        refusal='admission webhook "deny.k-rail.io" denied the request: no exec here',
        reason="ProxyStopFailed",
        words="Could not stop the Istio proxy (port-forward, refused);"
        ' webhook "deny.k-rail.io" refuses: no exec here. Retrying.',
    ),
    lost=row(
        pod={**BUSY, "proxy": ended()},
        reason="ProxyLost",
        words="The pod has no network through the mesh: the proxy ended with 0 and is not started"
        " again, while main is running.",
    ),
    misspelt=row(
        pod={**BUSY, "annotations": {names.WAIT_FOR_CONTAINERS: "mian,maim"}},
        reason="UnknownContainer",
        words="The pod's annotations name no container: mian, maim",
    ),
    misspelt_at_length=row(
        pod={**BUSY, "annotations": {names.WAIT_FOR_CONTAINERS: ",".join(TYPOS)}},
        reason="UnknownContainer",
        words=f"The pod's annotations name no container: {', '.join(TYPOS)}"[:1024],
    ),
    holding=row(
        pod={"others": AGENTS, "annotations": {names.IGNORE_CONTAINERS: ",".join(AGENTS)}},
        reason="ProxyStopped",
        words="Stopped the Istio proxy (port-forward): main ended with 0. The pod does not"
        " complete before agent, spare ends.",
    ),
)
async def test_event_names_the_next_command_or_the_container_that_holds_the_pod(
    cluster: FakeApiserver,
    *,
    pod: dict[str, Any],
    forbidden: str | tuple[str, ...],
    refusal: str,
    reason: str,
    words: str,
):
    def refuse(method: str, path: str) -> None:
        if path.endswith(forbidden):
            raise Refused(refusal)

    cluster.before_answer = refuse
    cluster.put("pods", pod_json(**pod))
    async with unit(cluster):
        await until(lambda: event_reasons(cluster) == [reason])

    assert cluster.all("events")[0]["message"] == words
    is_forwarded = reason == "ProxyStopped" or "/portforward" in forbidden
    assert ("portforward" in opened(cluster)) is is_forwarded


async def test_status_from_before_the_pod_is_not_believed_in_the_pods_next_life(
    cluster: FakeApiserver,
):
    cluster.put("pods", pod_json(BEFORE_ITS_POD))
    cluster.denied = lambda _, path: path.endswith(("/portforward", "/exec"))
    async with unit(cluster):
        # What counted in a life whose proxy could not be stopped counts in that one only.
        await until(lambda: "exec" in opened(cluster), seconds=OLD_END_COUNTS_AFTER + 15)
        cluster.put("pods", pod_json(running()))
        await asyncio.sleep(1)
        cluster.requests.clear()
        for part, state in ((0.6, BEFORE_ITS_POD), (0.01, running()), (0.6, BEFORE_ITS_POD)):
            cluster.put("pods", pod_json(state))
            await asyncio.sleep(OLD_END_COUNTS_AFTER * part)
        assert not opened(cluster)
        cluster.denied = lambda *_: False
        await until(lambda: phase(cluster) == "Succeeded", seconds=OLD_END_COUNTS_AFTER)


@cases(
    ("codes", "result", "way"),
    bad_request=([400], "refused", "exec"),
    unauthorized=([401], "forbidden", "exec"),
    forbidden=([403], "forbidden", "exec"),
    not_found=([404], "gone", "portforward"),
    too_many_requests=([429], "busy", "portforward"),
    too_many_requests_for_the_command=([403, 429], "busy", "exec"),
    last_of_the_client=([499], "refused", "exec"),
    first_of_the_server=([500], "unavailable", "portforward"),
)
async def test_next_try_goes_the_way_that_the_failure_of_this_one_suggests(
    cluster: FakeApiserver, codes: list[int], result: str, way: str
):
    # A date is the other form of this header, and is ignored.
    header = {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}
    ways = ["portforward", "exec"][: len(codes)]
    cluster.failures = [(f"/{each}", code, header) for each, code in zip(ways, codes, strict=True)]
    failed = ("stops_total", result, EXEC if "exec" in ways else FORWARD)
    async with unit(cluster) as service:
        before = await service.counted(*failed)
        cluster.put("pods", pod_json())
        await until(lambda: phase(cluster) == "Succeeded")
        assert await service.counted(*failed) == before + 1

    assert opened(cluster) == [*ways, way]


@cases(
    ("modes", "ways"),
    refuses=(("refused", "exit-1"), {EXEC}),
    runs_on_after_both_answers=(("deaf", "deaf"), {FORWARD, EXEC}),
    answers_500=(("500", "ok"), {FORWARD}),
)
async def test_failing_stop_is_never_given_up_and_said_once(
    cluster: FakeApiserver, modes: tuple[str, str], ways: set[str]
):
    proxy = cluster.proxies["job-x"]
    proxy.mode, proxy.exec_mode = modes
    cluster.put("pods", pod_json())
    async with unit(cluster):
        await until(lambda: cluster.all("events"))
        assert len(opened(cluster)) == 3
        await asyncio.sleep(1000)
        assert opened(cluster).count("portforward") > 4
        assert event_reasons(cluster) == ["ProxyStopFailed"]
        assert {*proxy.requests} == ways
        proxy.mode = proxy.exec_mode = "ok"
        await until(lambda: phase(cluster) == "Succeeded")


@cases(
    ("retry_after", "failures", "least", "most"),
    respected=("40", 1, 40, 60),
    shortens_no_back_off=("1", 5, 10, 120),
)
async def test_apiserver_that_asks_for_patience_gets_it(
    cluster: FakeApiserver, retry_after: str, failures: int, least: float, most: float
):
    cluster.failures = [("/portforward", 429, {"Retry-After": retry_after})] * failures
    cluster.put("pods", pod_json())
    async with unit(cluster) as service:
        before = await service.counted("stop_acknowledged_seconds_sum")
        await until(lambda: phase(cluster) == "Succeeded")
        await until(lambda: event_reasons(cluster))
        took = await service.counted("stop_acknowledged_seconds_sum") - before
    assert not cluster.failures
    # The sum is large by then, and a difference is not exact.
    assert least <= round(took, 3) < most


@cases(
    ("mode", "level", "result", "detail"),
    hangs=("hang", "warning", "timeout", "TimeoutError: "),
    refuses=("refused", "warning", "refused", "connect: connection refused"),
    no_http=("no-http", "warning", "refused", "the port does not speak HTTP: b'SSH-2.0-x'"),
    ends_after_its_connection=("cut", "info", "unanswered", "port-forward ended: lost (1011)"),
)
async def test_log_says_how_a_try_ended_and_how_long_it_took(
    cluster: FakeApiserver,
    capsys: pytest.CaptureFixture[str],
    *,
    mode: str,
    level: str,
    result: str,
    detail: str,
):
    cluster.proxies["job-x"].mode = mode
    cluster.put("pods", pod_json())
    async with unit(cluster):
        await asyncio.sleep(30)

    lines = map(json.loads, capsys.readouterr().err.splitlines())
    found = next(one for one in lines if one["message"] == "stop attempted")
    assert (found["pod"], found["level"]) == ("kf/job-x", level)
    how = (found["transport"], found["result"], found["detail"])
    assert how == (FORWARD, result, detail)
    assert found["milliseconds"] < 60_000


async def test_two_reasons_about_a_pod_are_each_told_once(cluster: FakeApiserver):
    lost = {"proxy": ended(), **MISSPELT}
    cluster.put("pods", pod_json(running(), **lost))
    async with unit(cluster) as service:
        before = await service.counted("proxies_lost_total")
        await until(lambda: event_reasons(cluster) == ["ProxyLost", "UnknownContainer"])
        written = cluster.requests.count(("POST", f"/api/v1/namespaces/{NAMESPACE}/events"))
        for number in range(3):
            cluster.put("pods", pod_json(running(), **lost, labels={"a": f"{number}"}))
            await asyncio.sleep(30)
        assert await service.counted("proxies_lost_total") == before + 1
    assert cluster.requests.count(("POST", f"/api/v1/namespaces/{NAMESPACE}/events")) == written


# Places.


def hung(cluster: FakeApiserver, number: int, node: str = "node-1") -> None:
    """Have a pod whose proxy takes no stop, either way, and answers nothing."""
    name = f"hung-{number}"
    cluster.proxies[name].mode = cluster.proxies[name].exec_mode = "hang"
    cluster.put("pods", pod_json(name=name, uid=name, node=node))


CROWD = 20
"""Pods on one node: more than it has places, and more than there are places for retries."""


@cases(
    ("count", "node", "ahead", "mode", "within"),
    after_hung_proxies_have_failed_once=(4, "node-1", 60, "ok", 1),
    beside_hung_proxies_that_ask_first=(4, "node-1", 0, "ok", 2),
    beside_a_node_that_is_away=(CROWD, "away", 60, "refused", 5),
)
async def test_hung_proxies_delay_no_other_pod(
    cluster: FakeApiserver, *, count: int, node: str, ahead: float, mode: str, within: float
):
    for number in range(count):
        hung(cluster, number, node)
    cluster.proxies["job-x"].mode = mode
    loop = asyncio.get_running_loop()
    async with unit(cluster):
        await asyncio.sleep(ahead)
        began = loop.time()
        cluster.put("pods", pod_json())
        await until(lambda: phase(cluster) == "Succeeded")
        assert loop.time() - began < within


async def test_stops_at_once_are_few_per_node_and_limited_in_total(cluster: FakeApiserver):
    for number in range(100):
        hung(cluster, number, f"node-{number % 20}")
    async with unit(cluster):
        await until(lambda: len(cluster.streams) >= 64)
        # Turns of the loop, not seconds: on a busy machine the first stops would have timed out.
        for _ in range(500):
            await asyncio.sleep(0)
        assert len(cluster.streams) == 64


async def test_connection_that_is_slow_to_end_holds_no_place(cluster: FakeApiserver):
    for number in range(CROWD):
        cluster.proxies[f"job-{number}"].mode = "lingers"
        cluster.put("pods", pod_json(name=f"job-{number}", uid=f"uid-{number}"))
    loop = asyncio.get_running_loop()
    async with unit(cluster):
        began = loop.time()
        await until(lambda: all(p["status"]["phase"] == "Succeeded" for p in cluster.all("pods")))
        # Four places that are each held for a second would take four.
        assert loop.time() - began < 3


@pytest.mark.parametrize("comes_back", [True, False], ids=["ends-again", "runs-on"])
async def test_payload_that_runs_again_before_its_turn_gives_its_turn_back(
    cluster: FakeApiserver, comes_back: bool
):
    for number in range(CROWD):
        hung(cluster, number)
    async with unit(cluster) as service:
        await until(lambda: any(proxy.requests for proxy in cluster.proxies.values()))
        await asyncio.sleep(0.2)
        assert len(cluster.streams) == 4, "a node has four places"
        kept = await service.counted("pods", "wait", "PayloadRunning")
        cluster.put("pods", pod_json(policy="OnFailure"))
        await asyncio.sleep(0.01)
        cluster.set_state(NAMESPACE, "job-x", "main", running())
        await until(lambda: service.shows(kept + 1, "pods", "wait", "PayloadRunning"))
        assert not opened(cluster), "its place came too early for this test"
        if comes_back:
            cluster.set_state(NAMESPACE, "job-x", "main", ended())
            await until(lambda: phase(cluster) == "Succeeded")
        await asyncio.sleep(60)

    assert len(opened(cluster)) == comes_back


@pytest.mark.parametrize("seed", range(8))
async def test_crowd_of_pods_comes_to_its_end_in_any_order_of_events(
    cluster: FakeApiserver, seed: int
):
    """Payloads end and run again, pods are replaced, proxies answer or do not, nodes are full."""
    chance = random.Random(seed)
    pods = [f"{node}-{number}" for node in "ab" for number in range(8)]
    lives = dict.fromkeys(pods, 0)
    wrong: list[str] = []

    def look(name: str) -> None:
        if "running" in cluster.state(name):
            wrong.append(name)

    def put(name: str, state: dict[str, Any]) -> None:
        uid = f"{name}-{lives[name]}"
        cluster.put("pods", pod_json(state, name=name, uid=uid, node=name[0], policy="OnFailure"))

    def is_over(name: str) -> bool:
        return phase(cluster, name) == "Succeeded"

    async with unit(cluster) as service:
        for name in pods:
            cluster.proxies[name].on_asked = functools.partial(look, name)
            put(name, running())
        for _ in range(35):
            name = chance.choice(pods)
            proxy = cluster.proxies[name]
            match chance.randrange(5):
                case 0:
                    proxy.mode = chance.choice(["ok", "hang", "500", "cut", "refused", "deaf"])
                    proxy.exec_mode = chance.choice(["ok", "hang", "exit-1"])
                case 1 if not is_over(name):
                    put(name, running())
                case 2 | 3 if not is_over(name):
                    put(name, ended())
                case _:
                    cluster.delete("pods", NAMESPACE, name)
                    lives[name] += 1
                    put(name, chance.choice([running(), ended()]))
            await asyncio.sleep(chance.choice([0.01, 0.6, 5.1, 31]))
        for proxy in cluster.proxies.values():
            proxy.mode = proxy.exec_mode = "ok"
        busy = {name for name in pods if "running" in cluster.state(name)}
        await until(lambda: all(is_over(name) for name in pods if name not in busy))
        assert not any(is_over(name) for name in busy)
        await until(lambda: not cluster.streams)
        assert await service.shows(0, "stops_pending")
    assert wrong == []

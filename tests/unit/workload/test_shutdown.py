"""The reconciler against an apiserver with real frames; time is virtual."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sidecar_lifecycle import metrics
from sidecar_lifecycle import settings as options
from sidecar_lifecycle.kube import events, lease
from sidecar_lifecycle.rules import finished
from sidecar_lifecycle.shutdown import controller as shutdown
from sidecar_lifecycle.shutdown import slots

from tests.unit.workload import pods
from tests.unit.workload.fake_apiserver import FakeApiserver, running_task, until

VIRTUAL_TIME = True
NAMESPACE = "kubeflow"


class AlwaysLeader:
    """Stands for a Leadership that has won."""

    is_elected = True
    reachable = True

    def __init__(self) -> None:
        self.elected = asyncio.Event()
        self.elected.set()
        self.deposed = asyncio.Event()

    async def wait_elected(self) -> None:
        await self.elected.wait()

    async def wait_deposed(self) -> None:
        await self.deposed.wait()


@contextlib.asynccontextmanager
async def reconciler(
    cluster: FakeApiserver,
    *,
    leadership: Any = None,
    limits: slots.Limits | None = None,
    **extra: Any,
) -> AsyncIterator[shutdown.Controller]:
    loop = asyncio.get_running_loop()
    settings = options.Settings(
        model=NAMESPACE, application="istio-integrator", unit="istio-integrator/0", **extra
    )
    controller = shutdown.Controller(
        cluster.client,
        settings,
        leadership or AlwaysLeader(),
        events.Recorder(cluster.client, clock=loop.time),
        limits=limits,
    )
    async with running_task(controller.run()):
        yield controller


@pytest.fixture
async def cluster() -> AsyncIterator[FakeApiserver]:
    fake = FakeApiserver()
    async with fake:
        fake.namespace(NAMESPACE)
        yield fake


def phase(cluster: FakeApiserver, name: str = "job-x") -> str:
    return cluster.get("pods", NAMESPACE, name)["status"]["phase"]


def event_reasons(cluster: FakeApiserver) -> list[str]:
    return sorted(each["reason"] for each in cluster.all("events"))


def finished_pod(**extra: Any) -> dict[str, Any]:
    return pods.pod_json(**extra)


async def test_pod_that_finishes_under_watch_completes(cluster: FakeApiserver):
    cluster.put("pods", finished_pod(main=pods.running()))
    async with reconciler(cluster) as controller:
        await until(lambda: len(controller.view) == 1)
        assert cluster.proxies["job-x"].requests == []
        cluster.set_state(NAMESPACE, "job-x", "main", pods.ended())
        await until(lambda: phase(cluster) == "Succeeded")
        await until(lambda: event_reasons(cluster) == ["ProxyStopped"])

    assert cluster.proxies["job-x"].requests == ["port-forward"]


async def test_pod_that_finished_while_nobody_watched_completes(cluster: FakeApiserver):
    cluster.put("pods", finished_pod())
    async with reconciler(cluster):
        await until(lambda: phase(cluster) == "Succeeded")


async def test_proxy_that_ends_without_an_answer_counts_as_stopped(cluster: FakeApiserver):
    cluster.proxies["job-x"].mode = "mute"
    cluster.put("pods", finished_pod())
    async with reconciler(cluster):
        await until(lambda: event_reasons(cluster) == ["ProxyStopped"])

    assert phase(cluster) == "Succeeded"


async def test_onfailure_payload_that_comes_back_keeps_its_proxy(cluster: FakeApiserver):
    cluster.put("pods", finished_pod(main=pods.running(), policy="OnFailure"))
    async with reconciler(cluster) as controller:
        await until(lambda: len(controller.view) == 1)
        for state in (pods.ended(1), pods.waiting(), pods.running(), pods.ended(1)):
            cluster.set_state(NAMESPACE, "job-x", "main", state)
            await asyncio.sleep(30)
        assert cluster.proxies["job-x"].requests == []
        cluster.set_state(NAMESPACE, "job-x", "main", pods.ended(0))
        await until(lambda: phase(cluster) == "Succeeded")


@pytest.mark.parametrize("mode", ["refused", "403", "no-http", "hang", "vanish", "deaf"])
async def test_exec_is_used_where_the_port_forward_fails(cluster: FakeApiserver, mode: str):
    cluster.proxies["job-x"].mode = mode
    cluster.put("pods", finished_pod())
    async with reconciler(cluster):
        await until(lambda: phase(cluster) == "Succeeded")

    assert cluster.proxies["job-x"].requests[-1] == "exec"


async def test_proxy_that_answers_500_is_asked_again_the_same_way(cluster: FakeApiserver):
    cluster.proxies["job-x"].mode = "500"
    cluster.put("pods", finished_pod())
    async with reconciler(cluster):
        await until(lambda: len(cluster.proxies["job-x"].requests) == 3)
        cluster.proxies["job-x"].mode = "ok"
        await until(lambda: phase(cluster) == "Succeeded")

    assert set(cluster.proxies["job-x"].requests) == {"port-forward"}


async def test_failing_stop_is_never_given_up_and_said_once(cluster: FakeApiserver):
    proxy = cluster.proxies["job-x"]
    proxy.mode, proxy.exec_mode = "refused", "exit-1"
    cluster.put("pods", finished_pod())
    async with reconciler(cluster):
        await asyncio.sleep(3600)
        tries = len([path for _, path in cluster.requests if path.endswith("/portforward")])
        assert tries > 20
        assert event_reasons(cluster) == ["ProxyStopFailed"]
        proxy.exec_mode = "ok"
        await until(lambda: phase(cluster) == "Succeeded")


async def test_forbidden_port_forward_is_remembered_for_other_pods(cluster: FakeApiserver):
    cluster.denied = lambda method, path: path.endswith("/portforward")
    cluster.put("pods", finished_pod())
    async with reconciler(cluster):
        await until(lambda: phase(cluster) == "Succeeded")
        cluster.put("pods", finished_pod(name="job-y", uid="uid-y"))
        await until(lambda: phase(cluster, "job-y") == "Succeeded")

    asked = [path for _, path in cluster.requests if path.endswith("/portforward")]
    assert len(asked) == 1


async def test_pod_recreated_under_the_same_name_before_sending_is_left_alone(
    cluster: FakeApiserver,
):
    cluster.put("pods", finished_pod())

    def recreate(method: str, path: str) -> None:
        if path.endswith("/portforward"):
            cluster.before_answer = lambda method, path: None
            cluster.delete("pods", NAMESPACE, "job-x")
            cluster.put("pods", finished_pod(main=pods.running(), uid="uid-2"))

    cluster.before_answer = recreate
    async with reconciler(cluster):
        await until(
            lambda: ("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/job-x") in cluster.requests
        )
        await asyncio.sleep(60)

    assert cluster.proxies["job-x"].requests == []


async def test_proxy_started_anew_before_sending_is_judged_anew(cluster: FakeApiserver):
    cluster.put("pods", finished_pod(policy="OnFailure"))

    def restart(method: str, path: str) -> None:
        if path.endswith("/portforward"):
            cluster.before_answer = lambda method, path: None
            pod = finished_pod(policy="OnFailure")
            pod["status"]["containerStatuses"][1]["containerID"] = "containerd://proxy-1"
            cluster.put("pods", pod)

    cluster.before_answer = restart
    async with reconciler(cluster):
        await until(lambda: phase(cluster) == "Succeeded")

    assert cluster.proxies["job-x"].requests == ["port-forward"]


async def test_hung_proxy_delays_no_other_pod_of_its_node(cluster: FakeApiserver):
    for number in range(4):
        proxy = cluster.proxies[f"hung-{number}"]
        proxy.mode = proxy.exec_mode = "hang"
        cluster.put("pods", finished_pod(name=f"hung-{number}", uid=f"hung-{number}"))
    loop = asyncio.get_running_loop()
    async with reconciler(cluster):
        await asyncio.sleep(60)
        began = loop.time()
        cluster.put("pods", finished_pod())
        await until(lambda: phase(cluster) == "Succeeded")
        assert loop.time() - began < 1


async def test_hung_proxies_that_ask_first_hold_the_places_of_their_node_for_a_moment(
    cluster: FakeApiserver,
):
    limits = slots.Limits()
    for number in range(limits.per_node):
        cluster.proxies[f"hung-{number}"].mode = "hang"
        cluster.put("pods", finished_pod(name=f"hung-{number}", uid=f"hung-{number}"))
    cluster.put("pods", finished_pod())
    loop = asyncio.get_running_loop()
    async with reconciler(cluster):
        began = loop.time()
        await until(lambda: phase(cluster) == "Succeeded")
        assert loop.time() - began < 2


async def test_connection_that_is_slow_to_end_holds_no_place(cluster: FakeApiserver):
    for number in range(5):
        cluster.proxies[f"job-{number}"].mode = "lingers"
        cluster.put("pods", finished_pod(name=f"job-{number}", uid=f"uid-{number}"))
    loop = asyncio.get_running_loop()
    async with reconciler(cluster, limits=slots.Limits(per_node=1)):
        began = loop.time()
        await until(lambda: all(p["status"]["phase"] == "Succeeded" for p in cluster.all("pods")))
        assert loop.time() - began < 1


async def test_few_stops_are_in_flight_per_node(cluster: FakeApiserver):
    for number in range(20):
        cluster.put("pods", finished_pod(name=f"job-{number}", uid=f"uid-{number}"))
    async with reconciler(cluster, limits=slots.Limits(per_node=3)):
        await until(lambda: all(p["status"]["phase"] == "Succeeded" for p in cluster.all("pods")))

    assert cluster.most_in_flight <= 3


async def test_retry_after_is_respected(cluster: FakeApiserver):
    cluster.failures = [("/portforward", 429, {"Retry-After": "40"})]
    cluster.put("pods", finished_pod())
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with reconciler(cluster):
        await until(lambda: phase(cluster) == "Succeeded")
    assert 40 <= loop.time() - began < 60


async def test_stop_is_cancelled_when_the_pod_goes(cluster: FakeApiserver):
    proxy = cluster.proxies["job-x"]
    proxy.mode = "hang"
    cluster.put("pods", finished_pod())
    async with reconciler(cluster) as controller:
        await until(lambda: proxy.requests)
        cluster.delete("pods", NAMESPACE, "job-x")
        await until(lambda: metrics.IN_FLIGHT._value.get() == 0, seconds=2)
        assert len(controller.view) == 0


async def test_proxy_lost_is_said_after_it_has_stayed_lost(cluster: FakeApiserver):
    cluster.put("pods", finished_pod(main=pods.running()))
    async with reconciler(cluster) as controller:
        await until(lambda: len(controller.view) == 1)
        cluster.set_state(NAMESPACE, "job-x", "istio-proxy", pods.ended())
        await asyncio.sleep(5)
        assert event_reasons(cluster) == []
        await until(lambda: event_reasons(cluster) == ["ProxyLost"])
        assert phase(cluster) == "Running"


async def test_kubelet_that_ends_a_pod_proxy_first_is_no_lost_proxy(cluster: FakeApiserver):
    cluster.put("pods", finished_pod(main=pods.running()))
    async with reconciler(cluster) as controller:
        await until(lambda: len(controller.view) == 1)
        cluster.set_state(NAMESPACE, "job-x", "istio-proxy", pods.ended())
        await asyncio.sleep(5)
        cluster.set_state(NAMESPACE, "job-x", "main", pods.ended(143))
        await asyncio.sleep(60)
        assert event_reasons(cluster) == []


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
    async with reconciler(cluster, replace_broken_pods=True):
        await until(lambda: event_reasons(cluster) == ["ProxyLost"])
        await asyncio.sleep(5)
        assert (cluster.all("pods") == []) is replaced


async def test_broken_pod_that_may_not_be_deleted_says_so(cluster: FakeApiserver):
    owners = [{"kind": "Job", "name": "j", "uid": "u", "controller": True}]
    cluster.denied = lambda method, path: method == "DELETE"
    cluster.put(
        "pods", finished_pod(main=pods.running(), proxy=pods.ended(), ownerReferences=owners)
    )
    async with reconciler(cluster, replace_broken_pods=True):
        await until(lambda: event_reasons(cluster) == ["PodNotReplaced", "ProxyLost"])


async def test_container_that_an_annotation_names_and_the_pod_lacks_is_said_once(
    cluster: FakeApiserver,
):
    annotations = {"istio-integrator.charmhub.io/wait-for-containers": "mian"}
    cluster.put("pods", finished_pod(main=pods.running(), annotations=annotations))
    async with reconciler(cluster) as controller:
        await until(lambda: len(controller.view) == 1)
        cluster.set_state(NAMESPACE, "job-x", "main", pods.ended())
        await until(lambda: event_reasons(cluster) == ["ProxyStopped", "UnknownContainer"])


async def test_option_that_names_no_container_of_a_pod_is_logged_once(
    cluster: FakeApiserver, capsys: pytest.CaptureFixture[str]
):
    for number in range(3):
        cluster.put("pods", finished_pod(name=f"job-{number}", uid=f"uid-{number}"))
    async with reconciler(cluster, wait_for_containers=("mian",)):
        await until(lambda: all(p["status"]["phase"] == "Succeeded" for p in cluster.all("pods")))

    assert capsys.readouterr().out.count("that an option names") == 1


async def test_container_that_holds_the_pod_is_named(cluster: FakeApiserver):
    annotations = {"istio-integrator.charmhub.io/ignore-containers": "agent"}
    cluster.put("pods", finished_pod(others={"agent": pods.running()}, annotations=annotations))
    async with reconciler(cluster):
        await until(lambda: event_reasons(cluster) == ["ProxyStopped"])

    assert "agent" in cluster.all("events")[0]["message"]


@pytest.mark.parametrize("how", ["ended", "410", "unstreamed"])
async def test_watch_interruptions_lose_nothing(cluster: FakeApiserver, how: str):
    cluster.streaming_lists = how != "unstreamed"
    cluster.put("pods", finished_pod(main=pods.running()))
    cluster.put("pods", finished_pod(name="goes", uid="uid-goes", main=pods.running()))
    relists = metrics.RELISTS._value.get()
    async with reconciler(cluster) as controller:
        await until(lambda: len(controller.view) == 2)
        cluster.end_watches()
        cluster.set_state(NAMESPACE, "job-x", "main", pods.ended())
        cluster.delete("pods", NAMESPACE, "goes")
        if how != "ended":
            cluster.compact()
        await until(lambda: phase(cluster) == "Succeeded")
        await until(lambda: len(controller.view) == 0)
    assert metrics.RELISTS._value.get() - relists == (how != "ended")


@pytest.mark.parametrize(
    ("metadata", "want"),
    [
        pytest.param({}, "Running", id="other"),
        pytest.param(
            {"labels": {"app.kubernetes.io/part-of": "kubeflow-profile"}},
            "Succeeded",
            id="profile",
        ),
        pytest.param(
            {"labels": {"istio-integrator.charmhub.io/lifecycle": "enabled"}},
            "Succeeded",
            id="labelled",
        ),
        pytest.param(
            {
                "labels": {
                    "app.kubernetes.io/part-of": "kubeflow-profile",
                    "istio-integrator.charmhub.io/lifecycle": "disabled",
                }
            },
            "Running",
            id="profile-disabled",
        ),
        pytest.param(
            {
                "labels": {
                    "controller.juju.is/id": "x",
                    "istio-integrator.charmhub.io/lifecycle": "enabled",
                }
            },
            "Running",
            id="controller-model",
        ),
        pytest.param(
            {
                "labels": {"istio-integrator.charmhub.io/lifecycle": "enabled"},
                "annotations": {"istio-integrator.charmhub.io/proxy-shutdown": "disabled"},
            },
            "Running",
            id="shutdown-disabled",
        ),
    ],
)
@pytest.mark.parametrize("wide", [True, False], ids=["cluster-wide", "per-namespace"])
async def test_namespaces_in_scope(
    cluster: FakeApiserver, metadata: dict[str, Any], want: str, wide: bool
):
    if not wide:
        cluster.denied = lambda method, path: path == "/api/v1/pods"
    cluster.namespace("team", **metadata)
    cluster.put("pods", finished_pod(namespace="team"))
    async with reconciler(cluster) as controller:
        await until(lambda: controller.pods.live)
        await asyncio.sleep(30)

    assert cluster.get("pods", "team", "job-x")["status"]["phase"] == want


async def test_namespace_labelled_later_is_served_from_then_on(cluster: FakeApiserver):
    cluster.namespace("team")
    cluster.put("pods", finished_pod(namespace="team"))
    async with reconciler(cluster) as controller:
        await until(lambda: controller.pods.live)
        await asyncio.sleep(30)
        assert cluster.get("pods", "team", "job-x")["status"]["phase"] == "Running"
        cluster.namespace("team", labels={"istio-integrator.charmhub.io/lifecycle": "enabled"})
        await until(lambda: cluster.get("pods", "team", "job-x")["status"]["phase"] == "Succeeded")


async def test_model_is_served_where_namespaces_may_not_be_listed(cluster: FakeApiserver):
    cluster.denied = lambda method, path: path in ("/api/v1/pods", "/api/v1/namespaces")
    cluster.put("pods", finished_pod())
    async with reconciler(cluster):
        await until(lambda: phase(cluster) == "Succeeded")


async def test_switched_off_stops_nothing(cluster: FakeApiserver):
    cluster.put("pods", finished_pod())
    async with reconciler(cluster, proxy_shutdown=False) as controller:
        await until(lambda: len(controller.view) == 1)
        await asyncio.sleep(60)

    assert cluster.proxies["job-x"].requests == []


async def test_stand_by_takes_over_when_the_leader_is_killed(cluster: FakeApiserver):
    loop = asyncio.get_running_loop()

    def member(name: str) -> lease.Leadership:
        return lease.Leadership(
            cluster.client, namespace=NAMESPACE, name="x", identity=name, clock=loop.time
        )

    first, second = member("first"), member("second")
    async with running_task(second.run()), reconciler(cluster, leadership=second):
        killed = asyncio.create_task(first.run())
        await until(lambda: first.is_leader or second.is_leader)
        leader = second if second.is_leader else first
        if leader is first:
            # As SIGKILL leaves it: no release.
            first._release = lambda: asyncio.sleep(0)  # type: ignore[method-assign]
            killed.cancel()
        cluster.put("pods", finished_pod())
        await until(lambda: phase(cluster) == "Succeeded", seconds=20)
        killed.cancel()
        await asyncio.gather(killed, return_exceptions=True)


async def test_pod_that_finishes_while_the_renewal_is_late_completes(cluster: FakeApiserver):
    starved, late = False, 0.0
    loop = asyncio.get_running_loop()

    def clock() -> float:
        nonlocal late
        late += lease.Timing().deadline if starved else 0.0
        return loop.time() + late

    leadership = lease.Leadership(
        cluster.client, namespace=NAMESPACE, name="x", identity="first", clock=clock
    )
    cluster.put("pods", finished_pod(main=pods.running()))
    async with (
        running_task(leadership.run()),
        reconciler(cluster, leadership=leadership) as controller,
    ):
        await leadership.wait_elected()
        await until(lambda: len(controller.view) == 1)
        (tracked,) = controller.view
        starved = True
        cluster.set_state(NAMESPACE, "job-x", "main", pods.ended())
        await until(lambda: tracked.decision.action is finished.Action.STOP)
        assert not leadership.is_leader
        starved = False
        await until(lambda: phase(cluster) == "Succeeded")


async def test_two_leaders_at_once_do_no_harm(cluster: FakeApiserver):
    for number in range(20):
        busy = finished_pod(name=f"job-{number}", uid=f"uid-{number}", main=pods.running())
        cluster.put("pods", busy)
    async with reconciler(cluster) as first, reconciler(cluster) as second:
        await until(lambda: len(first.view) == len(second.view) == 20)
        for number in range(20):
            assert cluster.proxies[f"job-{number}"].requests == []
            cluster.set_state(NAMESPACE, f"job-{number}", "main", pods.ended())
        await until(lambda: all(p["status"]["phase"] == "Succeeded" for p in cluster.all("pods")))
        await until(lambda: len(cluster.all("events")) == 20)
        await asyncio.sleep(60)

    assert set(event_reasons(cluster)) == {"ProxyStopped"}
    assert len(cluster.all("events")) == 20


async def test_stop_under_way_finishes_when_asked_to_end(cluster: FakeApiserver):
    proxy = cluster.proxies["job-x"]
    proxy.mode = "hang"
    cluster.put("pods", finished_pod())
    async with reconciler(cluster):
        await until(lambda: proxy.requests)
        asyncio.get_running_loop().call_later(1, proxy.release.set)

    assert phase(cluster) == "Succeeded"


async def test_asked_to_end_it_ends_before_pebble_kills_it(cluster: FakeApiserver):
    proxy = cluster.proxies["job-x"]
    proxy.mode = "hang"
    cluster.put("pods", finished_pod())
    loop = asyncio.get_running_loop()
    async with reconciler(cluster):
        await until(lambda: proxy.requests)
        asked = loop.time()

    assert loop.time() - asked < 4

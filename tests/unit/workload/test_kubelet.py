"""The stand-in's phases: rows of Kubernetes' own tests, and a pod from a public bug report.

TestPodPhaseWithRestartAlways, …Never, …OnFailure and their variants with init containers in
k8s.io/kubernetes v1.36.3, pkg/kubelet/kubelet_pods_test.go.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.workload import kubelet, pods
from tests.unit.workload.fake_apiserver import FakeApiserver
from tests.unit.workload.pods import ended, running, waiting

CRASHED = pods.status("main", waiting(), lastState=ended(1))
NATIVE = pods.container("istio-proxy", restartPolicy="Always")
INIT = pods.container("setup")


def pod(*states: dict[str, Any] | None, policy: str = "Always", **extra: Any) -> dict[str, Any]:
    """Return a pod of two containers in these states; without a state there is no status."""
    main, proxy = [*states, None, None][:2]
    made = pods.pod_json(running(), proxy=running(), policy=policy, **extra)
    statuses = [("main", main), (pods.PROXY, proxy)]
    made["status"]["containerStatuses"] = [pods.status(n, s) for n, s in statuses if s is not None]
    return made


def with_init(
    state: dict[str, Any] | None,
    *states: dict[str, Any] | None,
    container: Any = INIT,
    **extra: Any,
) -> dict[str, Any]:
    """Return the same with an init container in a state."""
    init = [] if state is None else [pods.status(container["name"], state, started=True)]
    made = pod(*states, init=[container], init_statuses=init, **extra)
    if container is NATIVE:
        made["spec"]["containers"].pop()
    return made


@pytest.mark.parametrize(
    ("subject", "want"),
    [
        pytest.param(pod(), "Pending", id="waiting for everything"),
        pytest.param(pod(running(), running()), "Running", id="all running"),
        pytest.param(pod(running(), None), "Pending", id="one without a status"),
        pytest.param(pod(running(), waiting()), "Pending", id="one never started"),
        pytest.param(pod(running(), ended(1), policy="Never"), "Running", id="one stopped"),
        pytest.param(pod(ended(1), ended(1)), "Running", id="all stopped with Always"),
        pytest.param(pod(ended(), ended(), policy="OnFailure"), "Succeeded", id="all succeeded"),
        pytest.param(pod(ended(), ended(1), policy="Never"), "Failed", id="one failed with Never"),
        pytest.param(pod(ended(), ended(1), policy="OnFailure"), "Running", id="with OnFailure"),
        pytest.param(
            pod(ended(), waiting("ImagePullBackOff"), policy="Never"),
            "Pending",
            id="work done beside a proxy whose image is not pulled (istio#46307)",
        ),
        pytest.param(with_init(None, policy="Never"), "Pending", id="init not started"),
        pytest.param(with_init(running()), "Pending", id="init running"),
        pytest.param(with_init(ended(1), policy="Never"), "Failed", id="init failed with Never"),
        pytest.param(with_init(ended(1)), "Pending", id="init failed with Always"),
        pytest.param(with_init(ended(), running(), running()), "Running", id="init done"),
        pytest.param(
            with_init(running(), ended(), container=NATIVE, policy="Never"),
            "Running",
            id="native sidecar runs",
        ),
        pytest.param(
            with_init(ended(137), ended(), container=NATIVE, policy="Never"),
            "Succeeded",
            id="native sidecar stopped last",
        ),
    ],
)
def test_phase_follows_from_the_containers(subject: dict[str, Any], want: str):
    assert kubelet.phase(subject) == want


@pytest.mark.parametrize(("policy", "want"), [("OnFailure", "Running"), ("Never", "Failed")])
def test_container_that_waits_for_its_next_start_counts_as_stopped(policy: str, want: str):
    subject = pod(running(), ended(), policy=policy)
    subject["status"]["containerStatuses"][0] = CRASHED
    assert kubelet.phase(subject) == want


async def test_pod_does_not_leave_its_last_phase():
    fake = FakeApiserver()
    fake.put("pods", pod(ended(), ended(), policy="Never"))
    fake.set_state("kubeflow", "job-x", "main", running())
    assert fake.get("pods", "kubeflow", "job-x")["status"]["phase"] == "Succeeded"

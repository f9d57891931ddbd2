"""What the rules would stop, or report, is under watch: the selection leaves none of it out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sidecar_lifecycle.decide import finished
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell.shutdown import sources

from integrator_contract.answers import Action
from tests.unit.workload import fake_apiserver, pods
from tests.unit.workload.fake_apiserver import FakeApiserver, until
from tests.unit.workload.shutdown_world import (
    NAMESPACE,
    finished_pod,
    phase,
    reconciler,
)

VIRTUAL_TIME = True
POLICIES = st.sampled_from(["Always", "OnFailure", "Never"])
STATES = st.one_of(st.sampled_from([pods.running(), pods.waiting(), {}]), st.just(pods.ended()))
LABELS = [{}, {"security.istio.io/tlsMode": "istio"}, {"service.istio.io/canonical-name": "x"}]


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Return a pod as the server has it: what rules and selection look at, in any combination."""
    per_container = st.just({}) | POLICIES.map(lambda policy: {"restartPolicy": policy})
    pod = pods.pod_json(
        draw(STATES),
        proxy=draw(STATES),
        policy=draw(POLICIES),
        phase=draw(st.sampled_from(["Running", "Running", "Pending", "Succeeded"])),
        main_spec=draw(per_container),
        proxy_spec=draw(per_container),
        init=draw(st.sampled_from([[], [], [pods.container("istio-proxy")]])),
        labels=draw(st.sampled_from(LABELS)),
    )
    if draw(st.sampled_from([False, False, True])):
        del pod["spec"]["containers"][1]
    return pod


def is_selected(document: dict[str, Any]) -> bool:
    pod = msgspec.convert(document, types.Pod)
    fields = filter(None, sources.FIELDS.split(","))
    return finished.concerns(pod) and all(fake_apiserver._field(part, document) for part in fields)


@settings(max_examples=400, deadline=None)
@given(documents())
def test_whatever_is_stopped_or_reported_is_selected(document: dict[str, Any]):
    decision = finished.finished(msgspec.convert(document, types.Pod), finished.Policy())
    if decision.action in (Action.STOP, Action.REPORT):
        assert is_selected(document)


@settings(max_examples=400, deadline=None)
@given(documents())
def test_what_is_not_selected_stays_ignored_whatever_becomes_of_it(document: dict[str, Any]):
    pod = msgspec.convert(document, types.Pod)
    if not finished.concerns(pod):
        assert finished.finished(pod, finished.Policy()).action is Action.IGNORE


NEVER = {"restartPolicy": "Never"}
UNUSUAL = [
    pytest.param({"labels": {}}, id="no-label-as-kube-inject-leaves-a-cronjob"),
    pytest.param(
        {"policy": "Always", "main_spec": NEVER, "proxy_spec": NEVER},
        id="always-but-each-container-never",
    ),
]


@pytest.mark.parametrize("pod", UNUSUAL)
async def test_pod_that_is_injected_in_an_unusual_way_comes_to_its_end(
    cluster: FakeApiserver, pod: dict[str, Any]
):
    cluster.put("pods", finished_pod(**pod))
    async with reconciler(cluster):
        await until(lambda: phase(cluster) == "Succeeded")


async def test_pods_without_a_sidecar_are_not_kept(cluster: FakeApiserver):
    web = finished_pod(name="web", uid="web", policy="Always", labels={})
    del web["spec"]["containers"][1]
    cluster.put("pods", web)
    cluster.put("pods", finished_pod(main=pods.running()))
    async with reconciler(cluster) as controller:
        await until(lambda: controller.pods.live)
        web["metadata"]["labels"] = {"app": "web"}
        cluster.put("pods", web)
        cluster.set_state(NAMESPACE, "job-x", "main", pods.ended())
        await until(lambda: phase(cluster) == "Succeeded")

        assert controller.view.get("web") is None


async def test_pods_without_a_node_are_not_kept(cluster: FakeApiserver):
    queued = finished_pod(name="queued", uid="queued", phase="Pending", main=pods.waiting())
    del queued["spec"]["nodeName"]
    cluster.put("pods", queued)
    async with reconciler(cluster) as controller:
        await until(lambda: controller.pods.live)
        assert len(controller.view) == 0

        queued["spec"]["nodeName"] = "node-1"
        cluster.put("pods", queued)
        await until(lambda: controller.view.get("queued") is not None)


async def test_pod_with_the_name_of_one_that_had_a_sidecar_has_it_forgotten(
    cluster: FakeApiserver,
):
    cluster.put("pods", finished_pod(main=pods.running()))
    async with reconciler(cluster) as controller:
        await until(lambda: controller.view.get("uid-1") is not None)
        # While nobody watches, another pod takes the name.
        cluster.end_watches()
        web = finished_pod(uid="uid-2", main=pods.running(), labels={})
        del web["spec"]["containers"][1]
        cluster.put("pods", web)
        cluster.compact()
        await until(lambda: len(controller.view) == 0)

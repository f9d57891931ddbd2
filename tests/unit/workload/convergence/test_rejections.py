"""Which changes of admission and which workloads the service finds rejected, and whom it tells."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sidecar_lifecycle.shell.convergence import rejections
from sidecar_lifecycle.shell.settings import Live

from integrator_contract import names
from integrator_contract.pods import Settings as Wanted
from tests.unit.workload.convergence import test_trials as trials_world
from tests.unit.workload.convergence.test_trials import MODEL, SETTINGS, Apiserver, forbidding
from tests.unit.workload.fake_apiserver import running_task, until

VIRTUAL_TIME = True
CONFIG_MAP = "istio-integrator-convergence"

cluster = trials_world.cluster


def want(cluster: Apiserver, **values: Any) -> None:
    """Write the webhook's settings as the charm does."""
    wanted = Wanted(application="istio-integrator", model=MODEL, **values)
    metadata = {"name": "istio-integrator-admission", "namespace": MODEL}
    text = json.dumps(wanted.document())
    cluster.put("configmaps", {"metadata": metadata, "data": {"settings.json": text}})


def workload(cluster: Apiserver, kind: str, name: str, present: int, **metadata: Any) -> None:
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "shop"}]},
    }
    meta = {"name": name, "namespace": MODEL, "uid": f"uid-of-{name}", **metadata}
    status = {"replicas": present}
    spec = {"replicas": 1, "template": template}
    cluster.put(kind, {"metadata": meta, "spec": spec, "status": status})


@contextlib.asynccontextmanager
async def looking(cluster: Apiserver, *, leads: bool = True) -> AsyncIterator[list[None]]:
    told: list[None] = []
    run = rejections.run(
        cluster.client,
        Live(dataclasses.replace(SETTINGS, leader=leads)),
        tell=lambda: told.append(None),
    )
    async with running_task(run) as task:
        yield told
        assert not task.done()


def found(cluster: Apiserver) -> dict[str, Any]:
    for each in cluster.all("configmaps"):
        if each["metadata"]["name"] == CONFIG_MAP:
            read = rejections.read(each["data"])
            return {"changes": {*read.changes}, "workloads": {*read.workloads}}
    return {}


@pytest.fixture(autouse=True)
def complete(cluster: Apiserver) -> None:
    for each in cluster.all("statefulsets"):
        each["status"] = {"replicas": 1}


async def test_forbidden_change_is_found_before_a_pod_has_it_and_the_charm_is_told(
    cluster: Apiserver,
):
    cluster.admission = forbidding(names.PROXY_CONFIG)
    want(cluster)
    async with looking(cluster) as told:
        await until(lambda: told)
    assert found(cluster) == {"changes": {"hold"}, "workloads": set()}
    (author,) = {each.author for each in rejections.read(_data(cluster)).changes.values()}
    assert author == "ValidatingAdmissionPolicy no-overrides"


def _data(cluster: Apiserver) -> dict[str, str]:
    return cluster.get("configmaps", MODEL, CONFIG_MAP)["data"]


async def test_charm_is_not_told_that_other_settings_are_rejected_as_little(cluster: Apiserver):
    want(cluster)
    async with looking(cluster) as told:
        await until(lambda: found(cluster))
        before = _data(cluster)
        want(cluster, excluded_pods="app=none")
        await until(lambda: _data(cluster) != before)
        assert not told


async def test_pods_are_not_tried_again_while_nothing_changes(cluster: Apiserver):
    want(cluster)
    async with looking(cluster) as told:
        await until(lambda: found(cluster))
        tried, before = len(cluster.tried), len(told)
        want(cluster, left_out=("native",), revision="other")
        looks = len(cluster.requests)
        await until(lambda: len(cluster.requests) > looks + 20)
        assert (len(cluster.tried), len(told)) == (tried, before)


async def test_change_is_made_again_once_the_policy_has_gone(cluster: Apiserver):
    cluster.admission = forbidding(names.PROXY_CONFIG)
    want(cluster)
    async with looking(cluster) as told:
        await until(lambda: told)
        cluster.admission = lambda pod: pod
        await until(lambda: len(told) == 2, 1000)
    assert found(cluster)["changes"] == set()


def held_and_forbidden(pod: dict[str, Any]) -> dict[str, Any]:
    """What this charm's webhook does to a pod, and then a policy."""
    if names.MESH_PROBE not in pod["metadata"]["labels"]:
        annotations = {**pod["metadata"].get("annotations", {}), names.PROXY_CONFIG: "{}"}
        pod = {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}
    return forbidding(names.PROXY_CONFIG)(pod)


async def test_policy_that_comes_later_is_found_by_the_pod_that_is_lacking(cluster: Apiserver):
    want(cluster)
    async with looking(cluster) as told:
        await until(lambda: found(cluster))
        cluster.admission = held_and_forbidden
        workload(cluster, "deployments", "shop", present=0)
        owner = {"kind": "Deployment", "name": "shop", "uid": "uid-of-shop"}
        for number, hash_ in enumerate("ba"):
            revision = {"deployment.kubernetes.io/revision": str(number)}
            workload(
                cluster,
                *("replicasets", f"shop-{hash_}", 0),
                ownerReferences=[owner],
                annotations=revision,
            )
        cluster.tried.clear()
        await until(lambda: told)
    assert found(cluster) == {"changes": {"hold"}, "workloads": set()}
    assert {pod["metadata"]["generateName"] for pod in cluster.tried} == {"shop-a-"}


async def test_workload_whose_pods_are_refused_without_any_change_is_named(cluster: Apiserver):
    want(cluster)
    workload(cluster, "statefulsets", "shop", present=0)

    def admission(pod: dict[str, Any]) -> dict[str, Any]:
        if pod["metadata"]["labels"].get("app") == "shop":
            raise trials_world.Refused(trials_world.POLICY)
        return pod

    cluster.admission = admission
    async with looking(cluster) as told:
        await until(lambda: told)
        assert found(cluster) == {"changes": set(), "workloads": {"StatefulSet/shop"}}
        cluster.admission = lambda pod: pod
        await until(lambda: len(told) == 2)
        assert found(cluster) == {"changes": set(), "workloads": set()}


async def test_unit_that_stands_by_tries_nothing(cluster: Apiserver):
    want(cluster)
    async with looking(cluster, leads=False):
        await until(lambda: len(cluster.requests) > 1)
    assert (cluster.tried, found(cluster)) == ([], {})

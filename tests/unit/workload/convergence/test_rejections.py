"""Which changes of admission and which workloads the service finds rejected, and whom it tells."""

from __future__ import annotations

import asyncio
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
from tests.unit.workload.converging import (
    MEMORY,
    MODEL,
    POLICY,
    SETTINGS,
    Object,
    forbidding,
    looked,
    refusal,
    workload,
)
from tests.unit.workload.fake_apiserver import FakeApiserver, running_task, until

VIRTUAL_TIME = True


def want(model: FakeApiserver, **values: Any) -> None:
    """Write the webhook's settings as the charm does."""
    wanted = Wanted(application="istio-integrator", model=MODEL, **values)
    metadata = {"name": "istio-integrator-admission", "namespace": MODEL}
    text = json.dumps(wanted.document())
    model.put("configmaps", {"metadata": metadata, "data": {"settings.json": text}})


@contextlib.asynccontextmanager
async def looking(model: FakeApiserver, *, leads: bool = True) -> AsyncIterator[list[None]]:
    told: list[None] = []
    run = rejections.run(
        model.client,
        Live(dataclasses.replace(SETTINGS, leader=leads)),
        tell=lambda: told.append(None),
    )
    async with running_task(run) as task:
        yield told
        assert not task.done()


def found(model: FakeApiserver) -> dict[str, Any]:
    for each in model.all("configmaps"):
        if each["metadata"]["name"] == MEMORY:
            read = rejections.read(each["data"])
            return {"changes": {*read.changes}, "workloads": {*read.workloads}}
    return {}


@pytest.fixture(autouse=True)
def admits(model: FakeApiserver) -> None:
    model.admission = lambda pod: pod


async def test_forbidden_change_is_found_before_a_pod_has_it_and_the_charm_is_told(
    model: FakeApiserver,
):
    model.admission = forbidding(names.PROXY_CONFIG)
    want(model)
    async with looking(model) as told:
        await until(lambda: told)
    assert found(model) == {"changes": {"hold"}, "workloads": set()}
    (author,) = {each.author for each in rejections.read(_data(model)).changes.values()}
    assert author == "ValidatingAdmissionPolicy no-overrides"


def _data(model: FakeApiserver) -> dict[str, str]:
    return model.get("configmaps", MODEL, MEMORY)["data"]


async def test_charm_is_not_told_that_other_settings_are_rejected_as_little(model: FakeApiserver):
    want(model)
    async with looking(model) as told:
        await until(lambda: looked(model) > 1)
        tried = len(model.tried)
        want(model, excluded_pods="app=none")
        await until(lambda: len(model.tried) == 2 * tried)
        assert not told


async def test_pods_are_not_tried_again_while_nothing_changes(model: FakeApiserver):
    want(model)
    async with looking(model) as told:
        await until(lambda: looked(model) > 1)
        tried, before = len(model.tried), len(told)
        want(model, left_out=("native",), revision="other")
        looks = len(model.requests)
        await until(lambda: len(model.requests) > looks + 20)
        assert (len(model.tried), len(told)) == (tried, before)


async def test_change_is_made_again_once_the_policy_has_gone(model: FakeApiserver):
    model.admission = forbidding(names.PROXY_CONFIG)
    want(model)
    async with looking(model) as told:
        await until(lambda: told)
        model.admission = lambda pod: pod
        await asyncio.sleep(1000)
        assert len(told) == 2
    assert found(model)["changes"] == set()


def held_and_forbidden(pod: Object) -> Object:
    """What this charm's webhook does to a pod, and then a policy."""
    if names.MESH_PROBE not in pod["metadata"]["labels"]:
        annotations = {**pod["metadata"].get("annotations", {}), names.PROXY_CONFIG: "{}"}
        pod = {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}
    return forbidding(names.PROXY_CONFIG)(pod)


async def test_policy_that_comes_later_is_found_by_the_pod_that_is_lacking(model: FakeApiserver):
    want(model)
    async with looking(model) as told:
        await until(lambda: looked(model) > 1)
        model.admission = held_and_forbidden
        workload(model, "deployments", "shop", present=0)
        owner = {"kind": "Deployment", "name": "shop", "uid": "uid-of-shop"}
        for number, hash_ in enumerate("ba"):
            revision = {"deployment.kubernetes.io/revision": str(number)}
            workload(
                model,
                *("replicasets", f"shop-{hash_}", 0),
                ownerReferences=[owner],
                annotations=revision,
            )
        model.tried.clear()
        await until(lambda: told)
    assert found(model) == {"changes": {"hold"}, "workloads": set()}
    assert {pod["metadata"]["generateName"] for pod in model.tried} == {"shop-a-"}


async def test_workload_whose_pods_are_refused_without_any_change_is_named(model: FakeApiserver):
    want(model)
    workload(model, "statefulsets", "shop", present=0)

    def admission(pod: Object) -> Object:
        if pod["metadata"]["labels"].get("app") == "shop":
            raise refusal(POLICY)
        return pod

    model.admission = admission
    async with looking(model) as told:
        await until(lambda: told)
        assert found(model) == {"changes": set(), "workloads": {"StatefulSet/shop"}}
        model.admission = lambda pod: pod
        await until(lambda: len(told) == 2)
        assert found(model) == {"changes": set(), "workloads": set()}


async def test_unit_that_stands_by_tries_nothing(model: FakeApiserver):
    want(model)
    async with looking(model, leads=False):
        await until(lambda: len(model.requests) > 1)
    assert (model.tried, found(model)) == ([], {})

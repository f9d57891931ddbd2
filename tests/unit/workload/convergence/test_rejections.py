"""Changes of admission and workloads that policies reject, as the service finds them."""

from __future__ import annotations

import asyncio
import functools
import json
from typing import Any

import msgspec
import pytest

from integrator_contract import names, rejections
from integrator_contract.pods import Settings as Wanted
from tests.unit.workload.converging import (
    MEMORY,
    MODEL,
    POLICY,
    Object,
    converging,
    forbidding,
    looked,
    refusal,
    workload,
)
from tests.unit.workload.fake_apiserver import FakeApiserver, until


def want(model: FakeApiserver, **values: Any) -> None:
    """Write the webhook's settings as the charm does."""
    wanted = Wanted(application="istio-integrator", model=MODEL, **values)
    metadata = {"name": "istio-integrator-admission", "namespace": MODEL}
    text = json.dumps(wanted.document())
    model.put("configmaps", {"metadata": metadata, "data": {"settings.json": text}})


looking = functools.partial(converging, joined=False)
"""Runs the service where no pod is to be replaced, so that only rejections are looked for."""


def stored(model: FakeApiserver) -> rejections.Rejections:
    found = model.objects.get(("configmaps", MODEL, MEMORY), {"data": {}})
    text = found["data"].get(rejections.KEY, "{}")
    return msgspec.json.decode(text, type=rejections.Rejections)


def found(model: FakeApiserver) -> dict[str, Any]:
    read = stored(model)
    return {"changes": {*read.changes}, "workloads": {*read.workloads}}


@pytest.fixture(autouse=True)
def admits(model: FakeApiserver) -> None:
    model.admission = lambda pod: pod


async def test_forbidden_change_is_found_before_a_pod_has_it_and_the_charm_is_told(
    model: FakeApiserver,
):
    model.admission = forbidding(names.PROXY_CONFIG)
    want(model)
    async with looking(model) as service:
        await until(service.told)
    assert found(model) == {"changes": {"hold"}, "workloads": set()}
    (author,) = {each.author for each in stored(model).changes.values()}
    assert author == "ValidatingAdmissionPolicy no-overrides"


async def test_charm_is_not_told_that_other_settings_are_rejected_as_little(model: FakeApiserver):
    want(model)
    async with looking(model) as service:
        await until(lambda: looked(model) > 1)
        tried = len(model.tried)
        want(model, excluded_pods="app=none")
        await until(lambda: len(model.tried) == 2 * tried)
        await asyncio.sleep(5)
        assert not service.told()


async def test_pods_are_not_tried_again_while_nothing_changes(model: FakeApiserver):
    want(model)
    async with looking(model) as service:
        await until(lambda: looked(model) > 1)
        tried, before = len(model.tried), service.told()
        want(model, left_out=("native",), revision="other")
        looks = looked(model)
        await until(lambda: looked(model) >= looks + 2)
        assert (len(model.tried), service.told()) == (tried, before)


async def test_change_is_made_again_once_the_policy_has_gone(model: FakeApiserver):
    model.admission = forbidding(names.PROXY_CONFIG)
    want(model)
    async with looking(model) as service:
        await until(service.told)
        model.admission = lambda pod: pod
        await asyncio.sleep(1000)
        assert service.told() == 2
    assert found(model)["changes"] == set()


def held_and_forbidden(pod: Object) -> Object:
    """Apply the change of this charm's webhook to a pod, and then a policy."""
    if names.MESH_PROBE not in pod["metadata"]["labels"]:
        annotations = {**pod["metadata"].get("annotations", {}), names.PROXY_CONFIG: "{}"}
        pod = {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}
    return forbidding(names.PROXY_CONFIG)(pod)


async def test_policy_that_comes_later_is_found_by_the_pod_that_is_lacking(model: FakeApiserver):
    want(model)
    async with looking(model) as service:
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
        await until(service.told)
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
    async with looking(model) as service:
        await until(service.told)
        assert found(model) == {"changes": set(), "workloads": {"StatefulSet/shop"}}
        model.admission = lambda pod: pod
        await until(lambda: service.told() == 2)
        assert found(model) == {"changes": set(), "workloads": set()}


async def test_unit_that_stands_by_tries_nothing(model: FakeApiserver):
    want(model)
    async with looking(model, leader=False):
        await asyncio.sleep(60)
    assert (model.tried, stored(model)) == ([], rejections.Rejections())

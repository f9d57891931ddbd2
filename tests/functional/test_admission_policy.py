"""The policy on a real API server, by the table of cases."""

from __future__ import annotations

import dataclasses
import json

import pytest
from sidecar_lifecycle.shell.admission import probe
from sidecar_lifecycle.shell.kube import client as kube_client

from istio_integrator.admission import policy, settings
from istio_integrator.kube import cluster, errors, manifests
from tests.functional import admission_cases as table
from tests.functional import admission_world


@pytest.fixture(scope="module")
def world(client):
    """Every settings of the table as a policy of its own."""
    with admission_world.by_policy(cluster.Cluster(client), "policy") as world:
        yield world


@pytest.mark.parametrize("case", table.CASES, ids=lambda case: case.id)
def test_a_pod_gets_what_the_table_says(world, case):
    admission_world.assert_case(world, case)


@pytest.mark.parametrize("namespace", sorted(admission_world.OUT_OF_SCOPE))
def test_a_namespace_out_of_scope_is_left_alone(world, namespace):
    pod = table.Case(id="").pod(f"{world.prefix}-{namespace}")

    assert "annotations" not in world.try_pod(pod)["metadata"]


def test_a_labelled_profile_is_served_once(world):
    pod = table.Case(id="").pod(f"{world.prefix}-both")

    annotations = world.try_pod(pod)["metadata"]["annotations"]

    assert annotations == {table.CONFIG: table.HOLD, table.APPLIED: "hold"}


def test_a_pod_of_a_megabyte_is_within_the_budget(world):
    note = "a: " + "x y: {z}\n# \"'" * 20_000
    spec = {
        "containers": [
            table.container(
                f"c{index}",
                f"quay.io/image-{index}",
                env=[{"name": f"E{n}", "value": "x" * 100} for n in range(100)],
            )
            for index in range(60)
        ]
    }
    case = table.Case(
        id="large",
        settings="everything",
        annotations={"example.com/large": note[:150_000], table.CONFIG: "a: " + "{" * 30_000},
        labels={f"l{index}": "x" for index in range(500)},
        spec=spec,
    )
    pod = case.pod(world.namespace(case))
    assert 800_000 < len(json.dumps(pod)) < 1_500_000

    created = world.try_pod(pod)

    applied = created["metadata"]["annotations"][table.APPLIED]
    assert applied == "ports,hold,labels"


def test_an_update_is_left_alone(world):
    pod = table.Case(id="").pod(f"{world.prefix}-plain")
    pod["metadata"]["namespace"] = world.model("neither")
    live = world.api.create(pod)
    try:
        labels = {"alone": "", "tier": "edge"}
        updated = world.api.merge_patch(live, {"metadata": {"labels": labels}})
        assert updated["metadata"]["labels"] == labels
    finally:
        world.api.delete(live)


def test_a_policy_changes_in_place_without_a_gap(world):
    model = world.model("neither")
    owner = manifests.Manifests(world.api, model=model, application=table.APPLICATION)
    pod = table.Case(id="", labels={"alone": ""}).pod(model)
    seen = []
    for number in range(6):
        wanted = admission_world.wanted("hold" if number % 2 == 0 else "neither", model)
        selector = "alone" if number % 2 == 0 else "alone,!other"
        changed = dataclasses.replace(wanted.settings, excluded_pods=selector)
        wanted = wanted._replace(settings=settings.revised(changed))
        context = policy.context(wanted, world.namespaces_of("neither"), owner=owner.owner)
        owner.apply(policy.FOLDER, context)
        seen += [world.try_pod(pod)["metadata"]["labels"].get(table.INJECT) for _ in range(15)]

    assert set(seen) == {"false"}


def test_what_cannot_be_served_is_told_from_what_is_absent(world):
    assert world.api.get(cluster.kind("v1", "Pod"), "none", "policy-hold") is None
    with pytest.raises(errors.ApiError):
        world.try_pod({**table.Case(id="").pod("policy-hold"), "spec": {"containers": []}})


async def test_workload_sees_that_it_answers(world, kubeconfig):
    connection = kube_client.connect(str(kubeconfig))
    try:
        assert await probe.ask(connection, world.model("hold"), "policy")
        assert not await probe.ask(connection, world.model("hold"), "webhook")
    finally:
        await connection.close()

"""Convergence into ambient mode and back, against a real control plane."""

import pytest
from sidecar_lifecycle.decide.convergence import memory
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell.kube.client import path

from tests.functional import convergence_world


@pytest.fixture
async def world(kubeconfig, namespace):
    async with convergence_world.living(kubeconfig, namespace) as world:
        yield world


async def label(world, **labels):
    """Label the namespace as the charm does."""
    named = {
        key.replace("dataplane", "istio.io/dataplane-mode").replace("_", "-"): value
        for key, value in labels.items()
    }
    await world.request(
        "PATCH",
        path(types.Namespace, name=world.namespace),
        {"metadata": {"labels": named}},
        content_type="application/merge-patch+json",
    )


async def into_ambient(world):
    """Switch the model, whose injector does not look at its pods any more."""
    await world.unbind()
    await label(world, istio_injection=None, dataplane="ambient")


async def back_to_sidecars(world):
    await label(world, istio_injection="enabled", dataplane=None)
    await world.bind()


async def uids(world):
    listing = await world.request("GET", path(types.Pod, world.namespace))
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in listing["items"]}


async def events(world, reason):
    listing = await world.request("GET", path(types.Event, world.namespace))
    return sum(each["reason"] == reason for each in listing["items"])


async def test_a_model_goes_into_ambient_mode_and_comes_back(world):
    await world.join()
    await world.workload("StatefulSet", "one")
    await world.workload("Deployment", "web", replicas=2)
    await world.workload("StatefulSet", "nb", owner=await world.owner("notebook"))
    await world.bare_pod("bare")
    assert all((await world.injected()).values())
    before = await uids(world)

    async def none_left():
        now = await world.injected()
        if len(now) != 5 or {name for name, has in now.items() if has} != {"bare", "nb-0"}:
            return False
        return not memory.decode((await world.remembered())["data"]).rounds

    await into_ambient(world)
    async with world.converging(data_plane="ambient", restart_max_unavailable="1"):
        await world.until(none_left)

    there = await uids(world)
    assert {name for name in there if there[name] == before.get(name)} == {"bare", "nb-0"}
    assert await events(world, "SidecarLeft") == 3

    async def all_back():
        now = await world.injected()
        return len(now) == 5 and all(now.values())

    await back_to_sidecars(world)
    async with world.converging(restart_max_unavailable="1"):
        await world.until(all_back)

    back = await uids(world)
    assert {name for name in back if back[name] == before.get(name)} == {"bare", "nb-0"}

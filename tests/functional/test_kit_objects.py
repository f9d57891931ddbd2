"""The comparison of a cluster's objects, and the client that reads them, on a real apiserver."""

import pytest

from testbed import kubernetes
from testbed.kit import objects, observer, workloads


@pytest.fixture
async def api(kubeconfig):
    async with kubernetes.Api.from_kubeconfig(kubeconfig) as client:
        yield client


def within(namespace, snapshot):
    """The part of a snapshot that no other test touches."""
    return {key: item for key, item in snapshot.items() if key.namespace == namespace}


async def settled(api, namespace):
    """A snapshot after the controllers have made what every namespace has."""

    async def found():
        seen = within(namespace, await objects.snapshot(api))
        return seen if {key.kind for key in seen} >= {"ConfigMap", "ServiceAccount"} else None

    return await observer.eventually(found, 30, "a new namespace's own objects")


async def test_what_was_added_and_changed_is_found_and_what_came_back_is_not(api, namespace):
    before = await settled(api, namespace)
    data_server = workloads.digits(namespace, "image")
    await api.apply(*data_server)
    await api.patch("ServiceAccount", "default", namespace, {"metadata": {"labels": {"a": "b"}}})
    after = within(namespace, await objects.snapshot(api))
    found = {(d.change, d.key.kind, d.key.name) for d in objects.compare(before, after)}
    assert found >= {
        ("added", "Deployment", "digits"),
        ("added", "Service", "digits"),
        ("changed", "ServiceAccount", "default"),
    }
    for item in data_server:
        await api.delete(item["kind"], "digits", namespace)
    await api.patch("ServiceAccount", "default", namespace, {"metadata": {"labels": None}})

    async def is_same():
        return not objects.compare(before, within(namespace, await objects.snapshot(api)))

    assert await observer.eventually(is_same, 60, "the same objects as before")

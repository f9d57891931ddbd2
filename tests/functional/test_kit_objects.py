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


async def test_following_reports_jobs_and_pods_from_the_first_list_on(api, namespace):
    await api.apply(workloads.sleeper("early", namespace, "image"))
    watcher = observer.Observer()
    async with watcher.following(api):
        assert watcher.job(namespace, "early")
        await api.apply(workloads.sleeper("late", namespace, "image"))
        await watcher.until(lambda: watcher.job(namespace, "late"), 30, "the second job")
        await watcher.until(
            lambda: len(watcher.timeline.select(namespace)) == 2, 30, "a pod for each job"
        )


async def test_a_dry_run_creates_nothing(api, namespace):
    async def has_account():
        return await api.find("ServiceAccount", "default", namespace)

    await observer.eventually(has_account, 30, "the namespace's ServiceAccount")
    body = workloads.template([workloads.container("main", "image", ["true"])])
    made = await api.create(workloads.pod("asked", namespace, body), dry_run=True)
    assert made["metadata"]["name"] == "asked"
    assert await api.find("Pod", "asked", namespace) is None


async def test_what_is_refused_names_the_request_and_the_reason(api, namespace):
    body = workloads.template([workloads.container("main", "image", ["true"])])
    with pytest.raises(kubernetes.ApiError, match=r"POST /api/v1/namespaces/.*: 422"):
        await api.create(workloads.pod("Not A Name", namespace, body), dry_run=True)


async def test_a_pod_without_grace_is_gone_at_once(api, namespace):
    async def has_account():
        return await api.find("ServiceAccount", "default", namespace)

    await observer.eventually(has_account, 30, "the namespace's ServiceAccount")
    body = workloads.template([workloads.container("main", "image", ["true"])])
    # No kubelet will ever say that it has ended.
    body["spec"]["nodeName"] = "nowhere"
    await api.create(workloads.pod("stays", namespace, body))
    await api.delete("Pod", "stays", namespace)
    assert await api.find("Pod", "stays", namespace) is not None
    await api.delete("Pod", "stays", namespace, grace=0)
    assert await api.find("Pod", "stays", namespace) is None

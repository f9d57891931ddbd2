"""The pods of a test, as the API server has them."""

from testbed.kit import observer, timeline, workloads


def has_proxy(pod):
    """Whether a pod has a sidecar, of whichever kind."""
    containers = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]
    return any(each["name"] == timeline.PROXY for each in containers)


async def live(api, namespace, labels=""):
    """The pods that are not on their way out."""
    found = await api.list("Pod", namespace, labels)
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


async def renewed(api, namespace, labels, *, grace=None, is_back=timeline.is_ready, within=240):
    """Delete pods, and wait until as many others are back; return these."""
    before = await live(api, namespace, labels)
    gone = {pod["metadata"]["uid"] for pod in before}
    for name in [pod["metadata"]["name"] for pod in before]:
        await api.delete("Pod", name, namespace, grace=grace)

    async def are_back():
        found = await live(api, namespace, labels)
        new = [pod for pod in found if pod["metadata"]["uid"] not in gone and is_back(pod)]
        return new if len(new) >= len(before) else None

    return await observer.eventually(are_back, within, f"other pods {labels} in {namespace}")


async def tried(api, namespace, **how):
    """Have a pod created that is not kept, and return it."""
    main = workloads.container("main", "none.invalid/none", ["true"])
    body = workloads.template([main], **how)
    return await api.create(workloads.pod("tried", namespace, body), dry_run=True)


def named(name):
    """The label that a StatefulSet gives the pod of this name."""
    return f"statefulset.kubernetes.io/pod-name={name}"

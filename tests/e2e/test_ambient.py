"""Into ambient mode and back, on a node that has no ztunnel: what API server and istiod see of it.

The DaemonSets that ambient mode takes are there and choose no node, so that pods without a sidecar
reach each other as in a cluster whose ztunnel lets everything pass.
"""

import contextlib

import pytest

from testbed.kit import bundle, istiod, juju, objects, observer, workloads
from tests.e2e import kubeflow_kinds

pytestmark = [
    pytest.mark.usefixtures("integrated"),
    pytest.mark.cluster("today"),
    pytest.mark.long,
    pytest.mark.timeout(900),
]

MODE = "istio.io/dataplane-mode"
SWITCH = "PILOT_ENABLE_AMBIENT"
ENDS = "go"
"""The Service whose name lets the Job under way end."""
LEFT_ALONE = ("lab-", "underway-")
"""Pods that nobody but their owner makes anew."""
DAEMONS = {"ztunnel": {"app": "ztunnel"}, "istio-cni-node": {"k8s-app": "istio-cni-node"}}


def daemon(name, labels):
    container = workloads.container(name, "nowhere", ["true"])
    template = workloads.template([container], labels=labels)
    template["spec"]["nodeSelector"] = {"nowhere": "true"}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": istiod.NAMESPACE},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


async def set_ambient(api, value):
    """Have istiod serve ztunnels, or no more, and wait until the one that does is there."""
    (found,) = await api.list("Deployment", istiod.NAMESPACE, labels="app=istiod")
    (container,) = found["spec"]["template"]["spec"]["containers"]
    others = [each for each in container["env"] if each["name"] != SWITCH]
    container["env"] = [*others, {"name": SWITCH, "value": value}] if value else others
    deployment = ("Deployment", found["metadata"]["name"], istiod.NAMESPACE)
    await api.patch(*deployment, {"spec": {"template": {"spec": {"containers": [container]}}}})

    async def is_rolled_out():
        now = await api.get(*deployment)
        said, wanted = now["status"], now["metadata"]["generation"]
        is_new = said.get("observedGeneration") == wanted and said.get("updatedReplicas")
        return is_new and said.get("replicas") == said.get("availableReplicas") == 1

    await observer.eventually(is_rolled_out, 180, "istiod rolled out")


@contextlib.asynccontextmanager
async def ambient_installed(api):
    """What the charm sees of an Istio in ambient mode."""
    await set_ambient(api, "true")
    await api.apply(*(daemon(name, labels) for name, labels in DAEMONS.items()))
    try:
        yield
    finally:
        for name in DAEMONS:
            await api.delete("DaemonSet", name, istiod.NAMESPACE)
        await set_ambient(api, "")


def under_way(on):
    command = ["sh", "-c", f"until getent hosts {ENDS}; do sleep 1; done"]
    body = workloads.template(
        [workloads.container("main", on.image, command)], restart_policy="Never"
    )
    return workloads.job("underway", on.model, body)


def ends(on):
    ports = [{"name": "http", "port": 80}]
    metadata = {"name": ENDS, "namespace": on.model}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}}


def left_alone(on):
    """The pods of a notebook and of a Job: their identity, and whether they have a sidecar."""
    pods = on.observer.timeline.select(on.model)
    return {
        pod.name: (pod.uid, pod.proxy is not None)
        for pod in pods
        if pod.name.startswith(LEFT_ALONE) and not pod.is_going
    }


def are_ready(on, *, in_mesh):
    """Whether all applications are Ready, and each with a sidecar or each without."""
    pods = [pod for name in bundle.APPLICATIONS for pod in on.pods_of(name)]
    return all(map(on.is_ready, bundle.APPLICATIONS)) and all(
        (pod.proxy is not None) == in_mesh for pod in pods
    )


async def mode_of(on, kind, name, namespace=""):
    labels = (await on.api.get(kind, name, namespace))["metadata"].get("labels", {})
    return labels.get(MODE)


async def operator_mode(on):
    (pod,) = await on.api.list("Pod", on.model, labels="operator.juju.is/name=modeloperator")
    return pod["metadata"]["labels"].get(MODE)


async def is_as_before(on, before):
    """Whether every object is, but for the webhook that went and came back."""
    differing = {each.key for each in objects.compare(before, await objects.snapshot(on.api))}
    return all(juju.APPLICATION in key.name or key.kind == "IPAddress" for key in differing)


async def test_a_model_goes_to_ambient_mode_and_back_and_nobody_is_harmed(node, on):
    await kubeflow_kinds.define(node.testbed, [kubeflow_kinds.NOTEBOOKS])
    async with ambient_installed(on.api):
        await on.api.apply(under_way(on))
        await kubeflow_kinds.create(on.api, kubeflow_kinds.notebook("lab", on.model, on.image, {}))
        await on.observer.until(
            lambda: (
                len(left_alone(on)) == 2
                and all(is_in for _, is_in in left_alone(on).values())
                and on.is_ready("lab")
            ),
            180,
            "a notebook and a Job with sidecars",
        )
        there = left_alone(on)
        before = await objects.snapshot(on.api)

        await on.juju.config(juju.APPLICATION, mesh_mode="ambient")
        await on.observer.until(
            lambda: are_ready(on, in_mesh=False), 300, "applications without sidecars"
        )
        status = await on.juju.wait_for("active", 180, words="ambient mode")
        assert await mode_of(on, "Namespace", on.model) == "ambient"
        assert await operator_mode(on) == "none"
        assert left_alone(on) == there, status

        await on.api.apply(ends(on))
        await on.observer.succeeded(on.model, "underway", 180)

        await on.juju.config(juju.APPLICATION, mesh_mode="sidecar")
        await on.observer.until(
            lambda: are_ready(on, in_mesh=True), 300, "applications with sidecars"
        )
        await on.juju.wait_until_in_mesh(180)
        assert await mode_of(on, "Namespace", on.model) is None
        assert await operator_mode(on) is None
        assert left_alone(on)["lab-0"] == there["lab-0"]

        await on.juju.config(juju.APPLICATION, mesh_mode="auto")
        await on.api.delete("Service", ENDS, on.model)
        await observer.eventually(
            lambda: is_as_before(on, before), 90, "the same objects", every=2
        )
        await on.api.delete("Notebook", "lab", on.model)
        await on.api.delete("StatefulSet", "lab", on.model)
        await on.api.delete("Job", "underway", on.model)
    await on.api.delete("CustomResourceDefinition", kubeflow_kinds.NOTEBOOKS["metadata"]["name"])

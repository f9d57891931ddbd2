"""A model of which convergence takes care, on the small apiserver."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from sidecar_lifecycle.decide.convergence import memory

from tests.unit.api_server import Refused
from tests.unit.workload import pods, service_world
from tests.unit.workload.fake_apiserver import FakeApiserver
from tests.unit.workload.service_world import MODEL

SETTINGS = dataclasses.replace(service_world.SETTINGS, joined=True, unit="mesh-2/3")
converging = functools.partial(service_world.running, settings=SETTINGS)
"""Runs the service of the leader, in a model that has joined the mesh."""
MEMORY = "mesh-2-convergence"
OWN_IMAGE = "localhost/testbed/charm:1"
POLICY = "ValidatingAdmissionPolicy 'no-overrides' with binding 'b' denied request: not allowed"
Object = dict[str, Any]


def owned(kind: str, name: str) -> list[Object]:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-of-{name}"}
    return [{**owner, "controller": True}]


def without_sidecar(uid: str = "uid-1", workload: str = "web") -> Object:
    """A pod of a StatefulSet that came up before the mesh was there."""
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"}
    pod = pods.pod_json(
        pods.running(),
        name=f"{workload}-0",
        namespace=MODEL,
        uid=uid,
        policy="Always",
        ownerReferences=owned("StatefulSet", workload),
        creationTimestamp="2026-01-01T00:00:00Z",
        conditions=[ready],
    )
    for place, key in ((pod["spec"], "containers"), (pod["status"], "containerStatuses")):
        place[key] = [each for each in place[key] if each["name"] != "istio-proxy"]
    return pod


def workload(cluster: FakeApiserver, kind: str, name: str, present: int = 1, **meta: Any) -> None:
    """Create a workload of one pod, of which so many are there."""
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "shop"}]},
    }
    metadata = {"name": name, "namespace": MODEL, "uid": f"uid-of-{name}", **meta}
    metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
    spec = {"replicas": 1, "template": template}
    status = {"replicas": present, "currentNumberScheduled": present, "desiredNumberScheduled": 1}
    cluster.put(kind, {"metadata": metadata, "spec": spec, "status": status})


def fill(cluster: FakeApiserver) -> None:
    """Create this charm's own pod, and another application whose pod lacks its sidecar."""
    cluster.admission = injected
    cluster.namespace(MODEL, labels={"istio-injection": "enabled"})
    cluster.put("configmaps", {"metadata": {"name": "istio-ca-root-cert", "namespace": MODEL}})
    for name in ("web", "mesh-2"):
        workload(cluster, "statefulsets", name)
    own = without_sidecar("uid-own", "mesh-2")
    own["metadata"] |= {"name": "mesh-2-3", "labels": {"app.kubernetes.io/name": "mesh-2"}}
    own["spec"]["containers"][0] |= {"name": "charm", "image": OWN_IMAGE}
    cluster.put("pods", own)
    cluster.put("pods", without_sidecar())
    # Namesakes in a namespace that convergence has nothing to do with.
    elsewhere = without_sidecar("uid-elsewhere")
    elsewhere["metadata"]["namespace"] = "elsewhere"
    cluster.put("pods", elsewhere)
    for name in ("istio-ca-root-cert", MEMORY):
        cluster.put("configmaps", {"metadata": {"name": name, "namespace": "elsewhere"}})


def remembered(cluster: FakeApiserver) -> memory.Memory:
    """Read the memory of convergence from its ConfigMap."""
    found = cluster.find("configmaps", MODEL, MEMORY) or {}
    return memory.decode(found.get("data", {}))


def remember(cluster: FakeApiserver, stored: memory.Memory, **entries: str) -> None:
    """Write the memory of convergence into its ConfigMap."""
    data = {memory.STATE: memory.encode(stored), **entries}
    cluster.put("configmaps", {"metadata": {"name": MEMORY, "namespace": MODEL}, "data": data})


def looked(cluster: FakeApiserver) -> int:
    """How often the memory was looked at, which each look begins with."""
    return cluster.requests.count(("GET", f"/api/v1/namespaces/{MODEL}/configmaps/{MEMORY}"))


# What admission makes of a pod.


def injected(pod: Object) -> Object:
    spec = pod["spec"]
    return {**pod, "spec": {**spec, "containers": [*spec["containers"], {"name": "istio-proxy"}]}}


def refusal(message: str, code: int = 403) -> Refused:
    return Refused(f'pods "x" is forbidden: {message}' if code == 403 else message, code)


def refuse(message: str, code: int = 403) -> Callable[[Object], Object]:
    def admission(pod: Object) -> Object:
        raise refusal(message, code)

    return admission


def forbidding(key: str) -> Callable[[Object], Object]:
    """A policy that forbids a label or an annotation on pods."""

    def admission(pod: Object) -> Object:
        meta = pod["metadata"]
        if key in meta.get("annotations", {}) or key in meta.get("labels", {}):
            raise refusal(POLICY)
        return pod

    return admission

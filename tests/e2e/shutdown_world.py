"""Where workloads run to completion, and the peer that counts their tries.

The payload is `tries.py`: in every try it calls a counting peer through the mesh, at its start and
just before its end, and ends with 99 if the peer can't be reached. So a proxy that was stopped too
early shows as a wrong count or as an exit code of 99.
"""

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from testbed import kubernetes, parts
from testbed.kit import juju, observer, workloads
from tests.e2e import kubeflow_kinds

Object = dict[str, Any]

MODEL = "shutdown"
PREFIX = "istio-integrator.charmhub.io/"
PEER = "tries"
DB_MANAGER = 6789
"""The peer's second port, which is that of Katib's DB manager."""
NATIVE = {"sidecar.istio.io/nativeSidecar": "true"}
CPU = {"sidecar.istio.io/proxyCPU": "10m"}


@dataclasses.dataclass(frozen=True)
class World:
    """Where the cases are put."""

    model: str
    by_revision: str
    """A namespace that asks for a sidecar by revision and is labelled to be served."""
    image: str
    classic: Mapping[str, str]
    """Annotations that make the sidecar a classic one here."""

    def template(self, *containers: Object, policy: str = "Never", **annotations: str) -> Object:
        """A pod template with a classic sidecar."""
        words = {**CPU, **self.classic, **annotations}
        return workloads.template(containers, restart_policy=policy, annotations=words)

    def tries(self, name: str, codes: str, seconds: float = 0.3, /, **fields: Any) -> Object:
        """A container that ends with one code after the other."""
        peer = f"http://{PEER}.{self.model}"
        command = workloads.payload("tries.py", "run", peer, name, codes, seconds)
        return workloads.container(fields.pop("container", "main"), self.image, command, **fields)


async def set_up(node: Any) -> World:
    """Have a model with the charm, a peer, Kubeflow's controllers and a namespace beside it."""
    controller = node.juju(MODEL)
    classic = workloads.CLASSIC if node.kind.native else {}
    made = World(MODEL, "by-revision", node.charms.payload_image, classic)
    await asyncio.to_thread(parts.install, node.testbed, *parts.PARTS)
    async with kubernetes.Api.from_kubeconfig(node.testbed.kubeconfig) as api:
        if not await api.find("Namespace", MODEL):
            await controller.add_model()
            await controller.deploy(node.charms.integrator, juju.APPLICATION)
        await controller.wait_for("active", 120)
        served = {"istio.io/rev": "default", f"{PREFIX}served": "enabled"}
        await api.apply(
            workloads.namespace(made.by_revision, served),
            *peer(made),
            *kubeflow_kinds.executor_rights(MODEL),
        )
        await peer_is_ready(api, MODEL)
    return made


def job(world: World, name: str, template: Object, **spec: Any) -> list[Object]:
    """A Job that is not tried anew by another pod, unless said otherwise."""
    made = workloads.job(name, world.model, template)
    made["spec"] |= spec
    return [made]


def peer(world: World) -> list[Object]:
    """The counting server, in the mesh."""
    server = workloads.server(world.image, workloads.payload("tries.py", "serve", 8080), "/again")
    server["metadata"]["annotations"] = CPU
    service = workloads.service(PEER, world.model, 80, targetPort=8080)
    more = {"name": "http-metrics", "port": DB_MANAGER, "targetPort": 8080}
    service["spec"]["ports"].append(more)
    return [workloads.deployment(PEER, world.model, server), service]


async def counted(api: kubernetes.Api, namespace: str) -> dict[str, int]:
    """How many tries of each name have reached the peer."""
    path = f"/api/v1/namespaces/{namespace}/services/{PEER}:80/proxy/"
    return json.loads(await api.request("GET", path))


async def peer_is_ready(api: kubernetes.Api, namespace: str) -> None:
    """Wait until the peer answers, with nothing counted by an earlier one."""

    async def answers() -> bool:
        with contextlib.suppress(kubernetes.ApiError):
            return await counted(api, namespace) == {}
        return False

    await observer.eventually(answers, 90, "the peer Ready")


def states_of(pod: Object) -> dict[str, Object]:
    """The state of each container, by name."""
    return {
        each["name"]: each.get("state") or {}
        for each in pod.get("status", {}).get("containerStatuses") or ()
    }


def starts(pod: Object) -> bool:
    """Whether the node has still to start containers of a pod."""
    status = pod.get("status", {})
    if status.get("phase") in ("Succeeded", "Failed"):
        return False
    kinds = ("initContainerStatuses", "containerStatuses")
    states = [each["state"] for kind in kinds for each in status.get(kind) or ()]
    reasons = {state.get("waiting", {}).get("reason") for state in states}
    return not status.get("startTime") or bool({"ContainerCreating", "PodInitializing"} & reasons)


def conditions_of(item: Object) -> set[str | None]:
    """The conditions of a job, or the phase of a pod or Workflow."""
    status = item.get("status", {})
    if item["kind"] in ("Pod", "Workflow"):
        return {status.get("phase")}
    conditions = status.get("conditions") or ()
    found = {each["type"] for each in conditions if each["status"] == "True"}
    return found | {"Running"} if status.get("active") else found

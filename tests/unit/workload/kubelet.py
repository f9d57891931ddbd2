"""The phase of a pod as the kubelet computes it from the containers' statuses.

It follows `getPhase` in k8s.io/kubernetes v1.36.3, pkg/kubelet/kubelet_pods.go. Whether a
container is restarted is the workload's own rule, which an oracle test compares with Kubernetes'.
Evictions and lost nodes, which set a phase without asking the containers, are left out.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from sidecar_lifecycle.decide import container_restart
from sidecar_lifecycle.model import types

from tests.unit.api_objects import Object

TERMINAL = ("Succeeded", "Failed")


def phase(pod: Object) -> str:
    """Return the phase that follows from a pod's specification and its containers' statuses."""
    spec, status = pod["spec"], pod.get("status", {})
    lists = [status.get(f"{which}ontainerStatuses") or [] for which in ("initC", "c")]
    known = {each["name"]: each for each in [*lists[0], *lists[1]]}
    policy = spec.get("restartPolicy", "Always")
    seen: Counter[str] = Counter()
    for container in spec.get("initContainers") or []:
        if container.get("restartPolicy") == "Always":
            seen.update(_of_native_sidecar(known.get(container["name"])))
        else:
            seen.update(_of_init_container(container, known.get(container["name"]), policy))
    for container in spec["containers"]:
        seen.update(_of_container(container, known.get(container["name"]), policy))
    has_started = any(_state(each) in ("running", "stopped") for each in lists[1])
    if seen["failed initialization"]:
        return "Failed"
    if seen["pending"] or seen["waiting"] or (seen["pending sidecar"] and not has_started):
        return "Pending"
    if seen["unknown"] or not (seen["running"] or seen["stopped"]):
        return "Pending"
    if seen["running"] or seen["restarting"]:
        return "Running"
    return "Succeeded" if seen["stopped"] == seen["succeeded"] else "Failed"


def _state(status: Object | None) -> str:
    """Return what a container is: stopped also while it waits for its next start."""
    state = (status or {}).get("state") or {}
    if "running" in state:
        return "running"
    if "terminated" in state or ("waiting" in state and _exit_code(status) is not None):
        return "stopped"
    return "waiting" if "waiting" in state else "unknown"


def _exit_code(status: Object | None) -> int | None:
    for which in ("state", "lastState"):
        ended = ((status or {}).get(which) or {}).get("terminated")
        if ended:
            return ended["exitCode"]
    return None


def _will_restart(container: Object, policy: str, code: int) -> bool:
    return container_restart.will_restart(
        msgspec.convert(container, types.Container), policy, types.Terminated(exitCode=code)
    )


def _of_init_container(container: Object, status: Object | None, policy: str) -> list[str]:
    if _state(status) != "stopped":
        return ["pending"]
    code = _exit_code(status)
    if not code or _will_restart(container, policy, code):
        return []
    return ["failed initialization"]


def _of_native_sidecar(status: Any) -> list[str]:
    match _state(status):
        case "running":
            return ["running"] if status.get("started") else ["running", "pending sidecar"]
        case "waiting":
            return ["waiting", "pending sidecar"]
        case "unknown":
            return ["unknown"] if status is None else ["unknown", "pending sidecar"]
    return []


def _of_container(container: Object, status: Object | None, policy: str) -> list[str]:
    state = _state(status)
    if state != "stopped":
        return [state]
    code = _exit_code(status) or 0
    marks = ["stopped"]
    if _will_restart(container, policy, code):
        marks.append("restarting")
    if status and "terminated" in status["state"] and code == 0:
        marks.append("succeeded")
    return marks

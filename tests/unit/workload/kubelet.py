"""The phase of a pod as the kubelet computes it from the statuses of its containers.

It follows `getPhase` in k8s.io/kubernetes v1.36.3, pkg/kubelet/kubelet_pods.go, for pods whose
init containers have ended. Whether a container is restarted is the workload's own rule, which an
oracle test compares with Kubernetes'. Evictions and lost nodes, which set a phase without asking
the containers, are left out.
"""

import msgspec
from sidecar_lifecycle.decide import container_restart
from sidecar_lifecycle.model import types

from tests.unit.api_server import Object

TERMINAL = ("Succeeded", "Failed")


def phase(pod: Object) -> str:
    """Return the phase that follows from a pod's specification and its containers' statuses."""
    statuses = {each["name"]: each for each in pod["status"].get("containerStatuses") or []}
    policy = pod["spec"].get("restartPolicy", "Always")
    found = {
        _condition(container, statuses.get(container["name"], {}), policy)
        for container in pod["spec"]["containers"]
    }
    for condition, result in (
        ("waiting", "Pending"),
        ("running", "Running"),
        ("restarting", "Running"),
        ("failed", "Failed"),
    ):
        if condition in found:
            return result
    return "Succeeded"


def _condition(container: Object, status: Object, policy: str) -> str:
    state = status.get("state") or {}
    if "running" in state:
        return "running"
    last = state.get("terminated")
    if last is None and "waiting" in state:
        # It has been started before, and waits for its next start.
        last = (status.get("lastState") or {}).get("terminated")
    if last is None:
        return "waiting"
    typed = msgspec.convert(container, types.Container)
    if container_restart.will_restart(typed, policy, types.Terminated(exitCode=last["exitCode"])):
        return "restarting"
    has_ended = "terminated" in state
    return "succeeded" if has_ended and last["exitCode"] == 0 else "failed"

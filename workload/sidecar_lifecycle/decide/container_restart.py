"""The kubelet's rule for restarting a container.

`ContainerShouldRestart` in k8s.io/kubernetes/pkg/api/v1/pod is the source. An action, operator or
condition that only a newer kubelet knows counts as a restart.
"""

from __future__ import annotations

from sidecar_lifecycle.model import types

_LOST = "ContainerStatusUnknown"
"""The reason of an end that the kubelet only assumes. It restarts such a container under any
policy (`ShouldContainerBeRestarted` in k8s.io/kubernetes/pkg/kubelet/container/helpers.go)."""


def will_restart(container: types.Container, pod_policy: str, ended: types.Terminated) -> bool:
    """Return whether the kubelet restarts a container after this end."""
    if ended.reason == _LOST or find_matching_rule(container, ended.exitCode) is not None:
        return True
    for policy in (container.restartPolicy, pod_policy):
        if policy == "Never":
            return False
        if policy == "OnFailure":
            return ended.exitCode != 0
        if policy == "Always":
            return True
    return True


def restarts_all(container: types.Container, exit_code: int) -> bool:
    """Return whether this exit code restarts all containers of the pod, or may."""
    rule = find_matching_rule(container, exit_code)
    return rule is not None and rule.action != "Restart"


def find_matching_rule(container: types.Container, exit_code: int) -> types.RestartRule | None:
    """Return the first of the container's restartPolicyRules that the exit code matches."""
    for rule in container.restartPolicyRules:
        condition = rule.exitCodes
        if condition is None or condition.operator not in ("In", "NotIn"):
            return rule
        if (exit_code in condition.values) == (condition.operator == "In"):
            return rule
    return None

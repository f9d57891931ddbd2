"""A decision about a pod's proxy, as the charm reads it."""

from __future__ import annotations

from integrator_contract import answers
from sidecar_lifecycle.decide import finished
from sidecar_lifecycle.model import types


def answer(pod: types.Pod, decision: finished.Decision) -> answers.ProxyAnswer:
    """Return the answer about a pod."""
    return answers.ProxyAnswer(
        namespace=pod.metadata.namespace or "",
        name=pod.metadata.name,
        decision=decision.action,
        reason=decision.reason,
        message=decision.message,
        containers=decision.containers,
        unknown=decision.unknown,
        holding=decision.holding,
    )

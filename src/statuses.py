"""What the operator is told about errors, and what is to be done about them."""

from __future__ import annotations

import re

import ops

import errors

_DENIED = re.compile(r'cannot (\w+) resource "([^"]+)"(?: in API group "([^"]*)")?')
_LONGEST = 200


def of_error(error: errors.CharmError, *, application: str) -> ops.StatusBase:
    """Turn an error into a status.

    Args:
        error: What went wrong.
        application: Ours, for the command that helps.
    """
    if isinstance(error, errors.ForbiddenError):
        right = missing_right(error)
        detail = f" (may not {right})" if right else ""
        return ops.BlockedStatus(f"run: juju trust {application} --scope=cluster{detail}")
    if isinstance(error, errors.ForeignError):
        return ops.BlockedStatus(str(error))
    if isinstance(error, errors.KindAbsentError):
        lacking = f"the cluster lacks a kind: are Istio's CRDs installed? ({error.message})"
        return ops.WaitingStatus(lacking[:_LONGEST])
    return ops.WaitingStatus(f"waiting for the Kubernetes API: {error}"[:_LONGEST])


def missing_right(error: errors.ForbiddenError) -> str:
    """Read which right is missing, such as `list pods`; empty where the words don't say."""
    denied = _DENIED.search(error.message)
    if denied is None:
        return ""
    group = f".{denied[3]}" if denied[3] else ""
    return f"{denied[1]} {denied[2]}{group}"

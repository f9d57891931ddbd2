"""The status that tells the operator of an error, and what to do about it."""

from __future__ import annotations

import re

import ops

from istio_integrator import texts
from istio_integrator.kube import errors

_DENIED = re.compile(r'cannot (\w+) resource "([^"]+)"(?: in API group "([^"]*)")?')
_OBJECT = re.compile(r'(\S+) "([^"]+)" is forbidden')
_REFUSED = re.compile(r"ValidatingAdmissionPolicy '([^']+)' .*denied request: (.+)", re.DOTALL)
_LONGEST = 200
LONGEST = 1000
"""Characters of a status; `juju status` shows a line of them, and much is several problems."""


def of_error(error: errors.CharmError, *, application: str) -> ops.StatusBase:
    """Turn an error into a status.

    Args:
        error: What went wrong.
        application: This charm's application, for the command that helps.
    """
    if isinstance(error, errors.ForbiddenError):
        right = missing_right(error)
        detail = f" (missing permission: {right})" if right else ""
        return ops.BlockedStatus(f"run: juju trust {application} --scope=cluster{detail}")
    if isinstance(error, errors.ApiError) and (refused := _REFUSED.search(error.message)):
        text = f"ValidatingAdmissionPolicy {refused[1]} denies it: {refused[2]}"
        return ops.BlockedStatus(text[:_LONGEST])
    if isinstance(error, errors.ConfigError | errors.ForeignError):
        return ops.BlockedStatus(str(error))
    if isinstance(error, errors.KindAbsentError):
        lacking = f"the cluster lacks a kind: are Istio's CRDs installed? ({error.message})"
        return ops.WaitingStatus(lacking[:_LONGEST])
    return ops.WaitingStatus(f"waiting for the Kubernetes API: {error}"[:_LONGEST])


def shown(status: ops.StatusBase) -> ops.StatusBase:
    """Return a status as people may see it, for it may quote what others wrote."""
    return ops.StatusBase.from_name(status.name, texts.plain(status.message, LONGEST))


def missing_right(error: errors.ForbiddenError) -> str:
    """Read which right is missing, such as `list pods` or `get configmaps istio`.

    Returns:
        Empty where the words don't say.
    """
    denied = _DENIED.search(error.message)
    if denied is None:
        return ""
    group = f".{denied[3]}" if denied[3] else ""
    resource = f"{denied[2]}{group}"
    one = _OBJECT.match(error.message)
    name = f" {one[2]}" if one and one[1] == resource else ""
    return f"{denied[1]} {resource}{name}"

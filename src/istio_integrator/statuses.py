"""The status that tells the operator of an error, and what to do about it.

A message reads `CONDITION; run: COMMAND; MORE`, with the last two where there are any. `juju
status` cuts messages at 120 characters, so `shown` has the command end within the first 100.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import ops

from integrator_contract import refusals
from istio_integrator import texts
from istio_integrator.kube import errors

_DENIED = re.compile(r'cannot (\w+) resource "([^"]+)"(?: in API group "([^"]*)")?')
_OBJECT = re.compile(r'(\S+) "([^"]+)" is forbidden')
_LONGEST = 200
LONGEST = 1000
"""Characters of a status; `juju status` shows a line of them, and much is several problems."""
VISIBLE = 100
"""Characters within which a command ends."""
_LONGEST_COMMAND = 46
"""Characters of a command that leave room for the author of a refusal."""
_LONGEST_AUTHOR = 46
"""Characters of an author that are visible behind a command; of a longer one the name is said."""
_RUN = "run: "


class Parts(NamedTuple):
    """What a message consists of."""

    condition: str
    command: str
    """Empty where the message names none."""
    more: str

    @property
    def seen(self) -> str:
        """All but the command."""
        return "; ".join(filter(None, (self.condition, self.more)))


def parts(message: str) -> Parts:
    """Take a message apart."""
    condition, _, rest = message.partition(_RUN)
    command, _, more = rest.partition("; ")
    return Parts(condition.rstrip(" :;,") if command else message, command, more)


def of_error(error: errors.CharmError, *, application: str) -> ops.StatusBase:
    """Turn an error into a status."""
    if isinstance(error, errors.ForbiddenError):
        right = missing_right(error)
        named = f": {right}" if right else ""
        return ops.BlockedStatus(
            f"missing permission{named}; run: juju trust {application} --scope=cluster"
        )
    if isinstance(error, errors.RefusedError):
        return refused(error.refusal, error.reference)
    if isinstance(error, errors.ConfigError | errors.ForeignError):
        return ops.BlockedStatus(str(error))
    if isinstance(error, errors.KindAbsentError):
        lacking = f"the cluster lacks a kind: are Istio's CRDs installed? ({error.message})"
        return ops.WaitingStatus(lacking[:_LONGEST])
    return ops.WaitingStatus(f"waiting for the Kubernetes API: {error}"[:_LONGEST])


def refused(refusal: refusals.Refusal, reference: str, consequence: str = "") -> ops.StatusBase:
    """Name who refused an object, and how the operator looks at it.

    A webhook that does not answer may be back in a moment; what refuses, somebody has to change.
    """
    kind, _, name = refusal.author.partition(" ")
    author = refusal.author if len(refusal.author) <= _LONGEST_AUTHOR else name
    verb = "does not answer for" if refusal.is_unreachable else "refuses"
    said = f"{author} {verb} {reference}; run: {_look_at(kind, name, reference)}"
    make = ops.WaitingStatus if refusal.is_unreachable else ops.BlockedStatus
    return make("; ".join(filter(None, (said, refusal.words, consequence))))


def about(error: errors.ApiError, what: str) -> str:
    """Say in one message why the API server does not take a part of what the charm writes.

    Args:
        error: Its answer.
        what: What is not taken, which ends with the namespace, as in `routes in kubeflow`.
    """
    if isinstance(error, errors.RefusedError):
        return refused(error.refusal, what).message
    return f"the API server refuses {what}: {error.message}"


def _look_at(kind: str, name: str, reference: str) -> str:
    """Return the command that shows a webhook, a policy, or what a namespace is limited to."""
    if kind == "webhook":
        return "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations"
    if kind.endswith("olicy"):
        return f"kubectl get {kind.lower()} {name} -o yaml"
    namespace = reference.rpartition(" ")[2].partition("/")[0]
    return f"kubectl describe namespace {namespace}"


def shown(status: ops.StatusBase, *, application: str) -> ops.StatusBase:
    """Return a status as people see it, whose command ends within the visible characters.

    Where the condition is too long for that, the command comes first. A long command is shown by
    the action diagnose.
    """
    message = texts.plain(status.message)
    said = parts(message)
    if said.command and message.index(_RUN) + len(_RUN) + len(said.command) > VISIBLE:
        is_long = len(said.command) > _LONGEST_COMMAND
        command = f"juju run {application}/leader diagnose" if is_long else said.command
        message = f"{_RUN}{command}; {said.seen}"
    return ops.StatusBase.from_name(status.name, texts.plain(message, LONGEST))


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

"""Messages about errors of the API server, with the author of each error."""

from __future__ import annotations

import re

from integrator_contract import refusals
from istio_integrator.kube import errors
from istio_integrator.messages import Message, Template

_DENIED = re.compile(r'cannot (\w+) resource "([^"]+)"(?: in API group "([^"]*)")?')
_OBJECT = re.compile(r'(\S+) "([^"]+)" is forbidden')
_LONGEST = 170
"""Characters of an error that a message quotes."""
_LONGEST_AUTHOR = 46
"""Characters of an author that are visible after a command; a longer one is shortened to its
name."""


def explain_error(error: errors.CharmError, *, application: str) -> Message:
    """Turn an error into a message."""
    if isinstance(error, errors.ForbiddenError):
        right = find_missing_right(error) or error.message[:_LONGEST]
        return Template.PERMISSION_MISSING(right=right, application=application)
    if isinstance(error, errors.RefusedError):
        return explain_refusal(error.refusal, error.reference)
    if isinstance(error, errors.ConfigError):
        return Template.CONFIG_INVALID(problem=str(error))
    if isinstance(error, errors.ForeignError):
        return Template.OBJECT_FOREIGN(reference=error.reference, owner=error.owner)
    if isinstance(error, errors.KindAbsentError):
        return Template.KIND_ABSENT(problem=error.message[:_LONGEST])
    said = (
        Template.SERVICE_SILENT
        if isinstance(error, errors.LifecycleError)
        else Template.API_SILENT
    )
    return said(problem=str(error)[:_LONGEST])


def explain_refusal(refusal: refusals.Refusal, reference: str, consequence: str = "") -> Message:
    """Name the author of a refusal, the object, and the command that shows the author.

    A webhook that does not answer may recover soon; a policy has to be changed. The consequence
    names the charm's failed step if it is not obvious.
    """
    name = refusal.author.partition(" ")[2]
    namespace = reference.rpartition(" ")[2].partition("/")[0]
    said = Template.WEBHOOK_SILENT if refusal.is_unreachable else Template.OBJECT_REFUSED
    return said(
        author=refusal.author if len(refusal.author) <= _LONGEST_AUTHOR else name,
        reference=reference,
        command=make_author_command(refusal, namespace),
        more="; ".join(filter(None, (refusal.words, consequence))),
    )


def explain_refused_object(error: errors.ApiError, reference: str) -> Message:
    """Explain why the API server rejects an object that no other object needs.

    The reference ends with the namespace, as in `routes in kubeflow`.
    """
    if isinstance(error, errors.RefusedError):
        return explain_refusal(error.refusal, reference)
    return Template.OBJECT_INVALID(reference=reference, words=error.message)


def make_author_command(refusal: refusals.Refusal, namespace: str) -> str:
    """Return the command that shows the author of a refusal in a namespace."""
    kind, _, name = refusal.author.partition(" ")
    if kind == "webhook":
        return "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations"
    if kind.endswith("olicy"):
        return f"kubectl get {kind.lower()} {name} -o yaml"
    return f"kubectl describe namespace {namespace}"


def find_missing_right(error: errors.ForbiddenError) -> str:
    """Return the missing right, such as `get configmaps istio`; empty if it is not named."""
    denied = _DENIED.search(error.message)
    if denied is None:
        return ""
    group = f".{denied[3]}" if denied[3] else ""
    resource = f"{denied[2]}{group}"
    one = _OBJECT.match(error.message)
    name = f" {one[2]}" if one and one[1] == resource else ""
    return f"{denied[1]} {resource}{name}"

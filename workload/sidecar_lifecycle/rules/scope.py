"""Which namespaces the reconciler serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from sidecar_lifecycle import names
from sidecar_lifecycle.kube import types

Kind = Literal["model", "profiles", "labelled"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SERVED_BY = f"{names.PREFIX}served-by"
"""The label by which the charm records which of several integrators serves a namespace."""
MODEL_ONLY: frozenset[Kind] = frozenset(("model",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What was configured about namespaces."""

    model: str
    mesh_namespace: str = ""
    owner: str = ""
    """This application, as its ownership label names it."""
    kinds: frozenset[Kind] = frozenset(KINDS)


def served_as(namespace: types.Namespace, scope: Scope) -> Kind | None:
    """Return as what kind of namespace this one is served, None if it is left alone."""
    name, labels = namespace.metadata.name, namespace.metadata.labels
    wish = labels.get(names.LIFECYCLE)
    if name in ("kube-system", scope.mesh_namespace) or names.CONTROLLER_MODEL in labels:
        return None
    if wish == "disabled":
        return None
    kind = _kind(name, labels, scope)
    if kind != "model" and labels.get(SERVED_BY, scope.owner) != scope.owner:
        return None
    return kind if kind in scope.kinds else None


def _kind(name: str, labels: dict[str, str], scope: Scope) -> Kind | None:
    if name == scope.model:
        return "model"
    if labels.get(names.LIFECYCLE) == "enabled":
        return "labelled"
    if labels.get(names.PART_OF) == names.PROFILE:
        return "profiles"
    return None


def shutdown_enabled(namespace: types.Namespace) -> bool:
    """Return whether the namespace lets proxies be stopped."""
    return namespace.metadata.annotations.get(names.PROXY_SHUTDOWN) != "disabled"

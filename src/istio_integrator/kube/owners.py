"""Removal of an application's objects without a hook, and detection of removed owners.

The charm's objects have an ownerReference to the ClusterRole that Juju creates for the
application. Juju deletes the ClusterRole when the application is removed (`Delete` in juju's
internal/provider/kubernetes/application/application.go), and Kubernetes then deletes the charm's
objects. After a forced removal Juju 4.0.15 keeps the ClusterRole, so these objects remain
(docs/how-to/clean-up.md). The ClusterRole in turn has an ownerReference to the model's Namespace.
The objects are therefore also deleted with a namespace that is deleted without Juju.

A label or an annotation on an object of another owner cannot have an ownerReference. It names the
application, and is ignored once that application is removed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec

from integrator_contract import names
from istio_integrator.kube import cluster, errors

_LONGEST_WORKLOAD = 30
"""Characters of a workload's name in the name of an object about its pods."""


_MOST_KEYS = 100
"""Labels or annotations of a record; an operator sets a few."""
_Key = Annotated[str, msgspec.Meta(min_length=1, max_length=317)]
"""A prefix of 253 characters, a slash and a name of 63."""


class UndoRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """An integrator's changes of labels or annotations on an object of another owner.

    Anyone who may write the object may write the record, so its size is bounded.
    """

    owner: Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
    """The application that made the changes, as its ownership label names it."""
    values: Annotated[Mapping[_Key, str], msgspec.Meta(max_length=_MOST_KEYS)] = msgspec.field(
        name="set"
    )
    """The values that it set."""
    before: Annotated[Mapping[_Key, str | None], msgspec.Meta(max_length=_MOST_KEYS)]
    """The earlier values; None if the key was absent."""
    restored: Annotated[tuple[int, ...], msgspec.Meta(max_length=3)] = ()
    """When it last set the values again, in seconds since the epoch."""

    @classmethod
    def read(cls, text: str | None) -> UndoRecord | None:
        """Read the text of `encode`; None for any other text."""
        try:
            return msgspec.json.decode(text or "", type=cls)
        except (ValueError, RecursionError):
            return None

    def encode(self) -> str:
        """Return the record as an annotation's value."""
        return json.dumps(msgspec.to_builtins(self), sort_keys=True)


def name_by_pods(application: str, shown: str, labels: Iterable[tuple[str, str]]) -> str:
    """Name an object after its pods' displayed name and the labels that select them."""
    plain = re.sub(r"[^a-z0-9]+", "-", shown.lower())[:_LONGEST_WORKLOAD].strip("-")
    digest = hashlib.sha256(repr(sorted(labels)).encode()).hexdigest()[:8]
    return names.name_object(application, f"{plain or 'workload'}-{digest}")


def is_gone(api: cluster.Cluster, owner: str) -> bool:
    """Tell whether an application is removed: Juju runs each as a StatefulSet of its name.

    Without the right to list StatefulSets, the application counts as present.
    """
    for namespace in api.list(cluster.NAMESPACE):
        model = namespace["metadata"]["name"]
        beginning = f"{model}."
        if len(beginning) >= names.KEPT_OF_LONG_OWNERS:
            # The label truncates a long owner.
            beginning = beginning[: names.KEPT_OF_LONG_OWNERS].rstrip("-.")
        if not owner.startswith(beginning):
            continue
        with api.skip_if_forbidden():
            found = api.list(cluster.STATEFUL_SET, model)
            if all(names.name_owner(model, each["metadata"]["name"]) != owner for each in found):
                continue
        return False
    return True


def make_owner_reference(obj: cluster.Object) -> cluster.Object:
    """Return an ownerReference to an object, with which its dependents are deleted."""
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        "blockOwnerDeletion": False,
    }


def find_anchor(api: cluster.Cluster, found: Sequence[cluster.Object]) -> cluster.Object:
    """Return the first anchor that is deleted with the model, to own the charm's objects."""
    role, namespace = found[0], found[-1]
    wanted = make_owner_reference(namespace)
    present = cluster.parts(role["metadata"], "ownerReferences")
    if role is namespace or any(each.get("uid") == wanted["uid"] for each in present):
        return role
    # The role itself has to be deleted with the model.
    change = {
        "resourceVersion": role["metadata"]["resourceVersion"],
        "ownerReferences": [*present, wanted],
    }
    with api.skip_if_forbidden():
        return api.merge_patch(role, {"metadata": change})
    return namespace


def list_anchors(api: cluster.Cluster, *, model: str, application: str) -> list[cluster.Object]:
    """List the possible owners of the charm's objects, the model's namespace last.

    Raises:
        ApiError: The model's namespace does not exist.
    """
    namespace = api.get(cluster.NAMESPACE, model)
    if namespace is None:
        raise errors.ApiError(404, f"namespace {model} does not exist")
    # Without the right to read the role, a forced removal keeps objects until the model is
    # removed.
    role = api.get_if_allowed(cluster.CLUSTER_ROLE, f"{model}-{application}")
    marks = cluster.at(role, "metadata", "labels")
    of_juju = (marks.get(names.MANAGED_BY), marks.get(names.NAME)) == ("juju", application)
    return [role, namespace] if role is not None and of_juju else [namespace]

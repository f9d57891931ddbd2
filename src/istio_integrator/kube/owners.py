"""What goes with an application when no hook of it can run, and which owners are no more.

Objects of ours bear an ownerReference to the ClusterRole that Juju makes for the application.
Juju deletes it when the application is removed (`Delete` in juju's
internal/provider/kubernetes/application/application.go), and Kubernetes then deletes ours. After
a removal by force Juju 4.0.15 leaves it, and so ours (docs/how-to/clean-up.md). So that they also
go with a namespace that is deleted without Juju, that ClusterRole in turn bears one to the
model's Namespace.

What is only a label or an annotation on somebody else's object can have no owner: it names one,
and stops to count when that application is no more.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from integrator_contract import names
from istio_integrator.kube import cluster, errors

_MAX_NAME = 63
"""Characters of a DNS label."""
_LONGEST_WORKLOAD = 30
"""Characters of a workload in the name of an object about its pods."""


class UndoRecord(msgspec.Struct, frozen=True):
    """What an integrator did to the labels or annotations of an object of another owner."""

    owner: str
    """The application that did it, as its ownership label names it."""
    values: Mapping[str, str] = msgspec.field(name="set")
    """What it set."""
    before: Mapping[str, str | None]
    """What each that it changed was before; None for absent."""

    @classmethod
    def read(cls, text: str | None) -> UndoRecord | None:
        """Read what `written` wrote; None where it is nothing of that kind."""
        try:
            return msgspec.json.decode(text or "", type=cls)
        except (ValueError, RecursionError):
            return None

    def written(self) -> str:
        """Write it as an annotation's value."""
        return json.dumps(msgspec.to_builtins(self), sort_keys=True)


def object_name(application: str, suffix: str) -> str:
    """Name an object of an application within the 63 characters of a DNS label."""
    full = f"{application}-{suffix}"
    if len(full) <= _MAX_NAME:
        return full
    digest = hashlib.sha256(application.encode()).hexdigest()[:8]
    return f"{application[: _MAX_NAME - len(suffix) - 10].rstrip('-')}-{digest}-{suffix}"


def name_by_pods(application: str, shown: str, labels: Iterable[tuple[str, str]]) -> str:
    """Name an object after the shown name of some pods and the labels that select them."""
    plain = re.sub(r"[^a-z0-9]+", "-", shown.lower())[:_LONGEST_WORKLOAD].strip("-")
    digest = hashlib.sha256(repr(sorted(labels)).encode()).hexdigest()[:8]
    return object_name(application, f"{plain or 'workload'}-{digest}")


def is_gone(api: cluster.Cluster, owner: str) -> bool:
    """Tell whether an application is no more: Juju runs each as a StatefulSet of its name.

    One that we may not look for may still be there.
    """
    for namespace in api.list(cluster.NAMESPACE):
        model = namespace["metadata"]["name"]
        beginning = f"{model}."
        if len(beginning) >= names.KEPT_OF_LONG_OWNERS:
            # The label cuts what is too long for one.
            beginning = beginning[: names.KEPT_OF_LONG_OWNERS].rstrip("-.")
        if not owner.startswith(beginning):
            continue
        with api.optional():
            found = api.list(cluster.STATEFUL_SET, model)
            if all(names.owner(model, each["metadata"]["name"]) != owner for each in found):
                continue
        return False
    return True


def reference(obj: cluster.Object) -> cluster.Object:
    """Write an ownerReference to an object; what bears it goes with that object."""
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        "blockOwnerDeletion": False,
    }


def anchor(api: cluster.Cluster, found: Sequence[cluster.Object]) -> cluster.Object:
    """Return what our objects are to go with, of `anchors`: the first that goes with the model."""
    role, namespace = found[0], found[-1]
    wanted = reference(namespace)
    present = cluster.parts(role["metadata"], "ownerReferences")
    if role is namespace or any(each.get("uid") == wanted["uid"] for each in present):
        return role
    # The role itself has to go with the model.
    change = {
        "resourceVersion": role["metadata"]["resourceVersion"],
        "ownerReferences": [*present, wanted],
    }
    with api.optional():
        return api.merge_patch(role, {"metadata": change})
    return namespace


def anchors(api: cluster.Cluster, *, model: str, application: str) -> list[cluster.Object]:
    """List what an object of ours may go with, the model's namespace last; nothing is written.

    Raises:
        ApiError: The model's namespace does not exist.
    """
    namespace = api.get(cluster.NAMESPACE, model)
    if namespace is None:
        raise errors.ApiError(404, f"namespace {model} does not exist")
    # Without the right to it, a forced removal leaves what the model's end takes away.
    role = api.get_if_allowed(cluster.CLUSTER_ROLE, f"{model}-{application}")
    marks = cluster.at(role, "metadata", "labels")
    of_juju = (marks.get(names.MANAGED_BY), marks.get(names.NAME)) == ("juju", application)
    return [role, namespace] if role is not None and of_juju else [namespace]

"""Compare a cluster's objects at two moments.

Left out are kinds and fields that change by themselves: pods and what follows from them, and what
the apiserver and controllers write about an object rather than into it. Endpoints are compared
without their addresses, which are those of pods, and a ConfigMap that serves as a leader's lock
without its holder: it is a Lease of the old kind. So is Juju's note of which application last
touched an object, a label that Juju's own webhook writes; and whether istiod's own validation must
be asked, which istiod itself writes once it has been.
"""

import asyncio
import copy
import dataclasses
import json
from collections.abc import Iterable, Mapping

from testbed import kubernetes
from testbed.kit import observer

IGNORED_KINDS = frozenset(
    {"Pod", "ReplicaSet", "ControllerRevision", "Event", "Lease", "EndpointSlice"}
)
IGNORED_METADATA = ("resourceVersion", "generation", "uid", "managedFields")
CHANGING_KEYS = {
    "annotations": (
        "endpoints.kubernetes.io/last-change-trigger-time",
        "control-plane.alpha.kubernetes.io/leader",
    ),
    "labels": ("app.juju.is/created-by",),
}


@dataclasses.dataclass(frozen=True, order=True)
class Key:
    """What identifies an object over time."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        kind = f"{self.kind}.{self.group}" if self.group else self.kind
        return f"{kind} {self.namespace}/{self.name}" if self.namespace else f"{kind} {self.name}"


Snapshot = Mapping[Key, kubernetes.Object]


@dataclasses.dataclass(frozen=True)
class Difference:
    """One object that is not as it was."""

    key: Key
    # added, removed or changed
    change: str
    # Dotted paths of the fields that differ, each with the old and the new value.
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join([self.change, str(self.key), *self.fields])


def normalised(item: kubernetes.Object) -> kubernetes.Object:
    """Drop what may change without anybody having changed the object."""
    result = copy.deepcopy(item)
    result.pop("status", None)
    for field in IGNORED_METADATA:
        result.get("metadata", {}).pop(field, None)
    if result.get("kind") == "Endpoints":
        result.pop("subsets", None)
    metadata = result.get("metadata", {})
    if metadata.get("labels", {}).get("app") == "istiod":
        for webhook in result.get("webhooks", []):
            webhook.pop("failurePolicy", None)
    for field, changing in CHANGING_KEYS.items():
        kept = {k: v for k, v in metadata.get(field, {}).items() if k not in changing}
        metadata.pop(field, None)
        if kept:
            metadata[field] = kept
    return result


def compare(
    before: Snapshot, after: Snapshot, *, recreated: Iterable[Key] = ()
) -> list[Difference]:
    """List what differs, sorted; `recreated` objects may have a new creationTimestamp."""
    forgiven = set(recreated)
    found = []
    for key in sorted(before.keys() | after.keys()):
        if key not in after:
            found.append(Difference(key, "removed"))
        elif key not in before:
            found.append(Difference(key, "added"))
        else:
            fields = _differing("", before[key], after[key])
            if key in forgiven:
                fields = [text for text in fields if ".creationTimestamp:" not in text]
            if fields:
                found.append(Difference(key, "changed", tuple(fields)))
    return found


async def snapshot(api: kubernetes.Api) -> Snapshot:
    """Read every object of every kind that can be listed."""
    resources = [
        resource
        for resource in await api.resources(refresh=True)
        if {"list", "get"} <= resource.verbs and resource.kind not in IGNORED_KINDS
    ]
    limit = asyncio.Semaphore(8)

    async def read(resource: kubernetes.Resource) -> list[tuple[Key, kubernetes.Object]]:
        async with limit:
            text = await api.request("GET", resource.path())
        return [
            (
                Key(
                    resource.group,
                    resource.kind,
                    item["metadata"].get("namespace", ""),
                    item["metadata"]["name"],
                ),
                normalised({**item, "kind": resource.kind}),
            )
            for item in json.loads(text).get("items") or []
        ]

    lists = await asyncio.gather(*(read(resource) for resource in resources))
    return {key: item for pairs in lists for key, item in pairs}


async def until_same(
    api: kubernetes.Api, before: Snapshot, within: float, *, recreated: Iterable[Key] = ()
) -> None:
    """Wait until the cluster's objects are as before; controllers may still be tidying up."""
    last: list[Difference] = []

    async def is_same() -> bool:
        nonlocal last
        last = compare(before, await snapshot(api), recreated=recreated)
        return not last

    try:
        await observer.eventually(is_same, within, "the same objects as before", every=2)
    except observer.NotObserved:
        shown = "; ".join(str(difference) for difference in last[:20])
        raise observer.NotObserved(f"{len(last)} objects differ: {shown}") from None


def _differing(path: str, old: object, new: object) -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            text
            for key in sorted(old.keys() | new.keys())
            for text in _differing(f"{path}.{key}", old.get(key), new.get(key))
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [text for i, (a, b) in pairs for text in _differing(f"{path}[{i}]", a, b)]
    return [] if old == new else [f"{path}: {_short(old)} -> {_short(new)}"]


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

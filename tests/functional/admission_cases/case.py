"""A case of the table: a pod, the settings it meets, and what it gets."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

PREFIX = "istio-integrator.charmhub.io/"
INJECT = "sidecar.istio.io/inject"
NATIVE = "sidecar.istio.io/nativeSidecar"
CONFIG = "proxy.istio.io/config"
PORTS = "traffic.sidecar.istio.io/excludeOutboundPorts"
APPLIED = f"{PREFIX}applied"
MESH_PROBE = f"{PREFIX}mesh-probe"
HOLD = '{"holdApplicationUntilProxyStarts": true}'
KEY = "holdApplicationUntilProxyStarts"

APPLICATION = "istio-integrator"

SETTINGS: dict[str, dict[str, Any]] = {
    "hold": {"excluded-pods": "tier in (outside, edge),!keep"},
    "native": {"native": True},
    "mesh-holds": {"hold-application": False, "mesh-holds": True},
    "neither": {"hold-application": False, "excluded-pods": "alone"},
    "selected": {
        "membership": "selected",
        "included-pods": "team=ml,stage!=old",
        "excluded-pods": "never",
    },
    "revision": {
        "membership": "selected",
        "included-pods": "team",
        "inject-label": {"istio.io/rev": "canary"},
        "hold-application": False,
    },
    "ambient": {
        "data-plane": "ambient",
        "native": True,
        "excluded-pods": "tier=db",
        "pod-labels": [{"pods": "app=web", "add": {"tier": "front"}}],
        "excluded-outbound-ports": [{"ports": [5432]}],
    },
    "ambient-selected": {
        "data-plane": "ambient",
        "membership": "selected",
        "included-pods": "team=ml",
        "excluded-pods": "never",
        "inject-label": {"istio.io/dataplane-mode": "ambient"},
    },
    "place-only": {"lifecycle-in-model": False, "excluded-pods": "outside=true", "native": True},
    "rules": {
        "hold-application": False,
        "excluded-pods": "outside",
        "pod-labels": [
            {"pods": "app=web", "add": {"tier": "front", "cost-centre": "7"}},
            {"add": {"tier": "other"}},
        ],
        "pod-annotations": [
            {"pods": "app in (web)", "add": {"example.com/note": 'a "quoted" <b>\n'}},
            {"pods": "tuned", "add": {CONFIG: "concurrency: 1"}},
        ],
        "excluded-outbound-ports": [
            {"pods": "db", "ports": [5432, 6379]},
            {"pods": "cache", "ports": [6379, 11211]},
        ],
        "image-registries": [
            {
                "pods": "mirrored",
                "prefixes": {
                    "docker.io/library": "mirror.example/official",
                    "docker.io": "mirror.example/hub",
                    "quay.io": "mirror.example:5000/quay",
                },
            }
        ],
    },
    "everything": {
        "native": True,
        "pod-labels": [{"add": {"tier": "other"}}],
        "pod-annotations": [{"add": {CONFIG: "concurrency: 1"}}],
        "excluded-outbound-ports": [{"ports": [5432]}],
        "image-registries": [{"pods": "!original", "prefixes": {"docker.io": "mirror.example"}}],
    },
}
"""The settings of the webhook, without `model` and `application`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A pod, and what it gets."""

    id: str
    settings: str = "hold"
    namespace: str = "model"
    """`model`, `profiles`, `labelled`; on an API server also one that is out of scope."""
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    annotations: dict[str, str] = dataclasses.field(default_factory=dict)
    spec: dict[str, Any] = dataclasses.field(default_factory=dict)
    want: tuple[str, ...] = ()
    """What is applied."""
    want_labels: dict[str, str] = dataclasses.field(default_factory=dict)
    """Added or changed ones."""
    want_annotations: dict[str, str] = dataclasses.field(default_factory=dict)
    """Added or changed ones; `applied` is not written here unless the pod had one before."""
    want_images: dict[str, str] = dataclasses.field(default_factory=dict)
    """By container."""
    want_first: str = ""
    """The container that is moved to the front."""
    is_marked: bool = True
    """Whether there is place for the annotation that says what is applied."""
    skipped: tuple[str, ...] = ()
    """As `change:reason`."""

    def pod(self, namespace: str) -> dict[str, Any]:
        """Write the pod as it is sent."""
        metadata: dict[str, Any] = {"name": "case", "namespace": namespace}
        if self.labels:
            metadata["labels"] = self.labels
        if self.annotations:
            metadata["annotations"] = self.annotations
        spec = {"containers": [container("main", "registry.example/app:1")], **self.spec}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def in_order(self, containers: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Put the containers into the order that they have afterwards."""
        if not self.want_first:
            return containers
        return sorted(containers, key=lambda each: each["name"] != self.want_first)

    @property
    def all_labels(self) -> dict[str, str]:
        """The labels afterwards."""
        return {**self.labels, **self.want_labels}

    @property
    def all_annotations(self) -> dict[str, str]:
        """The annotations afterwards."""
        applied = {APPLIED: ",".join(self.want)} if self.want and self.is_marked else {}
        return {**self.annotations, **applied, **self.want_annotations}


def container(name: str, image: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": image, **fields}


def patched(pod: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    """Apply a JSON patch of the kinds that the rule writes."""
    pod = json.loads(json.dumps(pod))
    for operation in patch:
        *parents, last = [
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
        ]
        target: Any = pod
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target[part]
        if operation["op"] == "move":
            assert operation["from"].rpartition("/")[0] == operation["path"].rpartition("/")[0]
            target.insert(int(last), target.pop(int(operation["from"].rpartition("/")[2])))
            continue
        # To add where there is null is to replace it.
        assert (target.get(last) is not None) == (operation["op"] == "replace")
        target[last] = operation["value"]
    return pod


NO_SIDECAR = {INJECT: "false"}
SIDECAR = {INJECT: "true"}
OUT_OF_AMBIENT = {"istio.io/dataplane-mode": "none"}
IN_AMBIENT = {"istio.io/dataplane-mode": "ambient"}
TO_COMPLETION = {"restartPolicy": "Never"}
HELD = {CONFIG: HOLD}
HELD_LINE = f"{KEY}: true\n"
HELD_KEY = f'"{KEY}": true'
SNAKE = "hold_application_until_proxy_starts"
FILLER = "example.com/filler"
MOST_BYTES = 256 * 1024
"""Of all annotations together, their keys included: the API server takes no more."""


def filler(room: int, **annotations: str) -> dict[str, str]:
    """Write annotations that leave so many bytes to others, in letters of two bytes."""
    left = MOST_BYTES - room - len(FILLER) - sum(map(len, [*annotations, *annotations.values()]))
    return {**annotations, FILLER: "é" * (left // 2) + "e" * (left % 2)}


def excluded(name: str, **fields: Any) -> Case:
    """A pod that is kept out of the mesh."""
    return Case(id=name, want=("excluded",), want_labels=NO_SIDECAR, **fields)


def held(name: str, **fields: Any) -> Case:
    """A pod without a configuration of its proxy, which is held."""
    return Case(id=name, want=("hold",), want_annotations=HELD, **fields)


def native(name: str, **fields: Any) -> Case:
    """A pod that asks for a native sidecar, behind which nothing has to be held."""
    wanted = {NATIVE: "true"}
    skipped = ("hold:NativeSidecar",)
    return Case(id=name, want=("native",), want_annotations=wanted, skipped=skipped, **fields)

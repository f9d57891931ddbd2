"""Objects as somebody would write them who wants to see us fall: valid ones, spoilt in places.

What is spoilt is chosen by a seeded generator, so a seed and a number name an object for good.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

from tests.unit.workload import pods

PREFIX = "istio-integrator.charmhub.io/"
READ = (
    "status.sidecar.istio.io/port",
    "sidecar.istio.io/status",
    "sidecar.istio.io/inject",
    "inject.istio.io/templates",
    "deprecated.daemonset.template.generation",
    "istio.io/rev",
    *(f"{PREFIX}{name}" for name in ("wait-for-containers", "ignore-containers")),
    *(f"{PREFIX}{name}" for name in ("proxy-shutdown", "restart-pods", "applied", "served")),
)
"""Labels and annotations that somebody here reads."""

LARGEST = 1_500_000
"""Bytes of an object that the API takes."""
_RAW = {
    "RAW-digits": b"1" * 4301,
    "RAW-lists": b"[" * 1000 + b"]" * 1000,
    "RAW-mappings": b'{"a":' * 1000 + b"1" + b"}" * 1000,
    "RAW-float": b"1e999",
    "RAW-twice": b'{"name":"a","name":5}',
}
"""Texts that `json.dumps` would not write."""
_BROKEN = {
    "RAW-open": b"[" * 50,
    "RAW-bytes": b'"\xff\xfe"',
    "RAW-surrogate": b'"\\ud800"',
    "RAW-encoded-surrogate": b'"\xed\xa0\x80"',
}
"""Texts that no apiserver sends; in a list they would take the whole of it with them."""
_TEXTS = (
    "",
    "0",
    "-1",
    "65536",
    "1" * 4301,
    "[" * 2000,
    '{"revision":' + "[" * 2000,
    "a," * 5000,
    "," * 5000,
    "x" * 100_000,
    "\x00\n\x1b[2J",
    "2026-13-45T99:99:99Z",
    "2026-01-01T00:00:00",
    "enabled",
    "disabled",
    "proxyv2:1." + "1" * 5000,
    ":1.1" * 5000 + "/",
)
_VALUES: tuple[Any, ...] = (None, True, 0, -1, 2**31, 2**64, 10**40, 1.5, [], {}, [[]], {"": None})


class Vandal:
    """Spoils documents."""

    def __init__(self, seed: int, *, broken: bool = True) -> None:
        self._random = random.Random(seed)
        self._raw = _RAW | _BROKEN if broken else _RAW

    def spoil(self, document: dict[str, Any], number: int) -> bytes:
        """Return an object of its own name, spoilt in one to four places, as the API sends it."""
        item = copy.deepcopy(document)
        item["metadata"] |= {"name": f"hostile-{number}", "uid": f"hostile-{number}"}
        for _ in range(self._random.randint(1, 4)):
            if item:
                self._random.choice(_HABITS)(self, item)
        text = json.dumps(item).encode()
        for mark, raw in self._raw.items():
            text = text.replace(f'"{mark}"'.encode(), raw)
        return text if len(text) <= LARGEST else self.spoil(document, number)

    def any_value(self) -> Any:
        """Return a value of whatever type."""
        values = self._random.choice((_VALUES, _TEXTS, tuple(self._raw)))
        return copy.deepcopy(self._random.choice(values))

    def _replace(self, item: Any) -> None:
        """Put something else in a place, however deep."""
        holder, key = self._random.choice(list(_places(item)))
        holder[key] = self.any_value()

    def _annotate(self, item: Any) -> None:
        """Write something into a label or an annotation that is read."""
        metadata = item.get("metadata")
        if isinstance(metadata, dict):
            notes = metadata.setdefault(self._random.choice(("labels", "annotations")), {})
            if isinstance(notes, dict):
                notes[self._random.choice(READ)] = self._random.choice(_TEXTS)

    def _repeat(self, item: Any) -> None:
        """Have the entries of a list many times."""
        lists = [holder[key] for holder, key in _places(item) if isinstance(holder[key], list)]
        if lists:
            chosen = self._random.choice(lists)
            chosen.extend(copy.deepcopy(chosen[:3]) * self._random.choice((1, 3, 300)))

    def _forget(self, item: Any) -> None:
        """Leave something out."""
        holder, key = self._random.choice(list(_places(item)))
        if isinstance(holder, dict):
            del holder[key]

    def _swap(self, item: Any) -> None:
        """Put what belongs in one place in another."""
        places = list(_places(item))
        (one, a), (other, b) = self._random.choice(places), self._random.choice(places)
        one[a] = copy.deepcopy(other[b])


_HABITS: tuple[Callable[[Vandal, Any], None], ...] = (
    Vandal._replace,
    Vandal._replace,
    Vandal._annotate,
    Vandal._repeat,
    Vandal._forget,
    Vandal._swap,
)


def _places(item: Any) -> Any:
    """Yield every holder of a value with the key or index at which it is."""
    pairs = item.items() if isinstance(item, dict) else enumerate(item)
    for key, value in list(pairs):
        yield item, key
        if isinstance(value, dict | list):
            yield from _places(value)


_KNOWN: list[Callable[[dict[str, Any]], None]] = [
    lambda pod: pod["metadata"]["annotations"].update({"sidecar.istio.io/status": "[" * 2000}),
    lambda pod: pod["spec"]["containers"][1].update(image=f"proxyv2:1.{'1' * 5000}"),
    lambda pod: pod["spec"]["containers"][1].update(image=":1.1" * 100_000 + "/"),
    lambda pod: pod["status"]["conditions"][0].update(lastTransitionTime="soon"),
    lambda pod: pod["metadata"].update(creationTimestamp="9" * 5000),
    lambda pod: pod["metadata"].update(labels=[]),
]


def known() -> list[bytes]:
    """Return the pods that once cost more than themselves."""
    found = []
    for number, spoil in enumerate(_KNOWN):
        item = pod(name=f"hostile-known-{number}", uid=f"hostile-known-{number}")
        spoil(item)
        found.append(json.dumps(item).encode())
    return found


def _owner(kind: str) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": "u", "controller": True}


def pod(**extra: Any) -> dict[str, Any]:
    """Return a pod with something in every place that is read."""
    rules = {"restartPolicyRules": [pods.rule("Restart", 3)], "restartPolicy": "Never"}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    annotations = {"sidecar.istio.io/status": '{"revision":"default"}'}
    return pods.pod_json(
        **{
            "main_spec": rules,
            "init": [pods.container("istio-init")],
            "init_statuses": [pods.status("istio-init", pods.ended())],
            "conditions": [ready, {"type": "DisruptionTarget", "status": "False"}],
            "annotations": annotations,
            "ownerReferences": [_owner("StatefulSet")],
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "namespace": "tenant",
            **extra,
        }
    )


def _meta(**extra: Any) -> dict[str, Any]:
    return {"name": "x", "namespace": "tenant", "uid": "u", "generation": 1, **extra}


_TEMPLATE = {
    "metadata": {"labels": {"istio": "gateway"}, "annotations": {}},
    "spec": {"containers": [{"name": "istio-proxy", "args": ["proxy", "router"]}]},
}
_WORKLOAD = {
    "metadata": _meta(annotations={}, ownerReferences=[_owner("Namespace")]),
    "spec": {
        "replicas": 2,
        "updateStrategy": {"type": "OnDelete"},
        "template": _TEMPLATE,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
    },
    "status": {
        "readyReplicas": 1,
        "numberReady": 1,
        "desiredNumberScheduled": 2,
        "observedGeneration": 1,
        "updateRevision": "r",
    },
}
DOCUMENTS: dict[str, dict[str, Any]] = {
    "namespaces": {
        "metadata": {
            "name": "x",
            "uid": "u",
            "labels": {"app.kubernetes.io/part-of": "kubeflow-profile"},
            "annotations": {},
        }
    },
    "deployments": _WORKLOAD,
    "daemonsets": _WORKLOAD,
    "statefulsets": _WORKLOAD,
    "replicasets": {"metadata": _meta(ownerReferences=[_owner("Deployment")])},
    "services": {
        "metadata": _meta(),
        "spec": {"selector": {"istio": "gateway"}, "ports": [{"name": "http", "port": 80}]},
    },
    "gateways": {"metadata": _meta(), "spec": {"servers": [{"hosts": ["*"]}]}},
    "envoyfilters": {
        "metadata": _meta(creationTimestamp="2026-01-01T00:00:00Z"),
        "spec": {"configPatches": [{"patch": {"value": {"a": [1]}}}]},
    },
    "mutatingwebhookconfigurations": {
        "metadata": {"name": "istio-sidecar-injector", "uid": "u", "labels": {}},
        "webhooks": [
            {"name": "a", "clientConfig": {"service": {"namespace": "n", "name": "istiod"}}}
        ],
    },
    "endpointslices": {"metadata": _meta(), "endpoints": [{"conditions": {"ready": True}}]},
    "configmaps": {
        "metadata": _meta(resourceVersion="1"),
        "data": {"state": '{"rounds":{},"proven":["sidecar"]}', "request": "null"},
    },
}

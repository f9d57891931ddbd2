"""What happened to a model's pods, from their watch: who was taken, and what was missing then.

The watch of one kind is in the order in which things happened, so what overlaps here overlapped.
"""

import dataclasses
import datetime
import re
import time
from collections.abc import Mapping
from typing import Any

from testbed import kubernetes
from testbed.kit import observer

STATUS = "sidecar.istio.io/status"


@dataclasses.dataclass(frozen=True)
class Pod:
    """One version of a pod."""

    name: str
    uid: str
    workload: str
    """Such as `StatefulSet/foo`, and `Pod/foo` for one that nothing owns."""
    injected: bool
    ready_since: float | None
    going: bool

    @property
    def ready(self):
        return self.ready_since is not None and not self.going


@dataclasses.dataclass(frozen=True)
class Taken:
    """A pod's end, which somebody asked for."""

    pod: Pod
    """Just before."""
    at: float
    """Seconds since the epoch at which it was seen."""


def parse(item: Mapping[str, Any]) -> Pod:
    meta = item["metadata"]
    conditions = item.get("status", {}).get("conditions") or ()
    ready = ("Ready", "True")
    since = next(
        (c["lastTransitionTime"] for c in conditions if (c["type"], c["status"]) == ready), None
    )
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        workload=_workload(meta),
        injected=STATUS in (meta.get("annotations") or {}),
        ready_since=datetime.datetime.fromisoformat(since).timestamp() if since else None,
        going="deletionTimestamp" in meta,
    )


def _workload(meta: Mapping[str, Any]) -> str:
    owner = next((each for each in meta.get("ownerReferences") or () if each["controller"]), None)
    if owner is None:
        return f"Pod/{meta['name']}"
    if owner["kind"] == "ReplicaSet":
        return f"Deployment/{re.sub('-[a-z0-9]+$', '', owner['name'])}"
    return f"{owner['kind']}/{owner['name']}"


class Ledger:
    """The books of one model."""

    def __init__(self, replicas: Mapping[str, int]):
        self.replicas = replicas
        """Pods that each workload should have; others are not looked after."""
        self.pods: dict[str, Pod] = {}
        self.taken: list[Taken] = []
        self.emptied: set[str] = set()
        """Workloads of several replicas that were whole, and then had none Ready."""
        self.most_at_once = 0
        """Workloads that missed a Ready pod because it was taken, at the worst moment."""
        self._whole: set[str] = set()
        self._open: set[str] = set()

    def add(self, event: str, item: Mapping[str, Any], at: float) -> None:
        """Take in one event of the watch."""
        now, before = parse(item), self.pods.get(item["metadata"]["uid"])
        if event == "DELETED":
            self.pods.pop(now.uid, None)
        else:
            self.pods[now.uid] = now
        if before and not before.going and (now.going or event == "DELETED"):
            self.taken.append(Taken(before, at))
            if before.ready and before.workload in self.replicas:
                self._open.add(before.workload)
        self._count(now.workload)

    def of(self, *workloads: str) -> list[Pod]:
        """The pods of some workloads that are not on their way out."""
        return [pod for pod in self.pods.values() if pod.workload in workloads and not pod.going]

    def is_whole(self, workload: str) -> bool:
        """Whether a workload has all its pods, Ready."""
        pods = self.of(workload)
        return len(pods) == self.replicas[workload] and all(pod.ready for pod in pods)

    def _count(self, workload: str) -> None:
        if workload not in self.replicas:
            return
        if self.is_whole(workload):
            self._whole.add(workload)
            self._open.discard(workload)
        ready = any(pod.ready for pod in self.of(workload))
        if self.replicas[workload] > 1 and workload in self._whole and not ready:
            self.emptied.add(workload)
        self.most_at_once = max(self.most_at_once, len(self._open))


class Watcher(observer.Observer):
    """Keeps the books of one model beside what it sees of all."""

    def __init__(self, model: str, replicas: Mapping[str, int]):
        super().__init__()
        self.model = model
        self.ledger = Ledger(replicas)

    async def add(self, event: str, item: kubernetes.Object) -> None:
        if item["kind"] == "Pod" and item["metadata"]["namespace"] == self.model:
            self.ledger.add(event, item, time.time())
        await super().add(event, item)

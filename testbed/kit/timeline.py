"""What each container did and when, built from the pods that a watch reports.

Times are seconds on the observer's clock at which the apiserver reported the change. The kubelet
looks at its containers once a second, so each is up to a second late.
"""

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from typing import Any

PROXY = "istio-proxy"


class Role(enum.StrEnum):
    """What a container is for."""

    INIT = "init"
    PROXY = "proxy"
    PAYLOAD = "payload"


class State(enum.StrEnum):
    """What a container is doing, a little finer than in the API."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"

    @property
    def has_ended(self) -> bool:
        """Whether the container's process has exited."""
        return self in (State.FINISHED, State.FAILED)


@dataclasses.dataclass(frozen=True)
class Seen:
    """One container as one version of its pod shows it."""

    state: State
    restarts: int = 0
    exit_code: int | None = None


@dataclasses.dataclass(frozen=True)
class Interval:
    """A stretch of time in which a container's state did not change."""

    seen: Seen
    start: float
    # None while it lasts.
    end: float | None = None


@dataclasses.dataclass
class ContainerLine:
    """The history of one container."""

    name: str
    role: Role
    intervals: list[Interval] = dataclasses.field(default_factory=list)

    @property
    def now(self) -> Seen:
        """The latest state."""
        return self.intervals[-1].seen if self.intervals else Seen(State.WAITING)

    @property
    def ended_at(self) -> float | None:
        """When the container exited for the last time, None unless it stays so."""
        return self.intervals[-1].start if self.now.state.has_ended else None

    def failures(self) -> int:
        """How many of its runs ended with an exit code other than 0.

        A run whose end was not reported before the next one began counts as failed.
        """
        runs = [interval.seen for interval in self.intervals]
        failed = {seen.restarts for seen in runs if seen.state is State.FAILED}
        ended = {seen.restarts for seen in runs if seen.state.has_ended}
        return len(failed | (set(range(self.now.restarts)) - ended))

    def add(self, at: float, seen: Seen) -> None:
        """Extend the history by one report."""
        if self.intervals:
            last = self.intervals[-1]
            if last.seen == seen:
                return
            self.intervals[-1] = dataclasses.replace(last, end=at)
        self.intervals.append(Interval(seen, at))

    def close(self, at: float) -> None:
        """End the history: the pod is gone."""
        if self.intervals and self.intervals[-1].end is None:
            self.intervals[-1] = dataclasses.replace(self.intervals[-1], end=at)


@dataclasses.dataclass
class PodLine:
    """The history of one pod."""

    namespace: str
    name: str
    uid: str
    created: float
    containers: dict[str, ContainerLine] = dataclasses.field(default_factory=dict)
    deleted: float | None = None
    # The newest version of the pod.
    pod: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def proxy(self) -> ContainerLine | None:
        """The sidecar's container."""
        return self.containers.get(PROXY)

    @property
    def payload(self) -> list[ContainerLine]:
        """The containers that the user asked for."""
        return [line for line in self.containers.values() if line.role is Role.PAYLOAD]

    @property
    def is_ready(self) -> bool:
        """Whether the pod is Ready now."""
        return is_ready(self.pod) and self.deleted is None

    @property
    def phase(self) -> str:
        """The pod's phase."""
        return self.pod.get("status", {}).get("phase", "")

    @property
    def is_going(self) -> bool:
        """Whether the pod is gone or being deleted."""
        return self.deleted is not None or bool(self.pod["metadata"].get("deletionTimestamp"))

    @property
    def payload_ended_at(self) -> float | None:
        """When the last payload container exited, None unless all have."""
        ends = [line.ended_at for line in self.payload]
        if not ends or any(end is None for end in ends):
            return None
        return max(end for end in ends if end is not None)


class Timeline:
    """The histories of all pods seen so far, by UID."""

    def __init__(self) -> None:
        self.pods: dict[str, PodLine] = {}

    def add(self, at: float, event: str, pod: Mapping[str, Any]) -> PodLine:
        """Take in one event of a watch."""
        metadata = pod["metadata"]
        line = self.pods.setdefault(
            metadata["uid"],
            PodLine(metadata["namespace"], metadata["name"], metadata["uid"], at),
        )
        line.pod = pod
        for name, (role, seen) in containers(pod).items():
            line.containers.setdefault(name, ContainerLine(name, role)).add(at, seen)
        if event == "DELETED":
            line.deleted = at
            for container in line.containers.values():
                container.close(at)
        return line

    def select(
        self, namespace: str, labels: Mapping[str, str] | None = None, prefix: str = ""
    ) -> list[PodLine]:
        """Return a namespace's pods that carry the labels, oldest first."""
        wanted = (labels or {}).items()
        return [
            line
            for line in self.pods.values()
            if line.namespace == namespace
            and line.name.startswith(prefix)
            and wanted <= (line.pod["metadata"].get("labels") or {}).items()
        ]


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is Ready and stays."""
    conditions = pod.get("status", {}).get("conditions") or []
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def containers(pod: Mapping[str, Any]) -> dict[str, tuple[Role, Seen]]:
    """Read each container's role and state from a pod; init containers first."""
    spec, status = pod["spec"], pod.get("status", {})
    statuses = {
        item["name"]: item
        for field in ("initContainerStatuses", "containerStatuses")
        for item in status.get(field) or []
    }
    result = {}
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or []:
            name = container["name"]
            role = Role.INIT if field == "initContainers" else Role.PAYLOAD
            role = Role.PROXY if name == PROXY else role
            result[name] = (role, container_state(statuses.get(name, {})))
    return result


def container_state(status: Mapping[str, Any]) -> Seen:
    """Read one container status; an empty one is waiting."""
    restarts = status.get("restartCount", 0)
    state = status.get("state") or {}
    if "running" in state:
        return Seen(State.RUNNING, restarts)
    if "terminated" in state:
        code = state["terminated"].get("exitCode", 0)
        return Seen(State.FINISHED if code == 0 else State.FAILED, restarts, code)
    return Seen(State.WAITING, restarts)


def proxies_run(pods: Iterable[PodLine]) -> bool:
    """Whether each pod has a proxy that runs."""
    return all(pod.proxy and pod.proxy.now.state is State.RUNNING for pod in pods)


def failures(pods: Iterable[PodLine]) -> int:
    """Count runs of payload containers that ended with an error."""
    return sum(line.failures() for pod in pods for line in pod.payload)


def last_payload_end(pods: Iterable[PodLine]) -> float | None:
    """When the last payload container of the last pod exited, None unless all have."""
    ends = [pod.payload_ended_at for pod in pods]
    if not ends or any(end is None for end in ends):
        return None
    return max(end for end in ends if end is not None)


def proxy_delays(pods: Iterable[PodLine]) -> list[float]:
    """For each pod whose proxy has ended after its payload: the seconds in between, sorted."""
    delays = []
    for pod in pods:
        payload, proxy = pod.payload_ended_at, pod.proxy.ended_at if pod.proxy else None
        if payload is not None and proxy is not None:
            delays.append(max(0.0, proxy - payload))
    return sorted(delays)


def quantile(values: list[float], share: float) -> float:
    """Return the nearest-rank quantile of sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))]

"""The payload containers of a pod, and those that have not ended permanently."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from integrator_contract import names, service
from integrator_contract.reasons import Reason
from sidecar_lifecycle.model import types

from . import container_restart

STALE = Reason.STALE_STATUS
"""The reason for a container that ended before its pod started, by the node's clock."""
LONGEST_LIST = 4096
"""Characters of an annotation that lists containers: 64 names of maximum length."""
MOST_NAMES = 64
"""Containers in such a list; pods with half as many are rare."""
MOST_SAID = 8
"""Containers that a message names; each watched pod's message is kept in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The containers whose end matters."""

    containers: tuple[types.Container, ...]
    unknown: tuple[str, ...] = ()
    """Names in the pod's annotations that match none of its containers."""
    reason: Reason | None = None
    """The reason not to stop the proxy, if any: no payload, or an unreadable list."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The reason why a container has not ended permanently."""

    container: str
    reason: Reason
    message: str

    def __str__(self) -> str:
        return f"{self.container} {self.message}"


def select_payload(pod: types.Pod, rules: service.Rules) -> Selection:
    """Return the payload of a pod, by its annotations or else by the rules.

    An unknown name in `wait-for-containers` voids the whole list: waiting for more containers than
    intended is harmless, for fewer is not.
    """
    own = [container for container in pod.spec.containers if container.name != names.PROXY]
    if not own:
        return _select_nothing("the pod has no container beside the proxy")
    present = {container.name for container in own}
    annotations = pod.metadata.annotations
    for key in (names.WAIT_FOR_CONTAINERS, names.IGNORE_CONTAINERS):
        text = annotations.get(key, "")
        if len(text) > LONGEST_LIST or text.count(",") >= MOST_NAMES:
            return Selection(
                containers=tuple(own),
                reason=Reason.BAD_CONTAINER_LIST,
                message=f"{key} is longer than {LONGEST_LIST} characters or {MOST_NAMES} names",
            )
    # A list of only commas and blanks is empty.
    asked_wait = service.split_list(annotations.get(names.WAIT_FOR_CONTAINERS, ""))
    asked_ignore = service.split_list(annotations.get(names.IGNORE_CONTAINERS, ""))

    waited = set(asked_wait or rules.wait_for_containers)
    narrowed = waited & present if not asked_wait or waited <= present else set[str]()
    ignored = set(asked_ignore or rules.ignore_containers)

    # Native sidecars are always ignored, so naming one is allowed.
    ignorable = present | {container.name for container in pod.spec.initContainers}
    unknown = [name for name in asked_wait if name not in present]
    unknown += [name for name in asked_ignore if name not in ignorable]
    left = tuple(
        container
        for container in own
        if container.name not in ignored and (not narrowed or container.name in narrowed)
    )
    said = tuple(dict.fromkeys(unknown))
    if not left:
        return _select_nothing("every container beside the proxy is to be ignored", said)
    return Selection(containers=left, unknown=said)


def _select_nothing(message: str, unknown: tuple[str, ...] = ()) -> Selection:
    reason = Reason.NOTHING_TO_WAIT_FOR
    return Selection(containers=(), unknown=unknown, reason=reason, message=message)


def join_some(parts: Sequence[object], separator: str = "; ") -> str:
    """Join the first parts, and add the number of the others."""
    rest = len(parts) - MOST_SAID
    said = separator.join(map(str, parts[:MOST_SAID]))
    return f"{said}{separator}and {rest} more" if rest > 0 else said


def map_statuses(pod: types.Pod) -> dict[str, types.ContainerStatus]:
    """Return the reported statuses by container; the first of several counts."""
    return {each.name: each for each in reversed(pod.status.containerStatuses)}


def list_without_status(pod: types.Pod) -> tuple[str, ...]:
    """Return all containers without a status from the kubelet, payload or not."""
    known = {status.name for status in pod.status.containerStatuses}
    return tuple(each.name for each in pod.spec.containers if each.name not in known)


def list_unfinished(
    pod: types.Pod, containers: tuple[types.Container, ...], *, old_ends_count: bool = False
) -> tuple[Unfinished, ...]:
    """Return the containers that have not ended permanently."""
    known = map_statuses(pod)
    found = (
        _find_unfinished(pod, container, known.get(container.name)) for container in containers
    )
    return tuple(
        each
        for each in found
        if each is not None and not (old_ends_count and each.reason == STALE)
    )


def _find_unfinished(
    pod: types.Pod, container: types.Container, status: types.ContainerStatus | None
) -> Unfinished | None:
    name = container.name
    if status is None:
        return Unfinished(name, Reason.NO_STATUS, "has no status yet")
    state = status.state
    if state.running is not None:
        return Unfinished(name, Reason.PAYLOAD_RUNNING, "is running")
    ended = state.terminated
    if ended is None or state.waiting is not None:
        why = state.waiting.reason if state.waiting else None
        return Unfinished(name, Reason.PAYLOAD_WAITING, f"is waiting ({why or 'no reason given'})")
    if container_restart.will_restart(container, pod.spec.restartPolicy, ended):
        message = f"ended with {ended.exitCode} and is started again"
        return Unfinished(name, Reason.PAYLOAD_RESTARTING, message)
    # Both times are from the node's clock, so an older end is not of this pod's containers.
    started = pod.status.startTime
    if started and ended.finishedAt and ended.finishedAt < started:
        return Unfinished(name, STALE, "has a status from before the pod started")
    return None


def find_restart(pod: types.Pod) -> Unfinished | None:
    """Return the cause of a pending restart of all containers, including ended ones."""
    for condition in pod.status.conditions:
        if condition.type == "AllContainersRestarting" and condition.status == "True":
            return Unfinished("all", Reason.POD_RESTARTING, "containers are being restarted")
    # Names are unique across containers and init containers.
    initial = {status.name: status for status in pod.status.initContainerStatuses}
    known = initial | map_statuses(pod)
    for container in (*pod.spec.containers, *pod.spec.initContainers):
        status = known.get(container.name)
        ended = status.state.terminated if status else None
        if ended is not None and container_restart.restarts_all(container, ended.exitCode):
            message = f"ended with {ended.exitCode}, which restarts all containers"
            return Unfinished(container.name, Reason.POD_RESTARTING, message)
    for container in pod.spec.initContainers:
        status = initial.get(container.name)
        # The sandbox was recreated, so ends in the old one do not count yet.
        if container.restartPolicy != "Always" and status and status.state.running is not None:
            return Unfinished(container.name, Reason.INITIALIZING, "(init container) is running")
    return None


def find_end(pod: types.Pod, rules: service.Rules) -> str:
    """Return when the payload ended permanently before its proxy; empty if it has not.

    If every container is ignored, the end of all of them counts.
    """
    known = map_statuses(pod)
    proxy = known.get(names.PROXY)
    own = tuple(container for container in pod.spec.containers if container.name != names.PROXY)
    selected = select_payload(pod, rules).containers or own
    if proxy is None or proxy.state.terminated is not None or list_unfinished(pod, selected):
        return ""
    return find_last_end(pod, [container.name for container in selected])


def find_last_end(pod: types.Pod, containers: Collection[str]) -> str:
    """Return when the last of these containers ended; empty without an end or its time."""
    ends = (
        each.state.terminated for name, each in map_statuses(pod).items() if name in containers
    )
    return max((end.finishedAt or "" for end in ends if end is not None), default="")


def list_succeeded(pod: types.Pod) -> tuple[str, ...]:
    """Return the containers other than the proxy that ended with 0."""
    ends = {name: status.state.terminated for name, status in map_statuses(pod).items()}
    return tuple(
        name for name, end in ends.items() if name != names.PROXY and end and not end.exitCode
    )


def describe_ends(pod: types.Pod, containers: tuple[types.Container, ...]) -> str:
    """Describe how the ended containers ended."""
    ends = {name: status.state.terminated for name, status in map_statuses(pod).items()}
    named = [(each.name, ends.get(each.name)) for each in containers]
    return join_some([f"{name} ended with {end.exitCode if end else '?'}" for name, end in named])

"""Which containers of a pod do its work, and which of them have not ended for good."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar_lifecycle import names
from sidecar_lifecycle.kube import types

from . import restart


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The containers whose end matters."""

    containers: tuple[types.Container, ...]
    unknown: tuple[str, ...] = ()
    """Names in the pod's annotations that fit no container of it."""
    message: str = ""
    """Why no container is left, if none is."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Why a container has not ended for good."""

    container: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.container} {self.message}"


def select(
    pod: types.Pod, *, wait_for: tuple[str, ...] = (), ignore: tuple[str, ...] = ()
) -> Selection:
    """Return the payload of a pod, by its annotations and else by the given defaults.

    A name in `wait-for-containers` that fits nothing makes the whole list void: to wait for more
    than was meant is harmless, to wait for less is not.
    """
    own = [container for container in pod.spec.containers if container.name != names.PROXY]
    if not own:
        return Selection(containers=(), message="the pod has no container beside the proxy")
    present = {container.name for container in own}
    annotations = pod.metadata.annotations
    asked_wait = _listed(annotations.get(names.WAIT_FOR_CONTAINERS))
    asked_ignore = _listed(annotations.get(names.IGNORE_CONTAINERS))

    waited = set(wait_for if asked_wait is None else asked_wait)
    narrowed = waited & present if asked_wait is None or waited <= present else set[str]()
    ignored = set(ignore if asked_ignore is None else asked_ignore)

    # Other people's native sidecars are ignored anyway, so naming one is no mistake.
    ignorable = present | {container.name for container in pod.spec.initContainers}
    unknown = [name for name in asked_wait or () if name not in present]
    unknown += [name for name in asked_ignore or () if name not in ignorable]
    left = tuple(
        container
        for container in own
        if container.name not in ignored and (not narrowed or container.name in narrowed)
    )
    message = "" if left else "every container beside the proxy is to be ignored"
    return Selection(containers=left, unknown=tuple(dict.fromkeys(unknown)), message=message)


def _listed(text: str | None) -> tuple[str, ...] | None:
    """Split an annotation; None and nothing but commas and blanks mean that it says nothing."""
    return tuple(filter(None, (part.strip() for part in (text or "").split(",")))) or None


def status_of(pod: types.Pod, name: str) -> types.ContainerStatus | None:
    """Return the status of a container of the pod, if the kubelet has reported one."""
    for status in pod.status.containerStatuses:
        if status.name == name:
            return status
    return None


def without_status(pod: types.Pod) -> tuple[str, ...]:
    """Return the containers that the kubelet has not reported on, whether they matter or not."""
    known = {status.name for status in pod.status.containerStatuses}
    return tuple(each.name for each in pod.spec.containers if each.name not in known)


def unfinished(pod: types.Pod, containers: tuple[types.Container, ...]) -> tuple[Unfinished, ...]:
    """Return which of the containers have not ended for good."""
    found = (_unfinished(pod, container) for container in containers)
    return tuple(entry for entry in found if entry is not None)


def _unfinished(pod: types.Pod, container: types.Container) -> Unfinished | None:
    name = container.name
    status = status_of(pod, name)
    if status is None:
        return Unfinished(name, "NoStatus", "has no status yet")
    state = status.state
    if state.running is not None:
        return Unfinished(name, "PayloadRunning", "is running")
    ended = state.terminated
    if ended is None or state.waiting is not None:
        why = state.waiting.reason if state.waiting else None
        return Unfinished(name, "PayloadWaiting", f"is waiting ({why or 'no reason given'})")
    if restart.will_restart(container, pod.spec.restartPolicy, ended.exitCode):
        return Unfinished(
            name, "PayloadRestarting", f"ended with {ended.exitCode} and is started again"
        )
    # Both times come from the node's clock, so the end of a container of this pod can't be older.
    started = pod.status.startTime
    if started and ended.finishedAt and ended.finishedAt < started:
        return Unfinished(name, "StaleStatus", "has a status from before the pod started")
    return None


def restarting(pod: types.Pod) -> Unfinished | None:
    """Return what is about to start the whole pod's containers again, ended ones too."""
    for condition in pod.status.conditions:
        if condition.type == "AllContainersRestarting" and condition.status == "True":
            return Unfinished("all", "PodRestarting", "containers are being restarted")
    statuses = {status.name: status for status in pod.status.containerStatuses}
    initial = {status.name: status for status in pod.status.initContainerStatuses}
    pairs = [(container, statuses) for container in pod.spec.containers]
    pairs += [(container, initial) for container in pod.spec.initContainers]
    for container, known in pairs:
        status = known.get(container.name)
        ended = status.state.terminated if status else None
        if ended is not None and restart.restarts_all(container, ended.exitCode):
            return Unfinished(
                container.name,
                "PodRestarting",
                f"ended with {ended.exitCode}, which restarts all containers",
            )
    for container in pod.spec.initContainers:
        status = initial.get(container.name)
        # The sandbox was made anew: what ended in the old one says nothing yet.
        if container.restartPolicy != "Always" and status and status.state.running is not None:
            return Unfinished(container.name, "Initializing", "(init container) is running")
    return None


def describe(pod: types.Pod, containers: tuple[types.Container, ...]) -> str:
    """Say how the containers, all ended, have ended."""
    parts: list[str] = []
    for container in containers:
        status = status_of(pod, container.name)
        ended = status.state.terminated if status else None
        parts.append(f"{container.name} ended with {ended.exitCode if ended else '?'}")
    return "; ".join(parts)

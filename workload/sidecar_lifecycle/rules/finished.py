"""May the proxy of this pod be stopped now?

Stopping a moment too early takes the network from a payload, stopping never leaves a Job hanging.
Every early return below is a reason for one of the two, in the order in which they decide.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sidecar_lifecycle import names
from sidecar_lifecycle.kube import types

from . import payload, restart

DEFAULT_STATUS_PORT = 15020


class Action(enum.StrEnum):
    """What to do about a pod."""

    WAIT = "wait"
    STOP = "stop"
    REPORT = "report"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What was configured, apart from what pods say themselves."""

    wait_for: tuple[str, ...] = ()
    """Containers whose end counts, in pods that have one of them; empty means all."""
    ignore: tuple[str, ...] = ()
    """Containers whose end does not count."""
    status_port: int = DEFAULT_STATUS_PORT
    """The mesh's status port; 0 means that it is switched off."""
    enabled: bool = True
    namespace_enabled: bool = True
    """False when the pod's namespace is annotated as disabled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do about a pod, and why."""

    action: Action
    reason: str
    message: str
    containers: tuple[str, ...] = ()
    """The containers that were looked at."""
    port: int = 0
    """Where to stop the proxy (action stop)."""
    proxy_id: str = ""
    """The proxy's container, which must still be the same when the stop is sent."""
    unknown: tuple[str, ...] = ()
    """Names in the pod's annotations that no container of it has."""
    holding: tuple[str, ...] = ()
    """Ignored containers that have not ended: they hold the pod after the proxy has gone."""


_Decide: TypeAlias = Callable[[Action, str, str], Decision]


def finished(pod: types.Pod, policy: Policy) -> Decision:
    """Decide about one pod: the first reason that applies."""
    return next(_left_alone(pod, policy), None) or next(_judged(pod, policy))


def _ignore(reason: str, message: str) -> Decision:
    return Decision(action=Action.IGNORE, reason=reason, message=message)


def _left_alone(pod: types.Pod, policy: Policy) -> Iterator[Decision]:
    """Yield why this pod, as it was made, is not ours to end."""
    annotations = pod.metadata.annotations
    if any(container.name == names.PROXY for container in pod.spec.initContainers):
        yield _ignore("NativeSidecar", "the kubelet stops a native sidecar by itself")
    proxy = _proxy(pod)
    if proxy is None:
        yield _ignore("NoProxy", f"no container {names.PROXY}")
    if not policy.enabled:
        yield _ignore("SwitchedOff", "proxy-shutdown is false")
    if annotations.get(names.PROXY_SHUTDOWN) == "disabled":
        yield _ignore("Disabled", f"annotation {names.PROXY_SHUTDOWN}=disabled on the pod")
    if not policy.namespace_enabled:
        yield _ignore("NamespaceDisabled", f"{names.PROXY_SHUTDOWN}=disabled on the namespace")
    if proxy is not None and restart.will_restart(proxy, pod.spec.restartPolicy, 0):
        yield _ignore("RestartsAlways", "a stopped proxy would be started again")
    if status_port(annotations, policy) == 0:
        yield _ignore("StatusPortDisabled", "the proxy's status port is 0")


def _proxy(pod: types.Pod) -> types.Container | None:
    return next((each for each in pod.spec.containers if each.name == names.PROXY), None)


def status_port(annotations: Mapping[str, str], policy: Policy) -> int | None:
    """Return the port of the proxy's agent, None if the pod's annotation is no port."""
    text = annotations.get(names.STATUS_PORT, "").strip()
    if not text:
        return policy.status_port
    return int(text) if text.isdecimal() and int(text) < 65536 else None


def _judged(pod: types.Pod, policy: Policy) -> Iterator[Decision]:
    """Yield what the pod's present state calls for; the last one always applies."""
    selection = payload.select(pod, wait_for=policy.wait_for, ignore=policy.ignore)
    base = Decision(
        action=Action.WAIT,
        reason="",
        message="",
        containers=tuple(container.name for container in selection.containers),
        unknown=selection.unknown,
    )

    def decide(action: Action, reason: str, message: str) -> Decision:
        return dataclasses.replace(base, action=action, reason=reason, message=message)

    if pod.metadata.deletionTimestamp is not None:
        yield decide(Action.IGNORE, "Deleted", "the pod is being deleted")
    phase = pod.status.phase
    if phase in ("Succeeded", "Failed"):
        yield decide(Action.IGNORE, "Ended", f"the pod has {phase.lower()}")
    if not selection.containers:
        yield decide(Action.REPORT, names.EventReason.NOTHING_TO_WAIT_FOR, selection.message)
    port = status_port(pod.metadata.annotations, policy)
    if port is None:
        yield decide(
            Action.REPORT, names.EventReason.BAD_STATUS_PORT, f"{names.STATUS_PORT} is not a port"
        )
    if phase != "Running":
        yield decide(Action.WAIT, "NotRunning", f"the pod's phase is {phase or 'not known'}")

    unfinished = payload.unfinished(pod, selection.containers)
    again = payload.restarting(pod)
    proxy = payload.status_of(pod, names.PROXY)
    if proxy is not None and proxy.state.terminated is not None:
        yield from _proxy_gone(pod, proxy.state.terminated, again, unfinished, decide)
    if unfinished:
        yield decide(Action.WAIT, unfinished[0].reason, "; ".join(map(str, unfinished)))
    if again is not None:
        yield decide(Action.WAIT, again.reason, str(again))
    if missing := payload.without_status(pod):
        yield decide(Action.WAIT, "NoStatus", f"{', '.join(missing)} has no status yet")
    if proxy is None or proxy.state.running is None or not proxy.containerID:
        yield decide(Action.WAIT, "ProxyNotRunning", "the proxy does not run")
    assert port is not None
    assert proxy is not None
    yield dataclasses.replace(
        decide(Action.STOP, "PayloadFinished", payload.describe(pod, selection.containers)),
        port=port,
        proxy_id=proxy.containerID or "",
        holding=_holding(pod, selection),
    )


def _proxy_gone(
    pod: types.Pod,
    ended: types.Terminated,
    again: payload.Unfinished | None,
    unfinished: tuple[payload.Unfinished, ...],
    decide: _Decide,
) -> Iterator[Decision]:
    """Yield what it means that the proxy has ended."""
    proxy = _proxy(pod)
    assert proxy is not None
    if restart.will_restart(proxy, pod.spec.restartPolicy, ended.exitCode):
        yield decide(Action.WAIT, "ProxyRestarting", f"the proxy ended with {ended.exitCode}")
    if again is not None:
        yield decide(Action.WAIT, again.reason, str(again))
    if not unfinished:
        yield decide(Action.IGNORE, "ProxyEnded", "payload and proxy have ended")
    if _disrupted(pod):
        yield decide(Action.IGNORE, "Disrupted", "the kubelet is ending the pod")
    rest = "; ".join(map(str, unfinished))
    yield decide(
        Action.REPORT,
        names.EventReason.PROXY_LOST,
        f"the proxy ended with {ended.exitCode} and is not started again, while {rest}",
    )


def _disrupted(pod: types.Pod) -> bool:
    """Return whether the kubelet is ending the whole pod, so that containers go in any order."""
    if pod.status.reason in ("Evicted", "DeadlineExceeded", "Preempting", "Terminated"):
        return True
    return any(
        condition.type == "DisruptionTarget" and condition.status == "True"
        for condition in pod.status.conditions
    )


def _holding(pod: types.Pod, selection: payload.Selection) -> tuple[str, ...]:
    rest = [
        container
        for container in pod.spec.containers
        if container.name != names.PROXY and container not in selection.containers
    ]
    return tuple(entry.container for entry in payload.unfinished(pod, tuple(rest)))

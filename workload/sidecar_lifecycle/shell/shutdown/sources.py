"""Watches of pods and namespaces, cluster-wide if RBAC allows, else per namespace."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import structlog

from integrator_contract import names, namespaces
from sidecar_lifecycle.decide import finished, payload, proxy_config
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell import metrics
from sidecar_lifecycle.shell.kube import client, errors, watch
from sidecar_lifecycle.shell.kube.fence import Fence

log = structlog.get_logger(__name__)

FIELDS = "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="
"""The only filters that the API server can apply. Each container may have its own restartPolicy.
No label or annotation is on every pod with a proxy (`istioctl kube-inject`, Istio's gRPC agent). A
pod with finished work can be Pending. A pod without a node has not started, and there may be
many."""

_ANNOTATIONS = (
    names.STATUS_PORT,
    names.WAIT_FOR_CONTAINERS,
    names.IGNORE_CONTAINERS,
    names.PROXY_SHUTDOWN,
    names.TEMPLATES,
)
_CONDITIONS = ("DisruptionTarget", "AllContainersRestarting")
# Shared by all pods, so they must not be changed.
_RUNS = types.ContainerState(running=types.Present())
_NO_STATE = types.ContainerState()
_NOTHING: dict[str, str] = {}


@dataclass(slots=True)
class Namespaces:
    """The served namespaces, kept up to date by `follow`."""

    rules: namespaces.Served
    fence: Fence
    known: asyncio.Event = field(default_factory=asyncio.Event)
    _seen: dict[str, types.ObjectMeta] = field(default_factory=dict[str, types.ObjectMeta])

    @property
    def served(self) -> set[str]:
        """The names of the served namespaces."""
        return {name for name in self._seen if self.find_state(name)[0]}

    def find_state(self, name: str) -> tuple[namespaces.Kind | None, bool]:
        """Return the kind of a namespace, and whether its annotation disables proxy-shutdown."""
        metadata = self._seen.get(name)
        if metadata is None:
            return None, False
        is_disabled = metadata.annotations.get(names.PROXY_SHUTDOWN) == "disabled"
        return self.rules.find_kind(name, metadata.labels), is_disabled

    async def follow(self, connection: client.Client, changed: Callable[[str], None]) -> None:
        """Watch namespaces forever and call `changed` with the name of each changed one."""
        following = watch.Watch(connection, types.Namespace, fence=self.fence, is_patient=True)
        async for change in following.changes():
            if change.object is None:
                self.known.set()
                changed("*")
                continue
            with self.fence.isolate("decide", change.object):
                if self._store_namespace(
                    change.object.metadata, is_there=change.kind != "deleted"
                ):
                    changed(change.object.metadata.name)

    def _store_namespace(self, metadata: types.ObjectMeta, *, is_there: bool) -> bool:
        """Store a namespace; return whether its kind or its opt-out changed."""
        name = metadata.name
        before = self.find_state(name)
        if is_there:
            self._seen[name] = metadata
        else:
            self._seen.pop(name, None)
        kind, is_disabled = self.find_state(name)
        has_changed = before != (kind, is_disabled)
        if has_changed and self.known.is_set():
            log.info("namespace changed", namespace=name, served=kind, disabled=is_disabled)
        return has_changed


class Pods:
    """Watches running pods whose proxy can be stopped, cluster-wide or per namespace."""

    def __init__(
        self,
        connection: client.Client,
        namespaces: Namespaces,
        *,
        on_change: Callable[[watch.Change[types.Pod]], None],
        forget: Callable[[str], None],
    ) -> None:
        """Call `on_change` for pods, and `forget` for namespaces whose watch starts or ends."""
        self._client = connection
        self._namespaces = namespaces
        self._fence = namespaces.fence
        self._on_change = on_change
        self._forget = forget
        self._moved = asyncio.Event()
        self._has_begun = False
        self._watches: dict[str, watch.Watch[types.Pod]] = {}
        """By namespace; none while no namespace of the served kinds exists."""

    @property
    def live(self) -> bool:
        """Whether the watches of all served pods are open."""
        return self._has_begun and all(each.live for each in self._watches.values())

    def follow_namespaces(self) -> None:
        """Start and end watches, if there is one per namespace."""
        self._moved.set()

    async def follow(self, namespace: str) -> None:
        """Watch the pods of a namespace forever; `*` means all namespaces."""
        await self._namespaces.known.wait()
        self._has_begun = True
        while True:
            try:
                await self._watch(namespace)
            except errors.StatusError as error:
                log.warning("pods can't be watched cluster-wide", error=str(error))
                await self._watch_each_namespace()

    async def _watch(self, namespace: str, *, is_patient: bool = False) -> None:
        self._forget(namespace)
        pods = self._watches[namespace] = watch.Watch(
            self._client,
            types.Pod,
            namespace=namespace,
            fields=FIELDS,
            concerns=finished.may_be_stopped,
            fence=self._fence,
            is_patient=is_patient,
        )
        is_listed = False
        try:
            async with contextlib.aclosing(pods.changes()) as changes:
                async for change in changes:
                    if change.object is not None:
                        with self._fence.isolate("decide", change.object):
                            compact(change.object)
                            self._on_change(change)
                        continue
                    if is_listed:
                        metrics.RELISTS.inc()
                    is_listed = True
        finally:
            del self._watches[namespace]

    async def _watch_each_namespace(self) -> None:
        """Watch each served namespace until RBAC allows listing pods cluster-wide."""
        watching: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                self._moved.clear()
                await self._adapt_watches(watching)
                try:
                    async with asyncio.timeout(watch.ASK_AGAIN):
                        await self._moved.wait()
                except TimeoutError:
                    with contextlib.suppress(errors.KubeError):
                        where = client.make_path(types.Pod)
                        await self._client.request("GET", where, params={"limit": "1"})
                        return
        finally:
            await _cancel_tasks(watching.values())

    async def _adapt_watches(self, watching: dict[str, asyncio.Task[None]]) -> None:
        wanted = self._namespaces.served
        for name in watching.keys() - wanted:
            await _cancel_tasks([watching.pop(name)])
            self._forget(name)
        for name in wanted - watching.keys():
            watching[name] = asyncio.create_task(
                self._watch(name, is_patient=True), name=f"pods of {name}"
            )


async def _cancel_tasks(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def compact(pod: types.Pod) -> None:
    """Drop the fields that no rule reads, because 100,000 pods may be watched."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    pod.apiVersion = pod.kind = None
    meta.labels = spec.nodeSelector = _NOTHING
    configured = proxy_config.read_port(meta.annotations.get(names.PROXY_CONFIG, ""))
    if configured is not None and not meta.annotations.get(names.STATUS_PORT, "").strip():
        meta.annotations[names.STATUS_PORT] = str(configured)
    # A value above the limit stays above it after the cut, so the rules still reject it.
    meta.annotations = {
        key: meta.annotations[key][: payload.LONGEST_LIST + 1]
        for key in _ANNOTATIONS
        if key in meta.annotations
    } or _NOTHING
    meta.namespace = sys.intern(meta.namespace or "")
    meta.creationTimestamp = None
    meta.ownerReferences = tuple(
        types.OwnerReference(uid=owner.uid, controller=True)
        for owner in meta.ownerReferences
        if owner.controller
    )
    spec.nodeName = sys.intern(spec.nodeName or "")
    spec.restartPolicy = sys.intern(spec.restartPolicy)
    for container in (*spec.containers, *spec.initContainers):
        container.image = None
        container.name = sys.intern(container.name)
    status.phase = sys.intern(status.phase)
    for each in (*status.containerStatuses, *status.initContainerStatuses):
        _compact_status(each)
    for each in status.initContainerStatuses:
        if each.state.terminated is not None:
            each.state = _make_terminated_state(each.state.terminated.exitCode)
    status.conditions = tuple(
        condition for condition in status.conditions if condition.type in _CONDITIONS
    )


def _compact_status(status: types.ContainerStatus) -> None:
    status.name = sys.intern(status.name)
    status.lastState = _NO_STATE
    if status.name != names.PROXY:
        status.containerID = None
    state = status.state
    if state.running is not None and state.terminated is None:
        status.state = _RUNS
    elif state.waiting is not None and state.waiting.reason:
        state.waiting.reason = sys.intern(state.waiting.reason)


@functools.lru_cache
def _make_terminated_state(code: int) -> types.ContainerState:
    return types.ContainerState(terminated=types.Terminated(exitCode=code))

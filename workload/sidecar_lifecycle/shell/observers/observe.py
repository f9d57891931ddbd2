"""Watch what the charm's decisions rest on, and have it told when that changes.

Watched are the injectors' webhook configurations, the istiod that they name, the model's namespace
and the Deployment of our own webhook. Compared is a fingerprint, as objects are written more often
than they change. It leaves out what the charm wrote.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any, Generic

import msgspec
import structlog

from integrator_contract import names
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell.kube import client, watch
from sidecar_lifecycle.shell.kube.fence import Fence

log = structlog.get_logger(__name__)

INJECTORS = ("istio-sidecar-injector", "istio-revision-tag")

Fingerprint = object
Service = tuple[str, str]
"""Namespace and name."""


@dataclasses.dataclass(frozen=True)
class Row(Generic[watch.T]):
    """A kind of objects to watch, and what matters of each."""

    kind: type[watch.T]
    fingerprint: Callable[[watch.T], Fingerprint]
    """Returns None for an object that does not matter."""
    _: dataclasses.KW_ONLY
    namespace: str = "*"
    labels: str = ""
    fields: str = ""
    noted: Callable[[watch.Change[watch.T]], None] = lambda _: None
    """Called with every change, before the fingerprint."""
    is_ours: Callable[[watch.T], bool] = lambda _: False
    """Tells which objects the charm made itself: it knows of their creation."""


class Observer:
    """Calls back when istiod, an injector or the model's namespace changed."""

    def __init__(
        self,
        connection: client.Client,
        model: str,
        changed: Callable[[], None],
        *,
        joined: bool = True,
    ) -> None:
        self._client = connection
        self._model = model
        self._changed = changed
        self._joined = joined
        self._edits = Edits()
        self._backends: dict[Service, asyncio.Task[None]] = {}
        self._configurations: dict[str, set[Service]] = {}

    async def run(self) -> None:
        """Observe until cancelled."""
        rows = [
            Row(types.Namespace, namespace_fingerprint, fields=f"metadata.name={self._model}"),
            Row(
                types.MutatingWebhookConfiguration,
                injector_fingerprint,
                noted=self._note_injector,
            ),
            Row(
                types.Deployment,
                functools.partial(servers_fingerprint, self._edits),
                noted=self._note_servers,
                namespace=self._model,
                labels=f"{names.COMPONENT}={names.WEBHOOK_COMPONENT}",
            ),
        ]
        try:
            await follow_all(self._client, rows, self._changed)
        finally:
            for task in self._backends.values():
                task.cancel()

    def _note_servers(self, change: watch.Change[types.Deployment]) -> None:
        """Tell the charm of a webhook that was ready before it was observed.

        The charm labels the model's namespace after that.
        """
        self._edits.note(change)
        if not self._joined and change.object and change.object.status.readyReplicas:
            self._joined = True
            self._changed()

    def _note_injector(self, change: watch.Change[types.MutatingWebhookConfiguration]) -> None:
        assert change.object is not None
        name = change.object.metadata.name
        if change.kind == "deleted":
            self._configurations.pop(name, None)
        else:
            self._configurations[name] = backends(change.object)
        wanted = set[Service]().union(*self._configurations.values())
        for service in set(self._backends) - wanted:
            self._backends.pop(service).cancel()
        for service in wanted - set(self._backends):
            self._backends[service] = asyncio.create_task(self._follow_backend(*service))

    async def _follow_backend(self, namespace: str, name: str) -> None:
        endpoints = Row(
            types.EndpointSlice,
            endpoints_fingerprint,
            namespace=namespace,
            labels=f"{names.SERVICE_NAME}={name}",
        )
        istiod = Row(
            types.Deployment, deployment_fingerprint, namespace=namespace, labels="app=istiod"
        )
        await follow_all(self._client, (endpoints, istiod), self._changed)


async def follow_all(
    connection: client.Client, rows: Iterable[Row[Any]], changed: Callable[[], None]
) -> None:
    """Watch objects of several kinds until cancelled; see `follow`."""
    async with asyncio.TaskGroup() as tasks:
        for row in rows:
            name = f"observe {row.kind.__name__}"
            tasks.create_task(follow(connection, row, changed), name=name)


async def follow(
    connection: client.Client, row: Row[watch.T], changed: Callable[[], None]
) -> None:
    """Watch objects until cancelled, and call back for each whose fingerprint is new.

    What is listed first is not told.
    """
    seen: dict[tuple[str | None, str], Fingerprint] = {}
    synced = False
    fence = Fence()
    async for change in watch.watch(
        connection,
        row.kind,
        namespace=row.namespace,
        labels=row.labels,
        fields=row.fields,
        fence=fence,
        is_patient=True,
    ):
        item = change.object
        if item is None:
            synced = True
            continue
        key = (item.metadata.namespace, item.metadata.name)
        now: Fingerprint = None
        with fence.around("observe", item):
            row.noted(change)
            now = None if change.kind == "deleted" else row.fingerprint(item)
        if now == seen.get(key):
            continue
        is_made = key not in seen and row.is_ours(item)
        if now is None:
            del seen[key]
        else:
            seen[key] = now
        if synced and not is_made:
            log.info("object changed", kind=row.kind.__name__, name=item.metadata.name)
            changed()


def backends(configuration: types.MutatingWebhookConfiguration) -> set[Service]:
    """Return the Services that an injector's configuration points at, none for other webhooks."""
    if not configuration.metadata.name.startswith(INJECTORS):
        return set()
    found = (webhook.clientConfig.service for webhook in configuration.webhooks)
    return {(service.namespace, service.name) for service in found if service is not None}


def injector_fingerprint(configuration: types.MutatingWebhookConfiguration) -> Fingerprint:
    """Return what matters of a webhook configuration; None for those that inject nothing."""
    meta = configuration.metadata
    if not meta.name.startswith(INJECTORS):
        return None
    return (meta.uid, meta.generation, tuple(sorted(meta.labels.items())))


class _Membership(msgspec.Struct):
    labels: dict[str, str] = msgspec.field(name="set", default_factory=dict[str, str])


def namespace_fingerprint(namespace: types.Namespace) -> Fingerprint:
    """Return what matters of the model's namespace: how its labels differ from what we set."""
    meta = namespace.metadata
    try:
        text = meta.annotations.get(names.MEMBERSHIP, "{}")
        ours = msgspec.json.decode(text, type=_Membership).labels.items()
    except msgspec.MsgspecError:
        ours = dict[str, str]().items()
    others, lost = meta.labels.items() - ours, ours - meta.labels.items()
    return (tuple(sorted(others)), tuple(sorted(lost)), meta.deletionTimestamp is not None)


def endpoints_fingerprint(slices: types.EndpointSlice) -> Fingerprint:
    """Return whether a Service has anybody behind it."""
    return any(each.conditions.ready is not False for each in slices.endpoints)


class Edits:
    """Tells what others made of what the charm wrote.

    Each write of the charm changes the annotation that bears the hash of what it wanted: what is
    seen with a new hash is the charm's own doing.
    """

    def __init__(self) -> None:
        self._written: dict[str, tuple[str, Fingerprint]] = {}
        """By UID, the hash and what was first seen with it."""

    def note(self, change: watch.Change[Any]) -> None:
        """Forget what has been deleted."""
        if change.kind == "deleted" and change.object is not None:
            self._written.pop(change.object.metadata.uid, None)

    def of(self, meta: types.ObjectMeta, now: Fingerprint = None) -> Fingerprint:
        """Return what an object is by now; None while it is as the charm last wrote it.

        Where it is not said what matters of it now, its specification's version does.
        """
        applied = meta.annotations.get(names.APPLIED_HASH, "")
        now = meta.generation or 0 if now is None else now
        known, written = self._written.get(meta.uid, ("", None))
        if known != applied or written is None:
            self._written[meta.uid] = applied, now
            return None
        return None if now == written else now


def servers_fingerprint(edits: Edits, deployment: types.Deployment) -> Fingerprint:
    """Return what matters of our webhook: its readiness, refused pods, and others' changes."""
    status = deployment.status
    is_refused = any(
        (condition.type, condition.status) == ("ReplicaFailure", "True")
        for condition in status.conditions
    )
    found = (bool(status.readyReplicas), is_refused, edits.of(deployment.metadata))
    return found if any(found) else None


def deployment_fingerprint(deployment: types.Deployment) -> Fingerprint:
    """Return what matters of a Deployment: its specification, and how much of it is there."""
    return (deployment.metadata.generation, deployment.status.readyReplicas)

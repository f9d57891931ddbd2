# Names are those of the Kubernetes API.
# ruff: noqa: N815, D101, RUF012
"""Watch what the charm's decisions rest on, and have it told when that changes.

A fingerprint of each object is compared, because objects are written more often than they change.
It leaves out what the charm wrote.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
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
ServiceName = tuple[str, str]
"""Namespace and name."""


class Container(types.Model):
    name: str = ""
    args: list[str] = []


class PodSpec(types.Model):
    containers: list[Container] = []


class Template(types.Model):
    metadata: types.ObjectMeta = msgspec.field(default_factory=types.ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class WorkloadSpec(types.Model):
    template: Template = msgspec.field(default_factory=Template)


class WorkloadStatus(types.Model):
    readyReplicas: int = 0
    numberReady: int = 0
    conditions: list[types.Condition] = []


class Deployment(types.Object):
    api = types.Api("apps", "v1", "Deployment", "deployments")

    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)


class DaemonSet(Deployment):
    api = types.Api("apps", "v1", "DaemonSet", "daemonsets")


class ServicePort(types.Model):
    name: str = ""
    port: int = 0
    targetPort: int | str = 0


class ServiceSpec(types.Model):
    selector: dict[str, str] = {}
    ports: list[ServicePort] = []


class Service(types.Object):
    api = types.Api("", "v1", "Service", "services")

    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)


class Gateway(types.Object):
    api = types.Api("networking.istio.io", "v1", "Gateway", "gateways")


class EnvoyFilter(types.Object):
    api = types.Api("networking.istio.io", "v1alpha3", "EnvoyFilter", "envoyfilters")


class Edits:
    """Tells what others made of what the charm wrote.

    Each write of the charm changes the annotation that bears the hash of what it wanted: what is
    seen with a new hash is the charm's own doing.
    """

    def __init__(self) -> None:
        self._written: dict[str, tuple[str, Fingerprint]] = {}
        """By UID, the hash and what was first seen with it."""

    def forget(self, meta: types.ObjectMeta) -> None:
        """Forget an object that has been deleted."""
        self._written.pop(meta.uid, None)

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


@dataclasses.dataclass(frozen=True)
class Row(Generic[watch.T]):
    """A kind of objects to watch, and what matters of each."""

    kind: type[watch.T]
    fingerprint: Callable[[watch.T, Edits], Fingerprint]
    """Returns None for an object that does not matter."""
    _: dataclasses.KW_ONLY
    namespace: str = "*"
    labels: str = ""
    fields: str = ""
    noted: Callable[[watch.Change[watch.T]], None] = lambda _: None
    """Called with every change, before the fingerprint."""
    is_ours: Callable[[watch.T], bool] = lambda _: False
    """Tells which objects the charm made itself: it knows of their creation."""


async def follow(
    connection: client.Client, rows: list[Row[Any]], changed: Callable[[], None]
) -> None:
    """Watch objects until cancelled, and call back for each whose fingerprint is new.

    What is listed first is not told.
    """
    async with asyncio.TaskGroup() as tasks:
        for row in rows:
            name = f"observe {row.kind.__name__}"
            tasks.create_task(_follow(connection, row, changed), name=name)


async def _follow(connection: client.Client, row: Row[Any], changed: Callable[[], None]) -> None:
    seen: dict[tuple[str | None, str], Fingerprint] = {}
    is_synced = False
    edits, fence = Edits(), Fence()
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
            is_synced = True
            continue
        key = (item.metadata.namespace, item.metadata.name)
        now: Fingerprint = None
        with fence.around("observe", item):
            row.noted(change)
            if change.kind == "deleted":
                edits.forget(item.metadata)
            else:
                now = row.fingerprint(item, edits)
        if now == seen.get(key):
            continue
        is_made = key not in seen and row.is_ours(item)
        if now is None:
            del seen[key]
        else:
            seen[key] = now
        if is_synced and not is_made:
            log.info("object changed", kind=row.kind.__name__, name=item.metadata.name)
            changed()


class Mesh:
    """Follows the injectors, the istiod that they name, the model's namespace and our webhook."""

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
        self._backends: dict[ServiceName, asyncio.Task[None]] = {}
        self._configurations: dict[str, set[ServiceName]] = {}

    async def run(self) -> None:
        """Call back for each change, until cancelled."""
        rows: list[Row[Any]] = [
            Row(types.Namespace, _of_namespace, fields=f"metadata.name={self._model}"),
            Row(types.MutatingWebhookConfiguration, _of_injector, noted=self._note_injector),
            Row(
                Deployment,
                _of_webhook,
                noted=self._note_webhook,
                namespace=self._model,
                labels=f"{names.COMPONENT}={names.WEBHOOK_COMPONENT}",
            ),
        ]
        try:
            await follow(self._client, rows, self._changed)
        finally:
            for task in self._backends.values():
                task.cancel()

    def _note_webhook(self, change: watch.Change[Deployment]) -> None:
        # The charm labels the model's namespace once the webhook is ready, which it may have been
        # before it was observed.
        if not self._joined and change.object and change.object.status.readyReplicas:
            self._joined = True
            self._changed()

    def _note_injector(self, change: watch.Change[types.MutatingWebhookConfiguration]) -> None:
        assert change.object is not None
        name = change.object.metadata.name
        self._configurations.pop(name, None)
        if change.kind != "deleted" and name.startswith(INJECTORS):
            services = [each.clientConfig.service for each in change.object.webhooks]
            self._configurations[name] = {(each.namespace, each.name) for each in services if each}
        wanted = set[ServiceName]().union(*self._configurations.values())
        for service in self._backends.keys() - wanted:
            self._backends.pop(service).cancel()
        for service in wanted - self._backends.keys():
            self._backends[service] = asyncio.create_task(self._follow_backend(*service))

    async def _follow_backend(self, namespace: str, name: str) -> None:
        service = f"{names.SERVICE_NAME}={name}"
        rows: list[Row[Any]] = [
            Row(types.EndpointSlice, _of_endpoints, namespace=namespace, labels=service),
            Row(Deployment, _of_istiod, namespace=namespace, labels="app=istiod"),
        ]
        await follow(self._client, rows, self._changed)


def _of_injector(configuration: types.MutatingWebhookConfiguration, _: Edits) -> Fingerprint:
    meta = configuration.metadata
    if not meta.name.startswith(INJECTORS):
        return None
    return (meta.uid, meta.generation, tuple(sorted(meta.labels.items())))


class _Membership(msgspec.Struct):
    labels: dict[str, str] = msgspec.field(name="set", default_factory=dict[str, str])


def _of_namespace(namespace: types.Namespace, _: Edits) -> Fingerprint:
    """Return how the labels of the model's namespace differ from what we set."""
    meta = namespace.metadata
    try:
        text = meta.annotations.get(names.MEMBERSHIP, "{}")
        ours = msgspec.json.decode(text, type=_Membership).labels.items()
    except msgspec.MsgspecError:
        ours = dict[str, str]().items()
    others, lost = meta.labels.items() - ours, ours - meta.labels.items()
    return (tuple(sorted(others)), tuple(sorted(lost)), meta.deletionTimestamp is not None)


def _of_endpoints(slices: types.EndpointSlice, _: Edits) -> Fingerprint:
    return any(each.conditions.ready is not False for each in slices.endpoints)


def _of_webhook(deployment: Deployment, edits: Edits) -> Fingerprint:
    status = deployment.status
    is_refused = any(
        (condition.type, condition.status) == ("ReplicaFailure", "True")
        for condition in status.conditions
    )
    found = (bool(status.readyReplicas), is_refused, edits.of(deployment.metadata))
    return found if any(found) else None


def _of_istiod(deployment: Deployment, _: Edits) -> Fingerprint:
    return (deployment.metadata.generation, deployment.status.readyReplicas)


async def follow_gateway(
    connection: client.Client, *, model: str, owner: str, named: str, changed: Callable[[], None]
) -> None:
    """Call back when the gateway's workload, its Service, our Gateway or EnvoyFilter changed.

    The gateway's workload is in the model unless its Service, NAMESPACE/NAME, is named. The owner
    is the value of a label on our own objects.
    """
    home, _, name = named.partition("/")
    home = home or model
    # Pods elsewhere with the labels of a named gateway would serve our routes, too.
    workloads = "*" if named else model

    def is_ours(item: types.Object) -> bool:
        meta = item.metadata
        return meta.namespace == model and meta.labels.get(names.OWNER) == owner

    def of_service(service: Service, edits: Edits) -> Fingerprint:
        ports = tuple((port.name, port.port, port.targetPort) for port in service.spec.ports)
        now = (tuple(sorted(service.spec.selector.items())), ports)
        if named or names.GATEWAY_NAME in service.metadata.labels:
            return now
        # A Service has no version of its specification.
        meta = service.metadata
        return (meta.uid, edits.of(meta, now)) if is_ours(service) else None

    fields = f"metadata.name={name}" if name else ""
    ours = f"{names.OWNER}={owner}"
    rows: list[Row[Any]] = [
        Row(Deployment, _of_workload, namespace=workloads, is_ours=is_ours),
        Row(DaemonSet, _of_workload, namespace=workloads, is_ours=is_ours),
        Row(Service, of_service, namespace=home, fields=fields, is_ours=is_ours),
        Row(Gateway, _edited, namespace=model, labels=ours, is_ours=is_ours),
        Row(EnvoyFilter, _edited, namespace=home, labels=ours, is_ours=lambda _: True),
    ]
    await follow(connection, rows, changed)


def _edited(item: types.Object, edits: Edits) -> Fingerprint:
    return (item.metadata.uid, edits.of(item.metadata))


def _of_workload(workload: Deployment, _: Edits) -> Fingerprint:
    """Return what matters of a gateway's workload; None for every other workload."""
    pods = workload.spec.template
    is_gateway = "gateway" in pods.metadata.annotations.get(names.TEMPLATES, "").split(",") or any(
        container.name == names.PROXY and "router" in container.args
        for container in pods.spec.containers
    )
    if not is_gateway:
        return None
    ready = bool(workload.status.readyReplicas or workload.status.numberReady)
    return (tuple(sorted(pods.metadata.labels.items())), ready)

# Names are those of the Kubernetes API.
# ruff: noqa: N815, D101, RUF012
"""Watch what the charm's decisions rest on, and have it told when that changes.

What matters of each object is compared, because objects are written more often than they change,
and what the charm wrote itself is left out.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any, Generic, NamedTuple

import msgspec
import structlog

from integrator_contract import names
from sidecar_lifecycle.model import types
from sidecar_lifecycle.model.resources import DaemonSet, Deployment, Workload
from sidecar_lifecycle.shell.kube import client, watch
from sidecar_lifecycle.shell.kube.fence import Fence

log = structlog.get_logger(__name__)

INJECTORS = ("istio-sidecar-injector", "istio-revision-tag")
ISTIOD = "app=istiod"
"""The label of istiod's Deployment and Service; a Service's EndpointSlices have its labels."""


class ServicePort(types.Partial):
    name: str = ""
    port: int = 0
    targetPort: int | str = 0


class ServiceSpec(types.Partial):
    selector: dict[str, str] = {}
    ports: list[ServicePort] = []


class Service(types.Object):
    api = types.Api("", "v1", "Service", "services")

    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)


class Gateway(types.Object):
    api = types.Api("networking.istio.io", "v1", "Gateway", "gateways")


class EnvoyFilter(types.Object):
    api = types.Api("networking.istio.io", "v1alpha3", "EnvoyFilter", "envoyfilters")


class Seen(NamedTuple):
    """The part of an object that is compared."""

    state: object
    written: object
    """The part that the charm writes."""
    applied: str
    """The hash of what the charm wanted at its last write: with a new one, it wrote."""


def _differs(before: Seen | None, now: Seen | None) -> bool:
    if before is None or now is None:
        return before is not now
    is_edited = before.applied == now.applied and before.written != now.written
    return before.state != now.state or is_edited


def _generation(item: types.Object) -> object:
    return item.metadata.generation


@dataclasses.dataclass(frozen=True)
class Row(Generic[watch.T]):
    """A kind of objects to watch, and what matters of each."""

    kind: type[watch.T]
    state: Callable[[watch.T], object] = lambda _: True
    """Returns None for an object that does not matter."""
    _: dataclasses.KW_ONLY
    written: Callable[[watch.T], object] = lambda _: None
    """Returns the part that only the charm should change."""
    namespace: str = "*"
    labels: str = ""
    fields: str = ""
    is_ours: Callable[[watch.T], bool] = lambda _: False
    """Tells which objects the charm made itself: it knows of their creation."""
    tells_first: bool = False
    """Whether objects of the first list count as changes, too."""
    seen: dict[watch.Key, Seen] = dataclasses.field(default_factory=dict[watch.Key, Seen])


async def follow(
    connection: client.Client, rows: list[Row[Any]], changed: Callable[[], None]
) -> None:
    """Watch objects until cancelled, and call back for each change that matters."""
    async with asyncio.TaskGroup() as tasks:
        for row in rows:
            name = f"observe {row.kind.__name__}"
            tasks.create_task(_follow(connection, row, changed), name=name)


async def _follow(connection: client.Client, row: Row[Any], changed: Callable[[], None]) -> None:
    tells, fence = row.tells_first, Fence()
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
            tells = True
            continue
        meta: types.ObjectMeta = item.metadata
        key = (meta.namespace or "", meta.name)
        before, now = row.seen.pop(key, None), None
        with fence.around("observe", item):
            if change.kind != "deleted" and (state := row.state(item)) is not None:
                applied = meta.annotations.get(names.APPLIED_HASH, "")
                now = row.seen[key] = Seen(state, row.written(item), applied)
        is_made = before is None and row.is_ours(item)
        if tells and not is_made and _differs(before, now):
            log.info("object changed", kind=row.kind.__name__, name=meta.name)
            changed()


async def follow_mesh(
    connection: client.Client, *, model: str, changed: Callable[[], None], joined: bool = True
) -> None:
    """Call back when an injector, its istiod, the model's namespace or our webhook changed.

    A model that has not joined waits for the webhook, which may be ready before it is observed.
    """
    services: dict[str, set[tuple[str, str]]] = {}
    """Namespace and name of those that an injector names."""

    def of_injector(configuration: types.MutatingWebhookConfiguration) -> object:
        meta = configuration.metadata
        if not meta.name.startswith(INJECTORS):
            return None
        named = [each.clientConfig.service for each in configuration.webhooks]
        services[meta.name] = {(each.namespace, each.name) for each in named if each}
        return (meta.uid, meta.generation, tuple(sorted(meta.labels.items())))

    injectors = Row(types.MutatingWebhookConfiguration, of_injector)

    def named() -> set[tuple[str, str]]:
        # Every account may give its objects the label of istiod.
        return set[tuple[str, str]]().union(*(services[name] for _, name in injectors.seen))

    def of_endpoints(slices: types.EndpointSlice) -> object:
        meta = slices.metadata
        if (meta.namespace, meta.labels.get(names.SERVICE_NAME)) not in named():
            return None
        return any(each.conditions.ready is not False for each in slices.endpoints)

    def of_istiod(deployment: Deployment) -> object:
        meta = deployment.metadata
        is_named = any(namespace == meta.namespace for namespace, _ in named())
        return (meta.generation, deployment.status.readyReplicas) if is_named else None

    webhook = Row(
        Deployment,
        _of_webhook,
        written=_generation,
        namespace=model,
        labels=f"{names.COMPONENT}={names.WEBHOOK_COMPONENT}",
        is_ours=lambda item: not any(_of_webhook(item)),
        tells_first=not joined,
    )
    rows: list[Row[Any]] = [
        Row(types.Namespace, _of_namespace, fields=f"metadata.name={model}"),
        injectors,
        Row(types.EndpointSlice, of_endpoints, labels=ISTIOD),
        Row(Deployment, of_istiod, labels=ISTIOD),
        webhook,
    ]
    await follow(connection, rows, changed)


class _Membership(msgspec.Struct):
    labels: dict[str, str] = msgspec.field(name="set", default_factory=dict[str, str])


def _of_namespace(namespace: types.Namespace) -> object:
    """Return how the labels of the model's namespace differ from what we set."""
    meta = namespace.metadata
    try:
        text = meta.annotations.get(names.MEMBERSHIP, "{}")
        ours = msgspec.json.decode(text, type=_Membership).labels.items()
    except msgspec.MsgspecError:
        ours = dict[str, str]().items()
    others, lost = meta.labels.items() - ours, ours - meta.labels.items()
    return (tuple(sorted(others)), tuple(sorted(lost)), meta.deletionTimestamp is not None)


def _of_webhook(deployment: Deployment) -> tuple[bool, bool]:
    """Return whether the webhook answers, and whether its pods are refused."""
    refused = ("ReplicaFailure", "True")
    conditions = deployment.status.conditions
    is_refused = any((each.type, each.status) == refused for each in conditions)
    return (bool(deployment.status.readyReplicas), is_refused)


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

    def of_service(service: Service) -> object:
        is_gateway = named or names.GATEWAY_NAME in service.metadata.labels
        return True if is_gateway or is_ours(service) else None

    fields = f"metadata.name={name}" if name else ""
    ours = f"{names.OWNER}={owner}"
    rows: list[Row[Any]] = [
        Row(Deployment, _of_workload, namespace=workloads, is_ours=is_ours),
        Row(DaemonSet, _of_workload, namespace=workloads, is_ours=is_ours),
        Row(Service, of_service, written=_routed, namespace=home, fields=fields, is_ours=is_ours),
        Row(Gateway, written=_generation, namespace=model, labels=ours, is_ours=is_ours),
        Row(
            EnvoyFilter,
            written=_generation,
            namespace=home,
            labels=ours,
            is_ours=lambda _: True,
        ),
    ]
    await follow(connection, rows, changed)


def _routed(service: Service) -> object:
    """Return selector and ports, since a Service has no generation."""
    ports = tuple((port.name, port.port, port.targetPort) for port in service.spec.ports)
    return (tuple(sorted(service.spec.selector.items())), ports)


def _of_workload(workload: Workload) -> object:
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

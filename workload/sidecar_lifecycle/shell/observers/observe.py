# Field names are those of the Kubernetes API.
# ruff: noqa: D101, RUF012
"""Watches of the objects on which the charm's decisions depend; the charm is told of changes.

Only the relevant part of an object is compared, because many updates do not change it. Updates by
the charm itself are ignored.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec
import structlog

from integrator_contract import names, service
from sidecar_lifecycle.model import types
from sidecar_lifecycle.model.resources import Deployment
from sidecar_lifecycle.shell.kube import client, watch
from sidecar_lifecycle.shell.observers import seen

log = structlog.get_logger(__name__)

INJECTORS = ("istio-sidecar-injector", "istio-revision-tag")


class GatewayService(types.Object):
    api = types.Api("v1", "Service")

    spec: dict[str, Any] = {}


class IstioGateway(types.Object):
    api = types.Api("networking.istio.io/v1", "Gateway")


class EnvoyFilter(types.Object):
    api = types.Api("networking.istio.io/v1alpha3", "EnvoyFilter")


class Secret(types.Object):
    api = types.Api("v1", "Secret")

    data: dict[str, str] = {}


class Node(types.Object):
    api = types.Api("v1", "Node")

    spec: dict[str, Any] = {}


class Compared(NamedTuple):
    """The relevant part of an object."""

    state: Any
    written: object
    """The part that only the charm should write."""
    applied: str
    """The hash of the charm's last manifest; if it differs, the charm made the update."""


def _read_generation(item: types.Object) -> object:
    return item.metadata.generation


@dataclasses.dataclass(slots=True)
class ObservedKind(watch.Watch[watch.T]):
    """A watch of the objects of a kind, with the relevant part of each."""

    state: Callable[[watch.T], Any] = lambda _: True
    """Returns the relevant part; None: the object is never relevant."""
    _: dataclasses.KW_ONLY
    matters: Callable[[Any], bool] = lambda _: True
    """Tells whether an object with this state is relevant now."""
    written: Callable[[watch.T], object] = lambda _: None
    """Returns the part that only the charm should write."""
    is_ours: Callable[[watch.T], bool] = lambda _: False
    """Tells whether the charm created an object, so that the creation is not reported."""
    tells_first: bool = False
    """Whether objects of the first list count as changes."""
    seen: dict[watch.Key, Compared] = dataclasses.field(default_factory=dict[watch.Key, Compared])

    async def follow(self, changed: Callable[[], None]) -> None:
        """Call `changed` for each relevant change until cancelled."""
        tells = self.tells_first
        async for change in self.changes():
            item = change.object
            if item is None:
                tells = True
                continue
            key = (item.metadata.namespace or "", item.metadata.name)
            before, now = self.seen.pop(key, None), None
            with self.fence.isolate("observe", item):
                if change.kind != "deleted" and (state := self.state(item)) is not None:
                    applied = item.metadata.annotations.get(names.APPLIED_HASH, "")
                    now = self.seen[key] = Compared(state, self.written(item), applied)
            is_made = before is None and self.is_ours(item)
            matters = any(self.matters(each.state) for each in (before, now) if each)
            if tells and matters and not is_made and self.is_changed(key, before, now):
                log.info("object changed", kind=self.kind.api.kind, name=item.metadata.name)
                changed()

    def is_changed(self, key: watch.Key, before: Compared | None, now: Compared | None) -> bool:  # noqa: ARG002
        """Tell whether a program other than the charm changed an object."""
        if before is None or now is None:
            return before is not now
        is_edited = before.applied == now.applied and before.written != now.written
        return before.state != now.state or is_edited


class ObservedPods(ObservedKind[types.Pod]):
    """A watch of pods whose states are sets; what another pod has too is no change."""

    def is_changed(self, key: watch.Key, before: Compared | None, now: Compared | None) -> bool:
        """Tell whether the union of all states changed."""
        others: list[frozenset[object]] = [
            each.state for other, each in self.seen.items() if other != key
        ]
        states: list[frozenset[object]] = [
            each.state if each else frozenset() for each in (before, now)
        ]
        return bool((states[0] ^ states[1]).difference(*others))


async def follow(kinds: Iterable[ObservedKind[Any]], changed: Callable[[], None]) -> None:
    """Watch all kinds until cancelled, and call `changed` for each relevant change."""
    async with asyncio.TaskGroup() as tasks:
        for each in kinds:
            tasks.create_task(each.follow(changed), name=f"observe {each.kind.api.kind}")


def watch_mesh(connection: client.Client, model: str, *, joined: bool) -> list[ObservedKind[Any]]:
    """Return watches of the injectors, their istiod, the model's namespace and this webhook.

    A model that has not joined waits for the webhook, which may be ready before the watch starts.
    Training jobs depend on the namespaces of profiles and on the networks of nodes.
    """
    observed = functools.partial(ObservedKind[Any], connection, is_patient=True)
    injectors = observed(types.MutatingWebhookConfiguration, _read_injector_state)

    def named() -> set[tuple[str, str]]:
        # Any user can set istiod's label, so the injector's reference counts.
        return {service for each in injectors.seen.values() for service in each.state[0]}

    return [
        injectors,
        observed(
            types.EndpointSlice,
            _read_endpoints_state,
            matters=lambda state: state[0] in named(),
            labels=names.ISTIOD,
        ),
        observed(
            Deployment,
            _read_istiod_state,
            matters=lambda state: state[0] in {namespace for namespace, _ in named()},
            labels=names.ISTIOD,
        ),
        observed(types.Namespace, _read_namespace_state, fields=f"metadata.name={model}"),
        observed(types.Namespace, _read_profile_state, labels=f"{names.PART_OF}={names.PROFILE}"),
        observed(Node, lambda node: node.spec.get("podCIDRs")),
        observed(
            Deployment,
            _read_webhook_state,
            written=_read_generation,
            namespace=model,
            labels=f"{names.COMPONENT}={names.WEBHOOK_COMPONENT}",
            is_ours=lambda item: not any(_read_webhook_state(item)),
            tells_first=not joined,
        ),
    ]


def _read_injector_state(configuration: types.MutatingWebhookConfiguration) -> object:
    """Return the Services of an injector, with its UID, generation and labels."""
    meta = configuration.metadata
    if not meta.name.startswith(INJECTORS):
        return None
    services = [each.clientConfig.service for each in configuration.webhooks]
    named = {(each.namespace, each.name) for each in services if each}
    return (named, meta.uid, meta.generation, meta.labels)


def _read_endpoints_state(slices: types.EndpointSlice) -> object:
    """Return the Service of an EndpointSlice, and whether an endpoint is ready."""
    meta = slices.metadata
    is_ready = any(each.conditions.ready is not False for each in slices.endpoints or ())
    return ((meta.namespace, meta.labels.get(names.SERVICE_NAME)), is_ready)


def _read_istiod_state(deployment: Deployment) -> object:
    meta = deployment.metadata
    return (meta.namespace, meta.generation, deployment.status.readyReplicas)


class _Membership(msgspec.Struct):
    labels: dict[str, str] = msgspec.field(name="set", default_factory=dict[str, str])


def _read_namespace_state(namespace: types.Namespace) -> object:
    """Return how the labels of the model's namespace differ from those that the charm set."""
    meta = namespace.metadata
    try:
        text = meta.annotations.get(names.MEMBERSHIP, "{}")
        ours = msgspec.json.decode(text, type=_Membership).labels.items()
    except msgspec.MsgspecError:
        ours = dict[str, str]().items()
    others, lost = meta.labels.items() - ours, ours - meta.labels.items()
    return (others, lost, meta.deletionTimestamp is not None)


def _read_profile_state(namespace: types.Namespace) -> object:
    """Return the labels by which users choose a profile's mesh and its integrator."""
    keys = (names.INJECTION, names.REVISION, names.SERVED)
    return [namespace.metadata.labels.get(key) for key in keys]


def _read_webhook_state(deployment: Deployment) -> tuple[bool, bool]:
    """Return whether the webhook has a ready pod, and whether its pods are rejected."""
    refused = ("ReplicaFailure", "True")
    conditions = deployment.status.conditions
    is_refused = any((each.type, each.status) == refused for each in conditions)
    return (bool(deployment.status.readyReplicas), is_refused)


def watch_gateway(
    connection: client.Client, *, model: str, owner: str, named: service.Gateway
) -> list[ObservedKind[Any]]:
    """Return watches of the gateway's pods or Deployment, its Service, and the Istio objects.

    Without a name in `named` the gateway is in the model. `owner` is the value of the owner label
    on this charm's objects.
    """
    home = named.namespace or model
    fields = f"metadata.name={named.name}" if named.name else ""
    ours = f"{names.OWNER}={owner}"

    def is_own(item: types.Object) -> bool:
        return item.metadata.labels.get(names.OWNER) == owner

    def is_ours(item: types.Object) -> bool:
        return item.metadata.namespace == model and is_own(item)

    def is_gateway(item: types.Object) -> bool:
        return bool(named.name) or names.GATEWAY_NAME in item.metadata.labels or is_ours(item)

    def of_deployment(item: Deployment) -> object:
        return bool(item.status.readyReplicas) if is_gateway(item) else None

    observed = functools.partial(ObservedKind[Any], connection, is_patient=True, is_ours=is_ours)
    found = [
        observed(
            GatewayService,
            lambda item: is_gateway(item) or None,
            written=_read_service_state,
            namespace=home,
            fields=fields,
        ),
        observed(IstioGateway, written=_read_generation, namespace=model, labels=ours),
        observed(
            EnvoyFilter,
            # Another integrator's hosts may become free.
            lambda item: is_own(item) or item.metadata.annotations.get(names.HOSTS),
            written=lambda item: is_own(item) and item.metadata.generation,
            namespace=home,
            labels=names.OWNER,
            is_ours=is_own,
        ),
    ]
    found += [
        observed(
            Secret,
            written=_hash_secret,
            namespace=home,
            fields=f"metadata.name={secret}",
            is_ours=lambda item: names.APPLIED_HASH in item.metadata.annotations,
        )
        for secret in named.secrets
    ]
    if named.selector:
        # Pods of another namespace with the gateway's labels would also serve the model's routes.
        labels = ",".join(f"{key}={value}" for key, value in sorted(named.selector.items()))
        found.append(
            ObservedPods(connection, types.Pod, _read_pod_state, is_patient=True, labels=labels)
        )
    elif not named.name:
        found.append(observed(Deployment, of_deployment, namespace=model))
    return found


def _hash_secret(secret: Secret) -> int:
    # The service keeps no key.
    return hash(frozenset(secret.data.items()))


def _read_service_state(service: GatewayService) -> object:
    # A Service has no generation.
    return (service.spec.get("selector"), service.spec.get("ports"))


def _read_pod_state(pod: types.Pod) -> frozenset[object] | None:
    """Return the workload of a gateway's pod, and whether it is ready; None if it has ended."""
    meta = pod.metadata
    if pod.status.phase in ("Succeeded", "Failed"):
        return None
    workload = next((each.uid for each in meta.ownerReferences if each.controller), meta.name)
    return frozenset([(meta.namespace, workload), *(["ready"] if seen.is_ready(pod) else [])])

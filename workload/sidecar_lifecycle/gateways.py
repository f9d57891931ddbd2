# Field names are those of the Kubernetes API.
# ruff: noqa: N815
"""Watch what the model's ingress rests on, wherever it is, and have the charm told.

That is: gateway workloads and their Services, everybody's Gateways, policies that ask another
authorization service, and the age of our own guard.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable

import msgspec
from lightkube.core import resource

from . import names, observe
from .kube import client, types, watch

GUARDED_AFTER = 61.0
"""Seconds after which the charm opens a shared gateway: its earlier connections have ended."""

_TEMPLATES = "inject.istio.io/templates"
_READ = ["list", "watch", "global_list", "global_watch"]


def _info(group: str, version: str, kind: str, plural: str) -> resource.ApiInfo:
    return resource.ApiInfo(resource.ResourceDef(group, version, kind), plural, _READ)


class Container(types.Model):
    """What tells whether a proxy routes for others."""

    name: str = ""
    args: list[str] = msgspec.field(default_factory=list[str])


class PodSpec(types.Model):
    """The containers of a workload's pods."""

    containers: list[Container] = msgspec.field(default_factory=list[Container])


class Template(types.Model):
    """What a workload's pods will be."""

    metadata: types.ObjectMeta = msgspec.field(default_factory=types.ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class WorkloadSpec(types.Model):
    """The part of a workload's specification that says whether it is a gateway."""

    template: Template = msgspec.field(default_factory=Template)


class WorkloadStatus(types.Model):
    """How far a workload is; each kind has its own word for it."""

    readyReplicas: int = 0
    numberReady: int = 0


class Workload(types.Object):
    """A Deployment or a DaemonSet."""

    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)

    @property
    def labels(self) -> dict[str, str]:
        """Of its pods."""
        return self.spec.template.metadata.labels

    @property
    def is_gateway(self) -> bool:
        """Whether its proxies route for others: by Istio's template, or by their arguments."""
        templates = self.spec.template.metadata.annotations.get(_TEMPLATES, "")
        return "gateway" in templates.split(",") or any(
            container.name == names.PROXY and "router" in container.args
            for container in self.spec.template.spec.containers
        )


class Deployment(resource.NamespacedResourceG, Workload):
    """A Deployment."""

    _api_info = _info("apps", "v1", "Deployment", "deployments")


class DaemonSet(resource.NamespacedResourceG, Workload):
    """A DaemonSet."""

    _api_info = _info("apps", "v1", "DaemonSet", "daemonsets")


class ServicePort(types.Model):
    """A port that a Service has."""

    name: str = ""
    port: int = 0


class ServiceSpec(types.Model):
    """What a Service leads to."""

    selector: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    ports: list[ServicePort] = msgspec.field(default_factory=list[ServicePort])


class Service(resource.NamespacedResourceG, types.Object):
    """A Service."""

    _api_info = _info("", "v1", "Service", "services")

    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)


class Gateway(resource.NamespacedResourceG, types.Object):
    """A Gateway of Istio; its generation says whether it changed."""

    _api_info = _info("networking.istio.io", "v1", "Gateway", "gateways")


class EnvoyFilter(resource.NamespacedResourceG, types.Object):
    """An EnvoyFilter, of which only the age matters."""

    _api_info = _info("networking.istio.io", "v1alpha3", "EnvoyFilter", "envoyfilters")


class PolicySpec(types.Model):
    """What a policy does."""

    action: str = ""


class AuthorizationPolicy(resource.NamespacedResourceG, types.Object):
    """An AuthorizationPolicy of Istio."""

    _api_info = _info("security.istio.io", "v1", "AuthorizationPolicy", "authorizationpolicies")

    spec: PolicySpec = msgspec.field(default_factory=PolicySpec)


class Observer:
    """Calls back when something that decides about the model's gateway changed.

    Args:
        connection: To the API server.
        owner: Of our own objects, as their label has it.
        changed: What to call.
    """

    def __init__(self, connection: client.Client, owner: str, changed: Callable[[], None]) -> None:
        self._client = connection
        self._owner = owner
        self._changed = changed
        self._pods: dict[tuple[str, str, str], dict[str, str]] = {}
        """Labels of the pods of each gateway workload."""
        self._alarms: dict[str, asyncio.TimerHandle] = {}

    async def run(self) -> None:
        """Observe until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for kind in (Deployment, DaemonSet):
                    tasks.create_task(
                        self._follow(kind, workload_fingerprint, noted=self._note_workload)
                    )
                tasks.create_task(self._follow(Service, self._service_fingerprint))
                tasks.create_task(self._follow(Gateway, version_fingerprint))
                tasks.create_task(self._follow(AuthorizationPolicy, policy_fingerprint))
                tasks.create_task(
                    observe.follow(
                        self._client,
                        EnvoyFilter,
                        version_fingerprint,
                        self._changed,
                        labels=f"{names.OWNER}={self._owner}",
                        noted=self._note_guard,
                    )
                )
        finally:
            for alarm in self._alarms.values():
                alarm.cancel()

    async def _follow(
        self,
        kind: type[watch.T],
        fingerprint: Callable[[watch.T], observe.Fingerprint],
        noted: Callable[[watch.Change[watch.T]], None] | None = None,
    ) -> None:
        await observe.follow(self._client, kind, fingerprint, self._changed, noted=noted)

    def _note_workload(self, change: watch.Change[watch.T]) -> None:
        item = change.object
        assert item is not None
        key = (type(item).__name__, item.metadata.namespace or "", item.metadata.name)
        if change.kind != "deleted" and isinstance(item, Workload) and item.is_gateway:
            self._pods[key] = item.labels
        else:
            self._pods.pop(key, None)

    def _service_fingerprint(self, service: Service) -> observe.Fingerprint:
        """Return what matters of a gateway's Service; None for every other."""
        selector = service.spec.selector
        serves = selector and any(
            namespace == service.metadata.namespace and selector.items() <= labels.items()
            for (_, namespace, _), labels in self._pods.items()
        )
        ports = tuple((port.name, port.port) for port in service.spec.ports)
        return (tuple(sorted(selector.items())), ports) if serves else None

    def _note_guard(self, change: watch.Change[EnvoyFilter]) -> None:
        """Have the charm look again when connections from before a new guard have ended."""
        assert change.object is not None
        meta = change.object.metadata
        if alarm := self._alarms.pop(meta.uid, None):
            alarm.cancel()
        if change.kind == "deleted" or not meta.creationTimestamp:
            return
        since = datetime.datetime.fromisoformat(meta.creationTimestamp)
        age = (datetime.datetime.now(datetime.UTC) - since).total_seconds()
        if age < GUARDED_AFTER:
            loop = asyncio.get_running_loop()
            self._alarms[meta.uid] = loop.call_later(GUARDED_AFTER - age, self._changed)


def workload_fingerprint(workload: Workload) -> observe.Fingerprint:
    """Return what matters of a gateway workload; None for every other workload."""
    if not workload.is_gateway:
        return None
    ready = bool(workload.status.readyReplicas or workload.status.numberReady)
    return (tuple(sorted(workload.labels.items())), ready)


def version_fingerprint(item: types.Object) -> observe.Fingerprint:
    """Return which object it is, and its specification's version."""
    return (item.metadata.uid, item.metadata.generation)


def policy_fingerprint(policy: AuthorizationPolicy) -> observe.Fingerprint:
    """Return what matters of a policy that asks somebody; None for those that decide alone."""
    return version_fingerprint(policy) if policy.spec.action == "CUSTOM" else None

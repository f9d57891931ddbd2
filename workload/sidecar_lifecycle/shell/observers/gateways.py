# Field names are those of the Kubernetes API.
# ruff: noqa: N815
"""Watch what the model's ingress rests on, wherever it is, and have the charm told.

That is: gateway workloads and their Services, our own Gateway, and our own guard with its age.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable

import msgspec

from integrator_contract import names, service
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell.kube import client, watch

from . import observe

GUARDED_AFTER = service.DRAINED_AFTER + 1.0
"""Seconds after which the charm is told: the age that it reads is in whole seconds."""
MOST_WORKLOADS = 32
"""Gateway workloads of one namespace whose Services are observed: each Service is compared with
all of them, and who may create Deployments can make thousands that look like gateways."""


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
        templates = self.spec.template.metadata.annotations.get(names.TEMPLATES, "")
        return "gateway" in templates.split(",") or any(
            container.name == names.PROXY and "router" in container.args
            for container in self.spec.template.spec.containers
        )


class Deployment(Workload):
    """A Deployment."""

    api = types.Api("apps", "v1", "Deployment", "deployments")


class DaemonSet(Workload):
    """A DaemonSet."""

    api = types.Api("apps", "v1", "DaemonSet", "daemonsets")


class ServicePort(types.Model):
    """A port that a Service has."""

    name: str = ""
    port: int = 0
    targetPort: int | str = 0


class ServiceSpec(types.Model):
    """What a Service leads to."""

    selector: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    ports: list[ServicePort] = msgspec.field(default_factory=list[ServicePort])


class Service(types.Object):
    """A Service."""

    api = types.Api("", "v1", "Service", "services")

    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)


class Gateway(types.Object):
    """Our own Gateway of Istio."""

    api = types.Api("networking.istio.io", "v1", "Gateway", "gateways")


class EnvoyFilter(types.Object):
    """An EnvoyFilter, of which only the age matters."""

    api = types.Api("networking.istio.io", "v1alpha3", "EnvoyFilter", "envoyfilters")


class Observer:
    """Calls back when something that decides about the model's gateway changed.

    Args:
        connection: To the API server.
        owner: Of our own objects, as their label has it.
        changed: What to call.
        model: Where our own Gateway is.
    """

    def __init__(
        self,
        connection: client.Client,
        owner: str,
        changed: Callable[[], None],
        *,
        model: str = "",
    ) -> None:
        self._client = connection
        self._owner = owner
        self._model = model
        self._edits = observe.Edits()
        self._changed = changed
        self._pods: dict[str, dict[tuple[str, str], dict[str, str]]] = {}
        """Labels of the pods of each gateway workload, by namespace, kind and name."""
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
                tasks.create_task(
                    observe.follow(
                        self._client,
                        Gateway,
                        self._our_fingerprint,
                        self._changed,
                        labels=f"{names.OWNER}={self._owner}",
                        noted=self._edits.note,
                        is_ours=self._is_ours,
                    )
                )
                tasks.create_task(
                    observe.follow(
                        self._client,
                        EnvoyFilter,
                        self._our_fingerprint,
                        self._changed,
                        labels=f"{names.OWNER}={self._owner}",
                        noted=self._note_guard,
                        is_ours=self._is_ours,
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
        await observe.follow(
            self._client, kind, fingerprint, self._changed, noted=noted, is_ours=self._is_ours
        )

    def _note_workload(self, change: watch.Change[watch.T]) -> None:
        item = change.object
        assert item is not None
        workloads = self._pods.setdefault(item.metadata.namespace or "", {})
        key = (type(item).__name__, item.metadata.name)
        if change.kind == "deleted" or not isinstance(item, Workload) or not item.is_gateway:
            workloads.pop(key, None)
        elif key in workloads or len(workloads) < MOST_WORKLOADS:
            workloads[key] = item.labels

    def _service_fingerprint(self, service: Service) -> observe.Fingerprint:
        """Return what matters of a gateway's Service; None for every other."""
        selector = service.spec.selector
        workloads = self._pods.get(service.metadata.namespace or "", {})
        serves = selector and any(
            selector.items() <= labels.items() for labels in workloads.values()
        )
        if not serves:
            return None
        ports = tuple((port.name, port.port, port.targetPort) for port in service.spec.ports)
        now = (tuple(sorted(selector.items())), ports)
        if not self._is_ours(service):
            return now
        # A Service has no version of its specification.
        return (service.metadata.uid, self._edits.of(service.metadata, now))

    def _is_ours(self, item: types.Object) -> bool:
        """Tell whether the charm made it; what lies with a gateway elsewhere is selected so."""
        meta = item.metadata
        is_here = meta.namespace == self._model or isinstance(item, EnvoyFilter)
        return is_here and meta.labels.get(names.OWNER) == self._owner

    def _our_fingerprint(self, item: types.Object) -> observe.Fingerprint:
        return (item.metadata.uid, self._edits.of(item.metadata))

    def _note_guard(self, change: watch.Change[EnvoyFilter]) -> None:
        """Have the charm look again when connections from before a new guard have ended."""
        self._edits.note(change)
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

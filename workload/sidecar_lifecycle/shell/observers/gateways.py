# Names are those of the Kubernetes API.
# ruff: noqa: N815, D101, RUF012
"""Watch the objects of the model's ingress, and have the charm told when they change.

They are the gateway's workload and Service, our own Gateway, and our own EnvoyFilter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec

from integrator_contract import names
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell.kube import client

from . import observe


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


@dataclasses.dataclass(frozen=True)
class Observer:
    """Calls back when an object of the model's ingress changed.

    The gateway's workload is in the model unless its Service, NAMESPACE/NAME, is named. The owner
    is the value of a label on our own objects.
    """

    connection: client.Client
    _: dataclasses.KW_ONLY
    model: str
    owner: str
    named: str
    changed: Callable[[], None]
    edits: observe.Edits = dataclasses.field(default_factory=observe.Edits)

    async def run(self) -> None:
        """Observe until cancelled."""
        await observe.follow_all(self.connection, self._rows(), self.changed)

    def _rows(self) -> list[observe.Row[Any]]:
        home, _, name = self.named.partition("/")
        home = home or self.model
        # Pods elsewhere with the labels of a named gateway would serve our routes, too.
        workloads = "*" if self.named else self.model
        ours = f"{names.OWNER}={self.owner}"
        edited, is_ours = self._edited, self._is_ours
        return [
            observe.Row(Deployment, workload_fingerprint, namespace=workloads, is_ours=is_ours),
            observe.Row(DaemonSet, workload_fingerprint, namespace=workloads, is_ours=is_ours),
            observe.Row(
                Service,
                self._service_fingerprint,
                namespace=home,
                fields=f"metadata.name={name}" if name else "",
                is_ours=is_ours,
            ),
            observe.Row(
                Gateway,
                edited,
                namespace=self.model,
                labels=ours,
                noted=self.edits.note,
                is_ours=is_ours,
            ),
            observe.Row(
                EnvoyFilter,
                edited,
                namespace=home,
                labels=ours,
                noted=self.edits.note,
                is_ours=lambda _: True,
            ),
        ]

    def _is_ours(self, item: types.Object) -> bool:
        meta = item.metadata
        return meta.namespace == self.model and meta.labels.get(names.OWNER) == self.owner

    def _edited(self, item: types.Object) -> observe.Fingerprint:
        return (item.metadata.uid, self.edits.of(item.metadata))

    def _service_fingerprint(self, service: Service) -> observe.Fingerprint:
        """Return what matters of the gateway's Service; None for every other."""
        ports = tuple((port.name, port.port, port.targetPort) for port in service.spec.ports)
        now = (tuple(sorted(service.spec.selector.items())), ports)
        if self.named or names.GATEWAY_NAME in service.metadata.labels:
            return now
        if self._is_ours(service):
            # A Service has no version of its specification.
            return (service.metadata.uid, self.edits.of(service.metadata, now))
        return None


def workload_fingerprint(workload: Deployment) -> observe.Fingerprint:
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

# Field names are those of the Kubernetes API, as in lightkube's own models.
# ruff: noqa: N815
"""Slim Kubernetes resources: only the fields that somebody here reads are decoded.

A pod with a sidecar is some 8 KB of JSON; decoding these fields takes a few microseconds. The
classes carry lightkube's resource description, so its client lists and gets them directly.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, cast

import msgspec
from lightkube.core import resource


class Model(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """Base of the slim types: unknown fields are skipped, defaults are not written."""


class OwnerReference(Model):
    """Who owns an object."""

    apiVersion: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    blockOwnerDeletion: bool | None = None


class ObjectMeta(Model):
    """The metadata that we read."""

    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resourceVersion: str | None = None
    generation: int | None = None
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    ownerReferences: list[OwnerReference] = []


class Resource(Protocol):
    """What every resource here has."""

    metadata: ObjectMeta


R = TypeVar("R", bound=Resource)


class ExitCodes(Model):
    """The exit codes that a restart rule is about."""

    operator: str = ""
    values: list[int] = []


class RestartRule(Model):
    """One entry of a container's restartPolicyRules."""

    action: str = ""
    exitCodes: ExitCodes | None = None


class Container(Model):
    """A container of any kind, as the pod's specification has it."""

    name: str = ""
    image: str | None = None
    restartPolicy: str | None = None
    restartPolicyRules: list[RestartRule] = []


class PodSpec(Model):
    """The part of a pod's specification that decides about its life."""

    restartPolicy: str = "Always"
    nodeName: str | None = None
    hostNetwork: bool = False
    serviceAccountName: str | None = None
    containers: list[Container] = []
    initContainers: list[Container] = []
    ephemeralContainers: list[Container] = []


class Terminated(Model):
    """A container that ended."""

    exitCode: int = 0
    reason: str | None = None
    startedAt: str | None = None
    finishedAt: str | None = None
    containerID: str | None = None


class Running(Model):
    """A container that runs."""

    startedAt: str | None = None


class Waiting(Model):
    """A container that has not started, or not yet again."""

    reason: str | None = None
    message: str | None = None


class ContainerState(Model):
    """At most one of the three is set; none means waiting."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Model):
    """What the kubelet last said about a container."""

    name: str = ""
    containerID: str | None = None
    ready: bool = False
    started: bool | None = None
    restartCount: int = 0
    state: ContainerState = msgspec.field(default_factory=ContainerState)
    lastState: ContainerState = msgspec.field(default_factory=ContainerState)


class Condition(Model):
    """A condition of a pod, a Deployment and so on."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    lastTransitionTime: str | None = None


class PodStatus(Model):
    """What the kubelet last said about a pod."""

    phase: str = ""
    reason: str | None = None
    podIP: str | None = None
    startTime: str | None = None
    conditions: list[Condition] = []
    initContainerStatuses: list[ContainerStatus] = []
    containerStatuses: list[ContainerStatus] = []
    ephemeralContainerStatuses: list[ContainerStatus] = []


_READ = ["get", "global_list", "global_watch", "list", "watch"]
_WRITE = ["delete", "patch", "post", "put"]


def _info(group: str, version: str, kind: str, plural: str) -> resource.ApiInfo:
    return resource.ApiInfo(resource.ResourceDef(group, version, kind), plural, _READ + _WRITE)


class Object(Model, gc=True):
    """What every object has."""

    apiVersion: str | None = None
    kind: str | None = None
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class Pod(resource.NamespacedResourceG, Object):
    """A pod."""

    _api_info = _info("", "v1", "Pod", "pods")

    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class Namespace(resource.GlobalResource, Object):
    """A namespace; only its metadata matters."""

    _api_info = resource.ApiInfo(
        resource.ResourceDef("", "v1", "Namespace"),
        "namespaces",
        ["get", "list", "watch", "patch"],
    )


class ObjectReference(Model):
    """What an Event is about."""

    apiVersion: str | None = None
    kind: str | None = None
    namespace: str | None = None
    name: str | None = None
    uid: str | None = None
    fieldPath: str | None = None


class EventSource(Model):
    """Who says so."""

    component: str | None = None
    host: str | None = None


class Event(resource.NamespacedResourceG, Object):
    """An Event of core/v1, which is what `kubectl describe` shows."""

    _api_info = _info("", "v1", "Event", "events")

    involvedObject: ObjectReference = msgspec.field(default_factory=ObjectReference)
    reason: str | None = None
    message: str | None = None
    type: str | None = None
    source: EventSource = msgspec.field(default_factory=EventSource)
    count: int | None = None
    firstTimestamp: str | None = None
    lastTimestamp: str | None = None
    reportingComponent: str = ""
    reportingInstance: str = ""


class LeaseSpec(Model):
    """Who leads, and since when."""

    holderIdentity: str | None = None
    leaseDurationSeconds: int | None = None
    acquireTime: str | None = None
    renewTime: str | None = None
    leaseTransitions: int | None = None


class Lease(resource.NamespacedResourceG, Object):
    """A Lease."""

    _api_info = _info("coordination.k8s.io", "v1", "Lease", "leases")

    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class DeploymentStatus(Model):
    """How far a Deployment is."""

    availableReplicas: int = 0
    readyReplicas: int = 0


class Deployment(resource.NamespacedResourceG, Object):
    """A Deployment; only who it is and whether it is there."""

    _api_info = _info("apps", "v1", "Deployment", "deployments")

    status: DeploymentStatus = msgspec.field(default_factory=DeploymentStatus)


class EndpointConditions(Model):
    """Whether an endpoint takes traffic."""

    ready: bool | None = None


class Endpoint(Model):
    """One backend of a Service."""

    conditions: EndpointConditions = msgspec.field(default_factory=EndpointConditions)


class EndpointSlice(resource.NamespacedResourceG, Object):
    """Which backends a Service has."""

    _api_info = _info("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")

    endpoints: list[Endpoint] = []


class ServiceReference(Model):
    """The Service that a webhook is at."""

    namespace: str = ""
    name: str = ""


class WebhookClientConfig(Model):
    """Where a webhook is; without a Service it is at a URL."""

    service: ServiceReference | None = None


class MutatingWebhook(Model):
    """One webhook of a configuration."""

    name: str = ""
    clientConfig: WebhookClientConfig = msgspec.field(default_factory=WebhookClientConfig)


class MutatingWebhookConfiguration(resource.GlobalResource, Object):
    """A webhook configuration; its generation says whether it changed."""

    _api_info = resource.ApiInfo(
        resource.ResourceDef("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration"),
        "mutatingwebhookconfigurations",
        ["get", "list", "watch"],
    )

    webhooks: list[MutatingWebhook] = []


def without_nulls(value: Any) -> Any:
    """Return `value` with every mapping key whose value is null removed, as the API treats it."""
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value)
        return {key: without_nulls(entry) for key, entry in items.items() if entry is not None}
    if isinstance(value, list):
        return [without_nulls(entry) for entry in cast("list[Any]", value)]
    return value


def decode_json(data: bytes | msgspec.Raw, kind: type[R]) -> R:
    """Decode a resource as the API sends it.

    Args:
        data: one JSON document.
        kind: the slim type to decode into.

    Raises:
        msgspec.ValidationError: if the document does not have that type's shape.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        # An explicit null where a value belongs is legal JSON for an absent field, and rare.
        return msgspec.convert(without_nulls(msgspec.json.decode(data)), kind)

# Names are those of the Kubernetes API.
# ruff: noqa: N815, D101
"""Slim Kubernetes resources: only fields that the workload reads are decoded.

A pod with a sidecar is some 8 KB of JSON; decoding these fields takes a few microseconds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ClassVar, NamedTuple, TypeVar

import msgspec

from integrator_contract import bounded


class Partial(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """Base of the slim types: unknown fields are skipped, defaults are not written."""


class OwnerReference(Partial):
    apiVersion: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    blockOwnerDeletion: bool | None = None


class ObjectMeta(Partial):
    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resourceVersion: str | None = None
    generation: int | None = None
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    ownerReferences: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class ExitCodes(Partial):
    operator: str = ""
    values: tuple[int, ...] = ()


class RestartRule(Partial):
    action: str = ""
    exitCodes: ExitCodes | None = None


class HTTPGetAction(Partial):
    path: str | None = None


class Present(Partial):
    """An object of which only the presence counts."""


class Handler(Partial):
    """The call of a probe or a hook; all three fields are None if it runs a command."""

    httpGet: HTTPGetAction | None = None
    tcpSocket: Present | None = None
    grpc: Present | None = None


class Lifecycle(Partial):
    postStart: Handler | None = None


class Container(Partial):
    name: str = ""
    image: str | None = None
    restartPolicy: str | None = None
    restartPolicyRules: tuple[RestartRule, ...] = ()
    startupProbe: Handler | None = None
    lifecycle: Lifecycle | None = None


class PodOS(Partial):
    name: str = ""


class NodeRequirement(Partial):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Partial):
    matchExpressions: tuple[NodeRequirement, ...] = ()


class NodeSelector(Partial):
    nodeSelectorTerms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(Partial):
    requiredDuringSchedulingIgnoredDuringExecution: NodeSelector | None = None


class Affinity(Partial):
    nodeAffinity: NodeAffinity | None = None


class PodSpec(Partial):
    restartPolicy: str = "Always"
    nodeName: str | None = None
    hostNetwork: bool = False
    os: PodOS | None = None
    nodeSelector: dict[str, str] = {}
    affinity: Affinity | None = None
    containers: tuple[Container, ...] = ()
    initContainers: tuple[Container, ...] = ()


class Terminated(Partial):
    exitCode: int = 0
    reason: str | None = None
    finishedAt: str | None = None


class Waiting(Partial):
    reason: str | None = None
    message: str | None = None


class ContainerState(Partial):
    """At most one of the three is set; without one the container is waiting."""

    waiting: Waiting | None = None
    running: Present | None = None
    terminated: Terminated | None = None


class ContainerStatus(Partial):
    name: str = ""
    containerID: str | None = None
    ready: bool = False
    state: ContainerState = msgspec.field(default_factory=ContainerState)
    lastState: ContainerState = msgspec.field(default_factory=ContainerState)


class Condition(Partial):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    lastTransitionTime: str | None = None


class PodStatus(Partial):
    phase: str = ""
    reason: str | None = None
    startTime: str | None = None
    conditions: tuple[Condition, ...] = ()
    initContainerStatuses: tuple[ContainerStatus, ...] = ()
    containerStatuses: tuple[ContainerStatus, ...] = ()


class Api(NamedTuple):
    """The `apiVersion` and the kind of an object."""

    version: str
    kind: str


class Object(Partial, gc=True):
    """The fields of every object."""

    api: ClassVar[Api]

    apiVersion: str | None = None
    kind: str | None = None
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


R = TypeVar("R", bound=Object)


class Pod(Object):
    api = Api("v1", "Pod")

    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class Namespace(Object):
    api = Api("v1", "Namespace")


class ObjectReference(Partial):
    apiVersion: str | None = None
    kind: str | None = None
    namespace: str | None = None
    name: str | None = None
    uid: str | None = None


class EventSource(Partial):
    component: str | None = None


class Event(Object):
    """An Event of core/v1, as `kubectl describe` shows it."""

    api = Api("v1", "Event")

    involvedObject: ObjectReference = msgspec.field(default_factory=ObjectReference)
    reason: str | None = None
    message: str | None = None
    type: str | None = None
    source: EventSource = msgspec.field(default_factory=EventSource)
    count: int | None = None
    firstTimestamp: str | None = None
    lastTimestamp: str | None = None


class EndpointConditions(Partial):
    ready: bool | None = None


class Endpoint(Partial):
    conditions: EndpointConditions = msgspec.field(default_factory=EndpointConditions)


class EndpointSlice(Object):
    api = Api("discovery.k8s.io/v1", "EndpointSlice")

    endpoints: tuple[Endpoint, ...] | None = None
    """The API server writes null for none."""


class ServiceReference(Partial):
    namespace: str = ""
    name: str = ""


class WebhookClientConfig(Partial):
    """The address of a webhook; without a Service it is a URL."""

    service: ServiceReference | None = None


class MutatingWebhook(Partial):
    clientConfig: WebhookClientConfig = msgspec.field(default_factory=WebhookClientConfig)


class MutatingWebhookConfiguration(Object):
    api = Api("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration")

    webhooks: tuple[MutatingWebhook, ...] = ()


@functools.cache
def _find_decoder(kind: type[R]) -> Callable[[bytes | msgspec.Raw], R]:
    """Return the cached decoder of a type, which is slow to create."""
    return msgspec.json.Decoder(kind).decode


def decode_json(data: bytes | msgspec.Raw, kind: type[R]) -> R:
    """Decode a resource as the API sends it.

    Raises:
        msgspec.ValidationError: if the document does not have that type's shape.
        ValueError: if it is not JSON, or not UTF-8.
        RecursionError: if it is large and nested too deep.
    """
    return bounded.cut_if_deep(_find_decoder(kind), data)

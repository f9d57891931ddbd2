"""The gateway workload that the operator names by its Service, and what forbids to use it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence

from integrator_contract import booleans, pods
from istio_integrator import texts
from istio_integrator.ingress import gateways, observed
from istio_integrator.ingress.gateway import Target
from istio_integrator.istio import meshconfig, proxies
from istio_integrator.kube import cluster
from istio_integrator.messages import Message, Said
from istio_integrator.situation import situation

_SCOPE_SETTING = "PILOT_SCOPE_GATEWAY_TO_NAMESPACE"
"""The variable by which istiod binds Gateways only to workloads of their own namespace."""
RESERVED_PORTS = frozenset({15000, 15001, 15004, 15006, 15008, 15009, 15020, 15021, 15053, 15090})
"""Ports of a proxy itself (istio.io, Application Requirements), which no Gateway can use."""
_FINISHED = ("Succeeded", "Failed")
_AUTHORITY = "CA_ADDR"
"""The variable of a proxy that has istiod's address, `NAME.NAMESPACE.svc:PORT`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """What is known beside the Service and the pods."""

    reference: str
    """The option gateway-service, `namespace/name`."""
    model: str
    application: str
    hosts: tuple[str, ...]
    istiod_namespace: str
    """Where the model's istiod runs; empty: not known."""
    is_scoped: bool = False
    """Whether istiod binds Gateways only to workloads of their own namespace."""
    missing_label: str = ""
    """The label without which istiod ignores the Service's namespace; empty where it serves it."""

    @property
    def namespace(self) -> str:
        """Of the Service."""
        return self.reference.partition("/")[0]


def look(scope: situation.Situation, services: Iterable[cluster.Object]) -> Target | Message:
    """Look at the Service in gateway-service and at the pods that its selector means."""
    reference = scope.config.gateway_service
    setting = meshconfig.environment(gateways.find_istiod(scope)).get(_SCOPE_SETTING)
    asked = Asked(
        reference=reference,
        model=scope.model,
        application=scope.application,
        hosts=scope.config.hosts,
        istiod_namespace=scope.mesh.namespace if scope.mesh else "",
        is_scoped=booleans.parse(setting, default=False),
        missing_label=scope.missing_label(reference.partition("/")[0]),
    )
    service = next((one for one in services if observed.reference(one) == reference), None)
    selector = cluster.at(service, "spec", "selector")
    selected = scope.cluster.list(cluster.POD, labels=selector) if selector else []
    return decide(asked, service, selected)


def decide(
    asked: Asked, service: cluster.Object | None, selected: Sequence[cluster.Object]
) -> Target | Message:
    """Decide whether the pods of a Service can be the model's gateway.

    A Gateway selects pods of all namespaces, its guard those of one. So the labels that select the
    gateway must mean the pods of one workload in the whole cluster.
    """
    present = [pod for pod in selected if cluster.at(pod, "status").get("phase") not in _FINISHED]
    if obstacle := _obstacle_in_service(asked, service) or _obstacle_in_pods(asked, present):
        return obstacle
    assert service is not None
    # A workload stops counting a pod when its deletion begins, and nothing tells of its end.
    running = [pod for pod in present if "deletionTimestamp" not in pod["metadata"]]
    ports = _ports(service, running)
    http_port = _usual_or_named(ports, 80, ("http", "http2"))
    https_port = _usual_or_named(ports, 443, ("https",))
    if not (http_port or https_port):
        return Said.GATEWAY_WITHOUT_PORT(service=asked.reference)
    found = Target(
        namespace=asked.namespace,
        selector=cluster.at(service, "spec", "selector"),
        service=asked.reference.partition("/")[2],
        http_port=http_port,
        https_port=https_port,
        hosts=asked.hosts,
        ready=any(map(cluster.is_ready, running)),
    )
    if not running:
        waiting = Said.GATEWAY_WITHOUT_PODS(service=asked.reference)
        return dataclasses.replace(found, messages=(waiting,))
    account = cluster.at(running[0], "spec").get("serviceAccountName") or "default"
    return dataclasses.replace(found, workload=workload(running[0]), account=str(account))


def _obstacle_in_service(asked: Asked, service: cluster.Object | None) -> Message | None:
    reference, namespace, application = asked.reference, asked.namespace, asked.application
    if not asked.hosts:
        return Said.GATEWAY_NEEDS_HOSTS(service=reference, application=application)
    if service is None:
        return Said.GATEWAY_ABSENT(service=reference, namespace=namespace)
    if not cluster.at(service, "spec", "selector"):
        return Said.GATEWAY_WITHOUT_SELECTOR(service=reference)
    if asked.missing_label and namespace != asked.model:
        # istiod would serve routes of the model there, and ignore the guard beside the pods.
        return Said.GATEWAY_IGNORED_BY_ISTIOD(
            service=reference, namespace=namespace, label=asked.missing_label
        )
    if asked.is_scoped and namespace != asked.model:
        return Said.GATEWAY_SCOPED(
            service=reference, setting=_SCOPE_SETTING, application=application
        )
    return None


def _obstacle_in_pods(asked: Asked, present: Sequence[cluster.Object]) -> Message | None:
    reference = asked.reference
    workloads = {f"{pod['metadata']['namespace']}/{workload(pod)}" for pod in present}
    if elsewhere := [one for one in workloads if not one.startswith(f"{asked.namespace}/")]:
        listed = texts.listed(elsewhere)
        return Said.GATEWAY_SELECTS_ELSEWHERE(service=reference, workloads=listed)
    if len(workloads) > 1:
        listed = texts.listed(workloads)
        return Said.GATEWAY_SELECTS_SEVERAL(service=reference, workloads=listed)
    for pod in present:
        if not proxies.is_router(pod):
            return Said.GATEWAY_IS_NONE(service=reference, pod=cluster.reference(pod))
        other = _istiod_namespace(pod)
        if asked.istiod_namespace and other not in ("", asked.istiod_namespace):
            return Said.GATEWAY_OF_OTHER_ISTIOD(
                service=reference, other=other, own=asked.istiod_namespace
            )
    return None


def workload(pod: cluster.Object) -> str:
    """Name what a pod belongs to: of a ReplicaSet its Deployment, of no controller itself."""
    metadata = cluster.at(pod, "metadata")
    for owner in cluster.parts(metadata, "ownerReferences"):
        if owner.get("controller"):
            template = cluster.at(metadata, "labels").get("pod-template-hash")
            return str(owner.get("name", "")).removesuffix(f"-{template}")
    return str(metadata.get("name", ""))


def _istiod_namespace(pod: cluster.Object) -> str:
    """Read from a proxy where its istiod runs; empty: not known."""
    for container in cluster.parts(cluster.at(pod, "spec"), "containers"):
        for variable in cluster.parts(container, "env"):
            if variable.get("name") == _AUTHORITY:
                address = str(variable.get("value", "")).partition(":")[0].split(".")
                return address[1] if address[2:3] == ["svc"] else ""
    return ""


def _usual_or_named(ports: dict[int, str], usual: int, protocols: Collection[str]) -> int | None:
    """Pick the usual port, or one whose name selects the protocol as Istio reads it."""
    named = (port for port, name in ports.items() if name.partition("-")[0] in protocols)
    return usual if usual in ports else next(named, None)


def _ports(service: cluster.Object, running: Sequence[cluster.Object]) -> dict[int, str]:
    """Map the ports of a Service that a Gateway can name to their names."""
    found: dict[int, str] = {}
    for port in cluster.parts(cluster.at(service, "spec"), "ports"):
        number, target = port.get("port"), port.get("targetPort")
        targets = (
            [_named_port(target, pod) for pod in running]
            if isinstance(target, str)
            else [target or number]
        )
        is_open = all(each and each not in RESERVED_PORTS for each in targets)
        if pods.is_port(number) and is_open and port.get("protocol", "TCP") == "TCP":
            found[number] = str(port.get("name", ""))
    return found


def _named_port(name: str, pod: cluster.Object) -> int:
    """Find the port of a name at which a pod listens; 0 where it has none."""
    for container in cluster.parts(cluster.at(pod, "spec"), "containers"):
        for declared in cluster.parts(container, "ports"):
            if declared.get("name") == name:
                return int(declared.get("containerPort", 0))
    return 0

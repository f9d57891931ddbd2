"""The gateway workload that the operator names by its Service, and obstacles to its use."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from integrator_contract import booleans, names
from istio_integrator import texts
from istio_integrator.asked.gateway import Target
from istio_integrator.istio import installation, meshconfig
from istio_integrator.kube import cluster, owners
from istio_integrator.messages import Message, Template
from istio_integrator.situation.model import Pod, Service
from istio_integrator.situation.situation import Situation

_SCOPE_SETTING = "PILOT_SCOPE_GATEWAY_TO_NAMESPACE"
"""The variable of istiod that limits Gateways to workloads of their own namespace."""
_RESERVED_PORTS = frozenset({15000, 15001, 15004, 15006, 15008, 15009, 15020, 15021, 15053, 15090})
"""Ports of the proxy itself (istio.io, Application Requirements), which Gateways cannot use."""
_AUTHORITY = "CA_ADDR"
"""The variable of a proxy with istiod's address, `NAME.NAMESPACE.svc:PORT`."""
TAKEN = (Template.HOSTS_OF_OTHER_OWNER, Template.HOSTS_OF_REMOVED_OWNER)
"""Messages instead of a gateway, at which another integrator guards all hosts of the model."""


def find_gateway(situation: Situation, mesh: installation.Mesh | None) -> Target | Message:
    """Find the gateway by the Service in gateway-service and the pods of its selector.

    A Gateway selects pods in all namespaces, but the guard only those in one namespace. Therefore
    every pod that the selector matches must be in the Service's namespace. The pods may belong to
    several workloads, such as a canary. A pod that is not such a gateway is reported.
    """
    reference = situation.config.gateway_service
    namespace, _, name = reference.partition("/")
    found = situation.cluster.get(cluster.SERVICE, name, namespace)
    api = situation.cluster
    service = next(iter(api.decode([found] if found else [], Service)), None)
    if obstacle := _find_obstacle_in_service(situation, mesh, service):
        return obstacle
    assert service is not None
    listed = api.decode(api.list(cluster.POD, labels=service.spec.selector), Pod)
    present = [pod for pod in listed if not pod.has_ended]
    workloads = {f"{pod.metadata.namespace}/{pod.controller}" for pod in present}
    if elsewhere := [one for one in workloads if not one.startswith(f"{namespace}/")]:
        listed = texts.join_names(elsewhere)
        return Template.GATEWAY_SELECTS_ELSEWHERE(service=reference, workloads=listed)
    obstacles = [_find_obstacle_in_pod(reference, mesh, pod) for pod in present]
    problems = [each for each in obstacles if each][:1]
    if problems and all(obstacles):
        return problems[0]
    gateways = [pod for pod, each in zip(present, obstacles, strict=True) if not each]
    # Controllers do not count a pod whose deletion has begun, and no event follows at its end.
    running = [pod for pod in gateways if not pod.metadata.deletion_timestamp]
    ports = _find_ports(service, running)
    http_port = _choose_port(ports, 80, ("http", "http2"))
    https_port = _choose_port(ports, 443, ("https",))
    if not (http_port or https_port):
        return Template.GATEWAY_WITHOUT_PORT(service=reference)
    if not running:
        problems = [Template.GATEWAY_WITHOUT_PODS(service=reference)]
    target = Target(
        namespace=namespace,
        selector=service.spec.selector,
        service=name,
        http_port=http_port,
        https_port=https_port,
        hosts=situation.config.hosts,
        ready=any(pod.is_ready for pod in running),
        accounts=tuple(sorted({pod.spec.service_account_name for pod in running})),
        messages=tuple(problems),
    )
    return _leave_out_taken_hosts(situation, target)


def _leave_out_taken_hosts(situation: Situation, target: Target) -> Target | Message:
    """Leave out hosts that another integrator's EnvoyFilter at this gateway guards.

    Users would get 404, because each of two guards rejects what the other one admits. An
    integrator that has a host keeps it. If two got one at once, the older EnvoyFilter keeps it.
    """
    label = {names.OWNER: None}
    found = situation.cluster.list(cluster.ENVOY_FILTER, target.namespace, label)
    # Integrators also write EnvoyFilters without hosts, for training jobs.
    guards = {each["metadata"]["labels"][names.OWNER]: each for each in found if _read_hosts(each)}
    own = guards.pop(situation.manifests.owner, None)
    taken: dict[str, str] = {}
    rank = cluster.rank_by_age
    for owner, each in guards.items():
        selected = cluster.at(each, "spec", "workloadSelector", "labels").items()
        if all(target.selector.get(key, value) == value for key, value in selected):
            is_younger = own is not None and rank(own) < rank(each)
            hosts = _read_hosts(each) - (_read_hosts(own) if is_younger else set())
            taken.update((host, owner) for host in hosts)
    lost = [host for host in target.hosts if host in taken]
    if not lost:
        return target
    # The other owners follow once this one is known.
    owner, kept = taken[lost[0]], tuple(host for host in target.hosts if host not in lost)
    is_gone = owners.is_gone(situation.cluster, owner)
    problem = (Template.HOSTS_OF_REMOVED_OWNER if is_gone else Template.HOSTS_OF_OTHER_OWNER)(
        owner=owner.replace(".", "/", 1),
        hosts=texts.join_names(host for host in lost if taken[host] == owner),
        namespace=target.namespace,
        name=guards[owner]["metadata"]["name"],
        application=situation.application,
    )
    if not kept:
        return problem
    return dataclasses.replace(target, hosts=kept, messages=(*target.messages, problem))


def _read_hosts(guard: cluster.Object | None) -> set[str]:
    annotations = cluster.at(guard, "metadata", "annotations")
    return set(str(annotations.get(names.HOSTS, "")).split(",")) - {""}


def _find_obstacle_in_service(
    situation: Situation, mesh: installation.Mesh | None, service: Service | None
) -> Message | None:
    reference, application = situation.config.gateway_service, situation.application
    namespace = reference.partition("/")[0]
    is_elsewhere = namespace != situation.model
    if not situation.config.hosts:
        return Template.GATEWAY_NEEDS_HOSTS(service=reference, application=application)
    if service is None:
        return Template.GATEWAY_ABSENT(service=reference, namespace=namespace)
    if not service.selector:
        return Template.GATEWAY_WITHOUT_SELECTOR(service=reference, application=application)
    selectors = mesh.settings.discovery_selectors if mesh and is_elsewhere else ()
    if label := meshconfig.read_lacking_labels(situation.cluster, selectors, namespace):
        # istiod would serve routes of the model there, but ignore the guard in that namespace.
        return Template.GATEWAY_IGNORED_BY_ISTIOD(
            service=reference, namespace=namespace, label=label
        )
    environment = mesh.settings.environment if mesh else None
    setting = (environment or {}).get(_SCOPE_SETTING)
    if is_elsewhere and booleans.parse(setting, default=False):
        return Template.GATEWAY_SCOPED(
            service=reference, setting=_SCOPE_SETTING, application=application
        )
    return None


def _find_obstacle_in_pod(
    reference: str, mesh: installation.Mesh | None, pod: Pod
) -> Message | None:
    proxies = [each for each in pod.spec.containers if each.name == names.PROXY]
    if not any("router" in each.args for each in proxies):
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        return Template.GATEWAY_IS_NONE(service=reference, pod=name)
    addresses = [each.value for each in proxies[0].env if each.name == _AUTHORITY]
    _, other, svc, *_ = [*"".join(addresses).partition(":")[0].split("."), "", "", ""]
    own = mesh.injector.namespace if mesh else ""
    if own and svc == "svc" and other != own:
        return Template.GATEWAY_OF_OTHER_ISTIOD(service=reference, other=other, own=own)
    return None


def _choose_port(ports: dict[int, str], usual: int, protocols: Collection[str]) -> int | None:
    """Return the usual port, or one whose name has the protocol's prefix by Istio's rules."""
    named = (port for port, name in ports.items() if name.partition("-")[0] in protocols)
    return usual if usual in ports else next(named, None)


def _find_ports(service: Service, running: Sequence[Pod]) -> dict[int, str]:
    listening = [
        [(port.name, port.container_port) for each in pod.spec.containers for port in each.ports]
        for pod in running
    ]
    found: dict[int, str] = {}
    for port in service.ports:
        # The pods of a canary may declare other ports.
        targets = set[int]().union(*(port.resolve_ports(named) for named in listening))
        if not targets & _RESERVED_PORTS and (targets or not listening):
            found[port.port] = port.name
    return found

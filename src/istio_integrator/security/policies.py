"""Who may call which workload of the model: one policy of sidecars for each; pure.

What applications say of their Services becomes what a sidecar can enforce, which knows no Service:
the labels of pods and the ports that they listen at. A sidecar passes over policies that name
their targets (istio pilot/pkg/model, policyattachment.go), so those that charms write beside their
relations are said again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal

from integrator_contract import names
from istio_integrator.istio.authorization_policy import principal
from istio_integrator.kube import cluster
from istio_integrator.relations import service_mesh
from istio_integrator.security import policies_book, policies_copied
from istio_integrator.security.called import Call, Selector, Service
from istio_integrator.security.policies_book import Rule
from istio_integrator.security.policies_workloads import Model

Mode = Literal["off", "related", "closed"]

SHARED = ("metadata-grpc-service", "mlmd")
"""Services that every user's pipelines write to, and whose charms say nothing by relations.

They know no users. Their callers include pods without a sidecar, and envoy, whose own sidecar does
not know the Host that it forwards and sends no certificate.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """What relations, options and the cluster say about who is to call whom."""

    mode: Mode
    model: Model
    consumers: Sequence[service_mesh.Received] = ()
    gateways: tuple[str, ...] = ()
    """Principals of the gateway."""
    gateway_pods: tuple[Selector, ...] = ()
    """Labels of gateways of ours in the model, also of one that is still to come."""
    controllers: Collection[str] = ()
    """Applications that write VirtualServices for our Gateway."""
    routed: Collection[tuple[str, int]] = ()
    """Services of the model that the gateway leads to, each with its port."""
    guards: Collection[tuple[str, int]] = ()
    """Services of the model that the gateway asks about requests."""
    calls: Collection[Call] = ()
    """By API servers, who have no certificate of the mesh."""
    others: Sequence[cluster.Object] = ()
    """AuthorizationPolicies of others in the model."""
    is_ambient: bool = False
    """Whether Services may be called through waypoints."""
    standing: Sequence[cluster.Object] = ()
    """Ours, as they are now."""

    @property
    def opened(self) -> list[Call]:
        """What callers without a certificate of the mesh may call, and who they are."""
        shared = filter(None, map(self.model.service, SHARED))
        return [
            *self.calls,
            *(Call("pipelines", each.name, port.number) for each in shared for port in each.ports),
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Policy:
    """Who may call the pods of one workload."""

    selector: Selector
    rules: tuple[Rule, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decision:
    """What is to be written, and what to say."""

    policies: tuple[Policy, ...] = ()
    is_closed: bool = False
    """Whether whatever else is in the model is called by nobody."""
    problems: tuple[str, ...] = ()
    """What of relations is refused."""
    waiting: tuple[str, ...] = ()


def decide(asked: Asked) -> Decision:
    """Decide who may call whom."""
    if asked.mode == "off":
        return Decision()
    said = [f"{one.reference}: {each}" for one in asked.consumers for each in one.problems]
    book = policies_book.Book(asked.model)
    for one in asked.consumers:
        book.state(one)
    _leave(book, asked)
    _lead(book, asked)
    if asked.mode == "closed":
        _keep_open(book, asked)
    _admit(book, asked)
    return Decision(
        policies=tuple(Policy(selector=key, rules=rules) for key, rules in book.entries()),
        is_closed=asked.mode == "closed",
        problems=tuple(dict.fromkeys((*said, *book.problems))),
        waiting=tuple(dict.fromkeys(book.waiting)),
    )


def _leave(book: policies_book.Book, asked: Asked) -> None:
    """Leave what stands for an application of which all is refused: nothing changes."""
    refused = {one.application for one in asked.consumers if one.problems and not one.policies}
    for each in asked.standing:
        for key in covered([each]):
            if dict(key).get(names.NAME) in refused:
                for rule in cluster.parts(cluster.at(each, "spec"), "rules"):
                    book.cover(key).add(rule)


def _lead(book: policies_book.Book, asked: Asked) -> None:
    """Let the gateway call what it leads to, and nobody else who is not named."""
    for name, _ in asked.routed:
        if found := asked.model.service(name):
            book.cover(found.selector)
    for found, ports in _reached(asked.routed, asked.model):
        book.cover(found.selector).name([policies_book.at(ports)], asked.gateways)


def _keep_open(book: policies_book.Book, asked: Asked) -> None:
    """Have rules of its own what serves callers from outside of the mesh by its nature."""
    for key in asked.gateway_pods:
        book.cover(key).add({})
    for pod in asked.model.pods:
        if pod.is_router or names.is_modeloperator(pod.labels):
            book.cover(pod.stable).add({})
        elif pod.has_proxy and pod.probes and not book.covering(pod.stable):
            book.cover(pod.stable)
    for found in filter(None, (asked.model.service(each.service) for each in asked.opened)):
        if not book.covering(found.selector):
            book.cover(found.selector)


def _admit(book: policies_book.Book, asked: Asked) -> None:
    """Let callers into the workloads of the book who need no relation for it."""
    called = {(each.service, each.port) for each in asked.opened}
    for found, ports in _reached(called, asked.model):
        book.extend(found.selector, policies_book.rule([policies_book.at(ports)]))
    for found, ports in _reached(asked.guards if asked.gateways else (), asked.model):
        operations = [policies_book.at(ports)]
        rule = policies_book.rule(operations, principals=list(asked.gateways))
        book.extend(found.selector, rule)
    for found in asked.model.services if asked.is_ambient else ():
        if found.waypoint:
            # It calls in everybody's place: whom it lets through is up to its own policies.
            who = principal(*found.waypoint)
            book.extend(found.selector, policies_book.rule([], principals=[who]))
    for pod in asked.model.pods:
        for probe in pod.probes if pod.has_proxy else ():
            asking = {"methods": [probe.method], "paths": [probe.path]}
            rule = policies_book.rule([{**policies_book.at([probe.port]), **asking}])
            book.extend(pod.stable, rule)
    for found, rules in policies_copied.copied(asked.others, asked.model):
        for rule in rules:
            book.extend(found.selector, rule)


def _reached(
    services: Collection[tuple[str, int]], model: Model
) -> Iterator[tuple[Service, list[int]]]:
    for name, port in sorted(services):
        if found := model.service(name):
            ports, _ = model.pod_ports(found, [port])
            if ports:
                yield found, ports


def covered(policies: Iterable[cluster.Object]) -> list[Selector]:
    """Read from policies of ours whose callers are named."""
    return [
        tuple(sorted(cluster.at(each, "spec", "selector", "matchLabels").items()))
        for each in policies
    ]

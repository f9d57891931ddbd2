"""The callers that would lose access by this charm's planned policies; pure.

The preview compares two sets of AuthorizationPolicies: those that exist today, and those of other
owners together with this charm's planned ones.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import filterfalse
from typing import NamedTuple

from istio_integrator.istio import authorization_policy, installation, peer_authentication
from istio_integrator.istio.authorization_policy import (
    AuthorizationPolicy,
    AuthorizationRule,
    InboundRequest,
    Truth,
    make_principal,
)
from istio_integrator.istio.peer_authentication import PeerAuthentication
from istio_integrator.kube import cluster
from istio_integrator.messages import Message, Template
from istio_integrator.policies import callers, decide
from istio_integrator.situation.model import Call, Labels, Model, Pod
from istio_integrator.situation.situation import Situation

ELSEWHERE = "pods of other namespaces"
OUTSIDE = "callers outside of the mesh"
"""Such as scrapers, clients of node ports and the API server's proxy. Pods of the model are
reported by name."""


class _KnownCaller(NamedTuple):
    name: str
    principal: str = ""
    """Empty: the caller has no certificate."""
    is_routed: bool = False
    """Whether it is a backend of the gateway and so gets requests with a browser's Host."""


class _Loss(NamedTuple):
    target: str
    said: Template
    disabling: str
    """The PeerAuthentication with mode DISABLE, by which no caller sends a certificate."""
    callers: tuple[str, ...]


def preview(
    situation: Situation,
    mesh: installation.Mesh,
    asked: decide.PolicyInput,
    decision: decide.AuthorizationPlan,
    would_be: Iterable[cluster.Object],
) -> Iterable[Message]:
    """Report the callers that would lose access, and the ports that would stay open to all.

    `would_be` has this charm's policies as they would be written.
    """

    def list_policies(kind: cluster.Kind) -> list[cluster.Object]:
        places = sorted({situation.model, mesh.settings.root_namespace})
        return [each for place in places for each in situation.cluster.list(kind, place)]

    is_ours, standing = situation.manifests.is_ours, list_policies(cluster.AUTHORIZATION_POLICY)
    groups = filter(is_ours, standing), would_be, filterfalse(is_ours, standing)
    ours, planned, others = (
        authorization_policy.read_all(each, mesh.settings.trust_domains) for each in groups
    )
    peers = peer_authentication.read_all(list_policies(cluster.PEER_AUTHENTICATION))
    yield from decision.messages
    yield from callers.judge_callers(situation, mesh, [*planned, *others], asked.model.pods)
    for call, ports in _find_open_ports(asked, decision):
        shown = ",".join(map(str, ports))
        yield Template.PORT_OPEN_TO_ALL(service=call.service, ports=shown, caller=call.caller)
    losses: dict[_Loss, list[int]] = {}
    # Rules for the kubelet's probes admit no other caller.
    sides = [[*map(_drop_probes, each), *others] for each in (ours, planned)]
    known = _list_callers(asked, mesh.settings.trust_domains[0], situation.application)
    for loss, port in _find_lost_access(asked, known, peers, mesh.settings.root_namespace, sides):
        losses.setdefault(loss, []).append(port)
    for loss, ports in losses.items():
        yield _make_message(asked, loss, sorted(set(ports)))


def _find_open_ports(
    asked: decide.PolicyInput, decision: decide.AuthorizationPlan
) -> Iterator[tuple[Call, list[int]]]:
    """Find the ports that stay open to every caller, as some callers have no certificate."""
    model, keys = asked.model, [each.selector for each in decision.policies]
    for call in asked.opened:
        found = model.find_service(call.service)
        if found and any(model.find_overlapping(found.selector, keys)):
            ports, _ = model.find_pod_ports(found, [call.port])
            if ports:
                yield call, ports


def _find_lost_access(
    asked: decide.PolicyInput,
    known: Iterable[_KnownCaller],
    peers: Collection[PeerAuthentication],
    root: str,
    sides: Sequence[Sequence[AuthorizationPolicy]],
) -> Iterator[tuple[_Loss, int]]:
    """Find the ports for which a caller would lose its access, or a part of it.

    `sides` has the policies of today and the planned ones.
    """
    model, is_ambient = asked.model, asked.is_ambient
    count = collections.Counter(pod.display_name for pod in model.pods)
    for pod, ports in _list_targets(model):
        held = [
            [each for each in standing if each.selects(pod.metadata.labels, model.name, root)]
            for standing in sides
        ]
        # An application with one pod calls itself inside of the pod.
        others = [
            each for each in known if each.name != pod.display_name or count[pod.display_name] > 1
        ]
        for port, is_http in ports.items():
            request = InboundRequest(port=port, seen_by="ztunnel" if is_ambient else "http")
            decided = peer_authentication.decide_mode(
                peers, pod.metadata.labels, model.name, root, port
            )
            disabling = ""
            # ztunnel ignores this mode.
            if decided.policy and decided.mode == "DISABLE" and not is_ambient:
                disabling = decided.policy.reference
            lost: dict[Template, list[str]] = {}
            was, will_be = _decide_before_and_after(held, "", request)
            is_closed = was is Truth.YES and will_be is not Truth.YES
            for each in others:
                seen = "" if disabling else each.principal
                was, will_be = _decide_before_and_after(held, seen, request)
                if was and not will_be:
                    said = Template.CALLERS_UNKNOWN if disabling else Template.CALLERS_LOST
                elif was > will_be:
                    said = Template.CALLERS_LIMITED
                elif each.is_routed and is_http and is_closed and not is_ambient:
                    # If a sidecar does not know the Host, it sends the call without a certificate.
                    said = Template.CALLS_BY_HOST
                else:
                    continue
                lost.setdefault(said, []).append(each.name)
            for said, found in lost.items():
                yield _Loss(pod.display_name, said, disabling, tuple(found)), port


def _decide_before_and_after(
    held: Iterable[Collection[AuthorizationPolicy]], caller: str, request: InboundRequest
) -> list[Truth]:
    return [authorization_policy.decide(each, caller, request).answer for each in held]


def _make_message(asked: decide.PolicyInput, loss: _Loss, ports: Iterable[int]) -> Message:
    *first, last = loss.callers
    # Of other applications it is not known whether their charm has the endpoint `service-mesh`.
    is_related = loss.target in {each.application for each in asked.consumers}
    return loss.said(
        callers=f"{', '.join(first)} and {last}" if first else last,
        target=f"{loss.target}:{','.join(map(str, ports))}",
        policy=loss.disabling,
        relate=f"relate the caller to {loss.target}, or " if is_related else "",
        remedy="write an AuthorizationPolicy that admits every caller to the port, or keep "
        "authorization=off",
    )


def _list_callers(asked: decide.PolicyInput, domain: str, application: str) -> list[_KnownCaller]:
    """List the possible callers, without duplicates."""
    model = asked.model
    services = (model.find_service(name) for name, _ in asked.exposure.routed)
    routed = [each.selector for each in services if each]
    found: set[_KnownCaller] = set()
    for pod in model.list_callers(application):
        if not pod.is_router:
            name, who = f"{pod.display_name} (without a sidecar)", ""
            if pod.is_in_mesh:
                name, who = (
                    pod.display_name,
                    make_principal(model.name, pod.spec.service_account_name, domain),
                )
            found.add(_KnownCaller(name, who, any(key <= pod.labels for key in routed)))
    # The namespace `-` represents namespaces that no policy names.
    elsewhere = _KnownCaller(ELSEWHERE, make_principal("-", "-", domain))
    return [*sorted(found), elsewhere, _KnownCaller(OUTSIDE)]


def _list_targets(model: Model) -> Iterator[tuple[Pod, dict[int, bool]]]:
    """List pods with a proxy, and whether each of their ports is declared as HTTP."""
    ports: dict[Labels, list[tuple[int, bool]]] = {}
    for service in model.services:
        of_pods = ports.setdefault(service.selector, [])
        for port in service.ports if service.selector else ():
            of_pods += [
                (each, port.is_http) for each in model.find_pod_ports(service, [port.port])[0]
            ]
    for pod in model.pods:
        if pod.is_in_mesh and not pod.is_router:
            found = [pair for key, pairs in ports.items() if key <= pod.labels for pair in pairs]
            # If two Services have a port, the one that declares HTTP sorts last and overrides.
            yield pod, dict(sorted(found))


def _drop_probes(policy: AuthorizationPolicy) -> AuthorizationPolicy:
    def is_probe(rule: AuthorizationRule) -> bool:
        paths = [any(each.attribute == "request.path" for each in one) for one in rule.operations]
        return not rule.sources and bool(paths) and all(paths)

    rules = tuple(each for each in policy.rules if not is_probe(each))
    return dataclasses.replace(policy, rules=rules)

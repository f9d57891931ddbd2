"""Who could no longer call whom once our policies are as decided; pure.

Both sides are read from AuthorizationPolicies: who may call today, by those that stand, and who
would, by those of others with ours as they would be.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.findings import Finding
from istio_integrator.istio import authorization_policy, installation, peer_authentication
from istio_integrator.istio.authorization_policy import (
    Answer,
    AuthorizationPolicy,
    AuthorizationRule,
    Caller,
    InboundRequest,
    principal,
)
from istio_integrator.istio.peer_authentication import PeerAuthentication
from istio_integrator.kube import cluster
from istio_integrator.policies import callers, decide
from istio_integrator.situation.model import Call, Labels, Pod

ELSEWHERE = "pods of other namespaces"
OUTSIDE = "whoever is outside of the mesh"
"""Scrapers, node ports and API servers' proxies among them; pods of the model are named."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scene:
    """What is there, and what is decided about it."""

    asked: decide.Asked
    decision: decide.Decision
    ours: Sequence[cluster.Object]
    """Policies of ours that stand now."""
    others: Sequence[cluster.Object]
    """Those of the model and of the mesh that are not ours."""
    peers: Collection[PeerAuthentication] = ()
    mesh: installation.Mesh
    owner: str
    application: str


@dataclasses.dataclass(frozen=True)
class KnownCaller:
    """A caller that the preview names."""

    name: str
    seen: Caller
    """What a proxy sees of the caller."""
    is_routed: bool = False
    """Whether the gateway leads to it, so that it gets requests with the Host of a browser."""


def preview(scene: Scene) -> Iterable[Finding]:
    """Say who could no longer call whom, and what of relations would hold nobody."""
    ours, would_be, others = (
        authorization_policy.read_all(each, scene.mesh.trust_domains)
        for each in (scene.ours, _would_be(scene), scene.others)
    )
    for seen in scene.decision.problems:
        yield findings.doubtful(f"refused: {seen}", "mend what that application says")
    for seen in scene.decision.waiting:
        yield findings.doubtful(seen, "juju status --relations")
    yield from callers.judge(
        [*would_be, *others],
        scene.asked.model.pods,
        owner=scene.owner,
        application=scene.application,
        mesh=scene.mesh,
    )
    for call, ports in _opened(scene):
        yield findings.fine(
            f"{call.service}:{','.join(map(str, ports))} is open to whoever calls, "
            f"for {call.caller}"
        )
    losses: dict[_Loss, set[int]] = {}
    # What the kubelet alone asks for lets nobody else in.
    before, after = ([*map(_without_probes, each), *others] for each in (ours, would_be))
    for loss, port in _lost(scene, before, after):
        losses.setdefault(loss, set()).add(port)
    for loss, ports in losses.items():
        yield _line(scene, loss, sorted(ports))


def _opened(scene: Scene) -> Iterator[tuple[Call, list[int]]]:
    """Find what every caller may call, since some of them show no certificate."""
    model = scene.asked.model
    keys = [each.selector for each in scene.decision.policies]
    for call in scene.asked.opened:
        found = model.service(call.service)
        if found and any(model.sharing(found.selector, keys)):
            ports, _ = model.pod_ports(found, [call.port])
            if ports:
                yield call, ports


Kind = Literal["whole", "conditional", "by Host"]
"""What is denied of calls. By Host are those that a sidecar sends without a certificate, since it
does not know their Host."""


@dataclasses.dataclass(frozen=True)
class _Loss:
    target: str
    callers: tuple[str, ...]
    kind: Kind
    disabling: str = ""
    """The PeerAuthentication by which no caller shows a certificate."""


def _lost(
    scene: Scene, before: Sequence[AuthorizationPolicy], after: Sequence[AuthorizationPolicy]
) -> Iterator[tuple[_Loss, int]]:
    """Find the ports of workloads that somebody may call today and could not, or not always."""
    known = _callers(scene)
    count = collections.Counter(pod.shown for pod in scene.asked.model.pods)
    root, is_ambient = scene.mesh.root_namespace, scene.asked.is_ambient
    for pod, ports in _targets(scene):
        held = [
            [each for each in standing if callers.selects(each, pod, root)]
            for standing in (before, after)
        ]
        # The only pod of an application calls itself within the pod.
        others = [each for each in known if each.name != pod.shown or count[pod.shown] > 1]
        for port, is_http in sorted(ports.items()):
            request = InboundRequest(port=port, seen_by="ztunnel" if is_ambient else "http")
            lost: dict[Kind, list[str]] = {"whole": [], "conditional": [], "by Host": []}
            was, will_be = _answers(held, Caller(), request)
            is_closed = was is Answer.YES and will_be is not Answer.YES
            peers = peer_authentication.decide(
                scene.peers,
                pod.metadata.labels,
                namespace=scene.asked.model.name,
                root_namespace=root,
                port=port,
            )
            # ztunnel ignores this mode.
            disabling = ""
            if peers.policy and peers.mode == "DISABLE" and not is_ambient:
                disabling = peers.policy.reference
            for each in others:
                seen = Caller(address=each.seen.address) if disabling else each.seen
                was, will_be = _answers(held, seen, request)
                if was and not will_be:
                    lost["whole"].append(each.name)
                elif was > will_be:
                    lost["conditional"].append(each.name)
                elif each.is_routed and is_http and is_closed and not is_ambient:
                    lost["by Host"].append(each.name)
            for kind, found in lost.items():
                if found:
                    yield _Loss(pod.shown, tuple(found), kind, disabling), port


def _answers(
    held: Iterable[Collection[AuthorizationPolicy]], caller: Caller, request: InboundRequest
) -> list[Answer]:
    return [authorization_policy.decide(each, caller, request).answer for each in held]


def _line(scene: Scene, loss: _Loss, ports: Iterable[int]) -> Finding:
    places = (ELSEWHERE, OUTSIDE)
    inside = sorted(each for each in loss.callers if each not in places)
    *first, last = (*inside, *(each for each in places if each in loss.callers))
    whom = f"{', '.join(first)} and {last}" if first else last
    what = f"{loss.target}:{','.join(map(str, ports))}"
    if loss.kind == "by Host":
        return findings.doubtful(
            f"{whom} could no longer call {what} with the Host of a browser: a sidecar that does "
            "not know the Host sends no certificate",
            "if one does: write an AuthorizationPolicy that admits every caller to the port, or "
            "keep authorization=off",
        )
    seen = f"{whom} could no longer call {what}"
    if loss.kind == "whole" and loss.disabling:
        return findings.doubtful(
            f"{seen}: {loss.disabling} disables mutual TLS there, and rules that name callers "
            "never match",
            f"take DISABLE out of {loss.disabling}, or keep authorization=off",
        )
    if loss.kind == "conditional":
        seen = (
            f"{whom} could call {what} only where a condition of its policies holds, about an "
            "address, a header, a path or a method"
        )
    relate = ""
    if loss.target in {each.application for each in scene.asked.consumers}:
        relate = f"relate the caller to {loss.target}, or "
    elif loss.target in _applications(scene):
        integrate = f"juju integrate {loss.target}:service-mesh {scene.application}:service-mesh"
        relate = f"{integrate}, if its charm has that endpoint, or "
    return findings.doubtful(
        seen,
        f"if one calls: {relate}write an AuthorizationPolicy that lets it in, or keep "
        "authorization=off",
    )


def _applications(scene: Scene) -> set[str]:
    """Name the applications of Juju that may be related to `service-mesh`.

    Related ones that write VirtualServices would write routes of the Gateway API instead.
    """
    found = {
        pod.shown
        for pod in scene.asked.model.pods
        if any(each.name == names.CHARM for each in pod.spec.containers)
    }
    return found.difference(scene.asked.controllers)


def _would_be(scene: Scene) -> Iterator[cluster.Object]:
    """Write our policies as they would be, as far as anybody judges them."""
    specs = [
        ({"selector": {"matchLabels": dict(each.selector)}, "rules": list(each.rules)}, False)
        for each in scene.decision.policies
    ]
    for spec, is_rest in [*specs, *([({}, True)] if scene.decision.is_closed else [])]:
        component = callers.CLOSED if is_rest else callers.FOLDER
        yield {
            "kind": cluster.AUTHORIZATION_POLICY.name,
            "metadata": {
                "name": scene.application,
                "namespace": scene.asked.model.name,
                "labels": {names.OWNER: scene.owner, names.COMPONENT: component},
            },
            "spec": spec,
        }


def _callers(scene: Scene) -> Collection[KnownCaller]:
    """List who may call today, each once."""
    model, domain = scene.asked.model, scene.mesh.trust_domains[0]
    routed = [each.selector for name, _ in scene.asked.routed if (each := model.service(name))]
    found: dict[KnownCaller, None] = {}
    for pod in model.callers(scene.application):
        if not pod.is_router:
            name, who = f"{pod.shown} (without a sidecar)", ""
            if pod.is_in_mesh:
                name, who = pod.shown, principal(model.name, pod.spec.service_account_name, domain)
            is_routed = any(key <= pod.labels for key in routed)
            found[KnownCaller(name, Caller(who), is_routed)] = None
    # No policy names this namespace.
    elsewhere = KnownCaller(ELSEWHERE, Caller(principal("-", "-", domain)))
    return [*found, elsewhere, KnownCaller(OUTSIDE, Caller())]


def _targets(scene: Scene) -> Iterator[tuple[Pod, dict[int, bool]]]:
    """List pods that a proxy stands before, each with its ports of Services.

    Of each port it says whether a Service declares it as HTTP.
    """
    model = scene.asked.model
    ports: dict[Labels, dict[int, bool]] = {}
    for service in model.services:
        of_pods = ports.setdefault(service.selector, {})
        for port in service.ports if service.selector else ():
            for number in model.pod_ports(service, [port.port])[0]:
                of_pods[number] = port.is_http or of_pods.get(number, False)
    for pod in model.pods:
        if pod.is_in_mesh and not pod.is_router:
            found: dict[int, bool] = {}
            for key, of_pods in ports.items():
                for number, is_http in of_pods.items() if key <= pod.labels else ():
                    found[number] = is_http or found.get(number, False)
            yield pod, found


def _without_probes(policy: AuthorizationPolicy) -> AuthorizationPolicy:
    def is_probe(rule: AuthorizationRule) -> bool:
        paths = [any(each.attribute == "request.path" for each in one) for one in rule.operations]
        return not rule.sources and bool(paths) and all(paths)

    rules = tuple(each for each in policy.rules if not is_probe(each))
    return dataclasses.replace(policy, rules=rules)

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
from istio_integrator.istio import plaintext
from istio_integrator.kube import cluster, fences
from istio_integrator.security import exceptions_found, policies, policies_book, policies_judged
from istio_integrator.security.called import Call, Selector

ELSEWHERE = "pods of other namespaces"
OUTSIDE = "whoever is outside of the mesh"
"""Scrapers, node ports and API servers' proxies among them; pods of the model are named."""
_STRANGER = policies_book.principal("-", "-")
"""Whoever has a certificate and is of no namespace that a policy names."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scene:
    """What is there, and what is decided about it."""

    asked: policies.Asked
    decision: policies.Decision
    pods: Sequence[cluster.Object]
    """The model's."""
    ours: Sequence[cluster.Object]
    """Policies of ours that stand now."""
    others: Sequence[cluster.Object]
    """Those of the model and of the mesh that are not ours."""
    owner: str
    application: str

    @property
    def model(self) -> str:
        """The model's name."""
        return self.asked.model.name


@dataclasses.dataclass(frozen=True)
class Caller:
    """Somebody who may call, by what a proxy sees of it."""

    name: str
    principal: str
    """Empty: it has no certificate to show."""
    is_routed: bool = False
    """Whether the gateway leads to it, so that it gets requests with the Host of a browser."""


def judge(scene: Scene) -> Iterable[Finding]:
    """Say who could no longer call whom, and what of relations would hold nobody."""
    would_be = list(_would_be(scene))
    for seen in scene.decision.problems:
        yield findings.doubtful(f"refused: {seen}", "mend what that application says")
    for seen in scene.decision.waiting:
        yield findings.doubtful(seen, "juju status --relations")
    yield from policies_judged.judge(
        [*would_be, *scene.others],
        scene.pods,
        owner=scene.owner,
        model=scene.model,
        application=scene.application,
    )
    for call, ports in _opened(scene):
        yield findings.fine(
            f"{call.service}:{','.join(map(str, ports))} is open to whoever calls, "
            f"for {call.caller}"
        )
    losses: dict[_Loss, set[int]] = {}
    for loss, port in _lost(scene, would_be):
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


def _lost(scene: Scene, would_be: Sequence[cluster.Object]) -> Iterator[tuple[_Loss, int]]:
    """Find the ports of workloads that somebody may call today and could not, or not always."""
    callers = list(_callers(scene))
    plain = Caller("", "")
    count = collections.Counter(_shown(pod) for pod in scene.pods)
    for pod, target, ports in _targets(scene):
        before, after = (
            [each for each in (*ours, *scene.others) if _allows(each, pod)]
            for ours in (scene.ours, would_be)
        )
        # The only pod of an application calls itself within the pod.
        others = [each for each in callers if each.name != target or count[target] > 1]
        for port, is_http in sorted(ports.items()):
            lost: dict[Kind, list[str]] = {"whole": [], "conditional": [], "by Host": []}
            is_closed = _may_always(before, plain, port) and not _may_always(after, plain, port)
            for each in others:
                is_let_in = _may(after, each, port)
                if _may(before, each, port) and not is_let_in:
                    lost["whole"].append(each.name)
                elif _may_always(before, each, port) and not _may_always(after, each, port):
                    lost["conditional"].append(each.name)
                elif each.is_routed and is_http and is_closed and not scene.asked.is_ambient:
                    lost["by Host"].append(each.name)
            for kind, found in lost.items():
                if found:
                    yield _Loss(target, tuple(found), kind), port


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
    seen = (
        f"{whom} could call {what} only where a condition of its policies holds, about a header, "
        "a path or a method"
        if loss.kind == "conditional"
        else f"{whom} could no longer call {what}"
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
    found = set[str]()
    for pod in scene.pods:
        with fences.around(cluster.reference(pod)):
            containers = cluster.parts(cluster.at(pod, "spec"), "containers")
            if any(each.get("name") == names.CHARM for each in containers):
                found.add(_shown(pod))
    return found.difference(scene.asked.controllers)


def _would_be(scene: Scene) -> Iterator[cluster.Object]:
    """Write our policies as they would be, as far as anybody judges them."""
    decision = scene.decision
    for each in decision.policies:
        selector = {"selector": {"matchLabels": dict(each.selector)}}
        spec = {**selector, "rules": list(each.rules)}
        yield _policy(scene, policies_judged.FOLDER, spec)
    if decision.is_closed:
        yield _policy(scene, policies_judged.CLOSED, {})


def _policy(scene: Scene, component: str, spec: cluster.Object) -> cluster.Object:
    marks = {names.OWNER: scene.owner, names.COMPONENT: component}
    metadata = {"name": scene.application, "namespace": scene.model, "labels": marks}
    return {"kind": cluster.AUTHORIZATION_POLICY.name, "metadata": metadata, "spec": spec}


def _callers(scene: Scene) -> Iterator[Caller]:
    """List who may call today, each once."""
    model = scene.asked.model
    routed = [each.selector for name, _ in scene.asked.routed if (each := model.service(name))]
    found: dict[Caller, None] = {}
    for pod in scene.pods:
        with fences.around(cluster.reference(pod)):
            if exceptions_found.is_caller(pod, scene.application) and not plaintext.is_router(pod):
                has_proxy = plaintext.is_in_mesh(pod)
                account = str(cluster.at(pod, "spec").get("serviceAccountName") or "default")
                name = _shown(pod) if has_proxy else f"{_shown(pod)} (without a sidecar)"
                who = policies_book.principal(scene.model, account) if has_proxy else ""
                is_routed = any(map(exceptions_found.labels(pod).issuperset, routed))
                found[Caller(name, who, is_routed)] = None
    yield from found
    yield Caller(ELSEWHERE, _STRANGER)
    yield Caller(OUTSIDE, "")


def _targets(scene: Scene) -> Iterator[tuple[cluster.Object, str, dict[int, bool]]]:
    """List pods that a proxy stands before, each with its workload and the ports of Services.

    Of each port it says whether a Service declares it as HTTP.
    """
    model = scene.asked.model
    ports: dict[Selector, dict[int, bool]] = {}
    for service in model.services:
        of_pods = ports.setdefault(service.selector, {})
        for port in service.ports if service.selector else ():
            for number in model.pod_ports(service, [port.number])[0]:
                of_pods[number] = port.is_http or of_pods.get(number, False)
    for pod in scene.pods:
        with fences.around(cluster.reference(pod)):
            if plaintext.is_in_mesh(pod) and not plaintext.is_router(pod):
                marks = exceptions_found.labels(pod)
                found: dict[int, bool] = {}
                for key, of_pods in ports.items():
                    for number, is_http in of_pods.items() if marks.issuperset(key) else ():
                        found[number] = is_http or found.get(number, False)
                yield pod, _shown(pod), found


def _shown(pod: cluster.Object) -> str:
    marks = cluster.at(pod, "metadata", "labels")
    return str(marks.get(names.NAME) or cluster.at(pod, "metadata").get("name"))


def _allows(policy: cluster.Object, pod: cluster.Object) -> bool:
    """Tell whether a policy is one of those by which a pod is called by nobody else."""
    is_allow = cluster.at(policy, "spec").get("action", "ALLOW") == "ALLOW"
    return is_allow and policies_judged.selects(policy, pod)


def _may(allowing: Collection[cluster.Object], caller: Caller, port: int) -> bool:
    """Tell whether a caller is let in at a port; what can't be known counts for it."""
    return not allowing or any(_takes(rule, caller, port) for rule in _rules(allowing))


def _may_always(allowing: Collection[cluster.Object], caller: Caller, port: int) -> bool:
    """Tell whether a caller is let in at a port whatever it asks for."""
    return not allowing or any(
        _takes(rule, caller, port) for rule in _rules(allowing) if _is_unconditional(rule)
    )


def _rules(policies: Iterable[cluster.Object]) -> Iterator[cluster.Object]:
    for each in policies:
        yield from cluster.parts(cluster.at(each, "spec"), "rules")


def _is_unconditional(rule: cluster.Object) -> bool:
    operations = [cluster.at(each, "operation") for each in cluster.parts(rule, "to")]
    is_whole = not operations or any(each.keys() <= {"ports"} for each in operations)
    return is_whole and not cluster.parts(rule, "when")


def _takes(rule: cluster.Object, caller: Caller, port: int) -> bool:
    sources = [cluster.at(each, "source") for each in cluster.parts(rule, "from")]
    operations = [cluster.at(each, "operation") for each in cluster.parts(rule, "to")]
    is_at_port = not operations or any(
        str(port) in (cluster.items(each, "ports") or [str(port)])
        # For everybody and a path alone it is the kubelet's.
        and bool(sources or not each.get("paths"))
        for each in operations
    )
    return is_at_port and (not sources or any(_is_from(one, caller) for one in sources))


def _is_from(source: cluster.Object, caller: Caller) -> bool:
    spaces = [f"/ns/{each}/sa/" for each in cluster.items(source, "namespaces")]
    accounts = [str(each) for each in cluster.items(source, "principals")]
    return (not spaces or any(each in caller.principal for each in spaces)) and (
        not accounts or any(_fits(each, caller.principal) for each in accounts)
    )


def _fits(pattern: str, principal: str) -> bool:
    """Match as Istio does: a name, its beginning, its end, or any name, which nobody's is not."""
    if pattern.startswith("*"):
        return bool(principal) and principal.endswith(pattern[1:])
    return principal.startswith(pattern[:-1]) if pattern.endswith("*") else pattern == principal

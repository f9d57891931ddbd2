"""What becomes of strict mutual TLS: switched on, refused, or left as it stands; pure."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence

from istio_integrator.istio import peer_authentication
from istio_integrator.kube import owners
from istio_integrator.messages import Message, Said
from istio_integrator.security import exceptions

_YOUNGEST = "9999"
"""When a policy is made that is not there yet."""
_LONGEST_WORKLOAD = 24
"""Characters of a workload in the name of its exception."""


@dataclasses.dataclass(frozen=True)
class Situation:
    """What is known when mutual TLS is decided about."""

    scene: exceptions.Scene
    policies: Collection[peer_authentication.PeerAuthentication]
    """PeerAuthentications of the model and of the mesh, ours among them."""
    model: str
    root_namespace: str
    application: str
    owner: str
    outsiders: Sequence[str] = ()
    """Workloads of the model whose pods have no proxy."""
    uninjected: int = 0
    """Pods that should have a sidecar and have none yet."""

    @property
    def ours(self) -> list[peer_authentication.PeerAuthentication]:
        """The policies of this application; in the root namespace it writes none."""
        return [
            each
            for each in self.policies
            if each.owner == self.owner and each.namespace == self.model
        ]

    @property
    def is_on(self) -> bool:
        """Whether the policy for the whole model is there."""
        return any(not each.selector for each in self.ours)

    @property
    def standing(self) -> list[exceptions.Opened]:
        """The exceptions that are there."""
        return [
            exceptions.Opened("", frozenset(each.selector.items()), frozenset(each.ports))
            for each in self.ours
            if each.selector and each.ports
        ]

    def decide(
        self,
        policies: Collection[peer_authentication.PeerAuthentication],
        labels: Mapping[str, str],
        port: int = 0,
    ) -> peer_authentication.Decided:
        """Find what policies decide about a port of a pod in the model."""
        return peer_authentication.decide(
            policies,
            labels,
            namespace=self.model,
            root_namespace=self.root_namespace,
            port=port,
        )


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be there, and what is said about it."""

    opened: Sequence[exceptions.Opened]
    needs: Sequence[exceptions.Need]
    """What `opened` is made of."""
    victims: Sequence[exceptions.Victim]
    """Who is cut off all the same."""
    is_switched_on: bool
    """Whether the objects are to be written; else everything stays as it is."""


def plan(situation: Situation) -> Plan:
    """Decide with `mtls=strict` what is to be there.

    It is switched on where nobody is known to be cut off by it; once it is on it stays on.
    """
    scene = situation.scene
    needs = exceptions.needs(scene)
    needs += exceptions.kept(situation.standing, scene.members)
    opened = exceptions.opened(needs, scene.members)
    victims = [
        *contradictions(situation, opened),
        *exceptions.victims(scene, needs, application=situation.application),
    ]
    if situation.uninjected and not situation.is_on:
        victims.append(_without_sidecar(situation))
    return Plan(opened, needs, victims, situation.is_on or not victims)


def messages(situation: Situation, plan: Plan) -> Iterable[Message]:
    """Say how strict the model is, or who keeps it from being so."""
    for victim in plan.victims[:1]:
        how = "cuts off callers" if plan.is_switched_on else "is not switched on"
        more = f"; and {len(plan.victims) - 1} more" if plan.victims[1:] else ""
        yield Said.MTLS_CUTS_OFF(
            how=how,
            application=situation.application,
            more=f"{victim.seen}; {victim.remedy}{more}",
        )
    for named in exceptions.unmatched(situation.scene)[:1]:
        yield Said.MTLS_EXCEPTION_AWAITED(option=exceptions.OPTION, name=named)
    if plan.is_switched_on:
        count = len({(each.selector, port) for each in plan.opened for port in each.ports})
        ports = "1 port" if count == 1 else f"{count} ports"
        left = f", {ports} open to plain text" if count else ""
        yield Said.MTLS_STRICT(left=left)


def contradictions(
    situation: Situation, opened: Sequence[exceptions.Opened]
) -> list[exceptions.Victim]:
    """Name policies of others that would count instead of ours, since they are older.

    One of ours that is not there yet is younger than all.
    """
    policies = with_ours(situation, opened)
    found: dict[str, exceptions.Victim] = {}
    whole = situation.decide(policies, {})
    if not whole.is_strict and whole.policy:
        found[whole.policy.reference] = _contradiction(whole.policy, "the whole model")
    for each in opened:
        for member in situation.scene.members:
            for port in each.ports if each.selector <= member.labels else ():
                decided = situation.decide(policies, dict(member.labels), port)
                nearest = decided.nearest
                if decided.is_strict and nearest and nearest.owner != situation.owner:
                    about = f"{each.workload}:{port}, which has to stay open"
                    found.setdefault(nearest.reference, _contradiction(nearest, about))
    return [found[reference] for reference in sorted(found)]


def with_ours(
    situation: Situation, opened: Iterable[exceptions.Opened]
) -> list[peer_authentication.PeerAuthentication]:
    """List the PeerAuthentications as they are once ours are written."""
    standing = situation.ours
    ages = {policy.name: policy.created for policy in standing}
    theirs = [policy for policy in situation.policies if policy not in standing]
    ours = [
        peer_authentication.PeerAuthentication(
            situation.model, strict_name(situation.application), mode=peer_authentication.STRICT
        ),
        *(
            peer_authentication.PeerAuthentication(
                situation.model,
                exception_name(situation.application, each),
                selector=dict(each.selector),
                ports=dict.fromkeys(each.ports, peer_authentication.PERMISSIVE),
            )
            for each in opened
        ),
    ]
    aged = [
        dataclasses.replace(
            policy, created=ages.get(policy.name, _YOUNGEST), owner=situation.owner
        )
        for policy in ours
    ]
    return [*theirs, *aged]


def strict_name(application: str) -> str:
    """Name the policy for the whole model."""
    return owners.object_name(application, "strict")


def exception_name(application: str, opened: exceptions.Opened) -> str:
    """Name the policy of a workload: two workloads may have one name, never one selector."""
    digest = hashlib.sha256(repr(sorted(opened.selector)).encode()).hexdigest()[:8]
    workload = opened.workload.replace(".", "-")[:_LONGEST_WORKLOAD].rstrip("-")
    return owners.object_name(application, f"plain-{workload}-{digest}")


def _contradiction(
    policy: peer_authentication.PeerAuthentication, about: str
) -> exceptions.Victim:
    return exceptions.Victim(
        f"{policy.reference}, which this charm did not make, is older and decides about {about}",
        f"kubectl -n {policy.namespace} delete peerauthentication {policy.name}",
    )


def _without_sidecar(situation: Situation) -> exceptions.Victim:
    count = situation.uninjected
    return exceptions.Victim(
        f"{count} pods that should have a sidecar have none, and could call no other",
        f"juju run {situation.application}/leader list-uninjected",
    )

"""What becomes of strict mutual TLS: switched on, refused, or left as it stands; pure."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence

from istio_integrator.istio import peer_authentication
from istio_integrator.istio.peer_authentication import PeerAuthentication
from istio_integrator.kube import owners
from istio_integrator.messages import Message, Said
from istio_integrator.mtls.exceptions import OPTION, Opened, Scene, Victim

_YOUNGEST = "9999"
"""When a policy is made that is not there yet."""
_LONGEST_WORKLOAD = 24
"""Characters of a workload in the name of its exception."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be there with `mtls=strict`."""

    scene: Scene
    ours: Collection[PeerAuthentication]
    """The policies of this application."""
    others: Collection[PeerAuthentication]
    """Those of other owners in the model and in the mesh."""
    model: str
    root_namespace: str
    outsiders: Sequence[str] = ()
    """Workloads of the model whose pods have no proxy and may call members."""
    uninjected: int = 0
    """Pods that should have a sidecar and have none yet."""

    @property
    def is_on(self) -> bool:
        """Whether the policy for the whole model is there."""
        return any(not each.selector for each in self.ours)

    @property
    def is_switched_on(self) -> bool:
        """Whether the objects are to be written; else everything stays as it is.

        That is where nobody is known to be cut off; once it is on it stays on.
        """
        return self.is_on or not self.victims

    @functools.cached_property
    def victims(self) -> Sequence[Victim]:
        """Who is cut off in spite of the exceptions."""
        found = [*self._contradictions(), *self.scene.victims]
        if self.uninjected and not self.is_on:
            found.append(
                Victim(
                    f"{self.uninjected} pods that should have a sidecar have none, and could call "
                    "no other",
                    f"juju run {self.scene.application}/leader list-uninjected",
                )
            )
        return found

    def messages(self) -> Iterable[Message]:
        """Say how strict the model is, or who keeps it from being so."""
        for victim in self.victims[:1]:
            how = "cuts off callers" if self.is_switched_on else "is not switched on"
            more = f"; and {len(self.victims) - 1} more" if self.victims[1:] else ""
            yield Said.MTLS_CUTS_OFF(
                how=how,
                application=self.scene.application,
                more=f"{victim.seen}; {victim.remedy}{more}",
            )
        for named in self.scene.unmatched[:1]:
            yield Said.MTLS_EXCEPTION_AWAITED(option=OPTION, name=named)
        if self.is_switched_on:
            count = len(
                {(each.selector, port) for each in self.scene.opened for port in each.ports}
            )
            ports = "1 port" if count == 1 else f"{count} ports"
            left = f", {ports} open to plain text" if count else ""
            yield Said.MTLS_STRICT(left=left)

    def decide(self, labels: Mapping[str, str], port: int = 0) -> peer_authentication.Decided:
        """Find what counts for a port of a pod in the model once ours are written."""
        return peer_authentication.decide(
            self._would_be,
            labels,
            namespace=self.model,
            root_namespace=self.root_namespace,
            port=port,
        )

    @property
    def strict_name(self) -> str:
        """The name of the policy for the whole model."""
        return owners.object_name(self.scene.application, "strict")

    def exception_name(self, opened: Opened) -> str:
        """Name the policy of a workload: two workloads may have one name, never one selector."""
        digest = hashlib.sha256(repr(sorted(opened.selector)).encode()).hexdigest()[:8]
        workload = opened.workload.replace(".", "-")[:_LONGEST_WORKLOAD].rstrip("-")
        return owners.object_name(self.scene.application, f"plain-{workload}-{digest}")

    def _contradictions(self) -> list[Victim]:
        """Name policies of others that would count instead of ours, since they are older."""
        found: dict[str, Victim] = {}

        def add(policy: PeerAuthentication, about: str) -> None:
            seen = f"{policy.reference}, which this charm did not make, is older and decides about"
            remedy = f"kubectl -n {policy.namespace} delete peerauthentication {policy.name}"
            found.setdefault(policy.reference, Victim(f"{seen} {about}", remedy))

        whole = self.decide({})
        if not whole.is_strict and whole.policy:
            add(whole.policy, "the whole model")
        for each in self.scene.opened:
            for member in self.scene.members:
                for port in each.ports if each.selector <= member.labels else ():
                    decided = self.decide(dict(member.labels), port)
                    nearest = decided.nearest
                    if decided.is_strict and nearest and nearest in self.others:
                        add(nearest, f"{each.workload}:{port}, which has to stay open")
        return [found[reference] for reference in sorted(found)]

    @functools.cached_property
    def _would_be(self) -> Collection[PeerAuthentication]:
        """The PeerAuthentications as they are once ours are written.

        One of ours that is not there yet is younger than all.
        """
        ages = {policy.name: policy.created for policy in self.ours}
        strict = PeerAuthentication(self.model, self.strict_name, mode=peer_authentication.STRICT)
        exceptions = [
            PeerAuthentication(
                self.model,
                self.exception_name(each),
                selector=dict(each.selector),
                ports=dict.fromkeys(each.ports, peer_authentication.PERMISSIVE),
            )
            for each in self.scene.opened
        ]
        return [
            *self.others,
            *(
                dataclasses.replace(each, created=ages.get(each.name, _YOUNGEST))
                for each in (strict, *exceptions)
            ),
        ]

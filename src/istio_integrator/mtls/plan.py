"""The plan of strict mutual TLS: its exceptions, blocked callers and messages; pure."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterable, Mapping, Sequence

from istio_integrator import texts
from istio_integrator.istio import peer_authentication
from istio_integrator.istio.peer_authentication import PeerAuthentication
from istio_integrator.messages import Message, Severity, Template
from istio_integrator.mtls.exceptions import OPTION, Exceptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class MutualTlsPlan:
    """The PeerAuthentications to write with `mtls=strict`, and their effects."""

    exceptions: Exceptions
    is_on: bool
    """Whether the policy for the whole model exists."""
    others: Collection[PeerAuthentication]
    """The policies of other owners in the model and the root namespace."""
    would_be: Collection[PeerAuthentication]
    """All policies, including the planned ones of this charm."""
    model: str
    root_namespace: str
    outsiders: Sequence[str] = ()
    """Workloads of the model that have no proxy and may call pods in the mesh."""
    uninjected: int = 0
    """The number of pods that should have a sidecar and have none yet."""

    @property
    def is_switched_on(self) -> bool:
        """Whether to write the policies.

        Strict mode waits while a caller is known to be blocked. Once on, it stays on.
        """
        return self.is_on or not self.victims

    @functools.cached_property
    def victims(self) -> Sequence[Message]:
        """The callers that are blocked in spite of the exceptions."""
        found = [*self._report_contradictions(), *self.exceptions.victims]
        if self.uninjected and not self.is_on:
            found.append(
                Template.SIDECARS_AWAITED(
                    count=self.uninjected, application=self.exceptions.application
                )
            )
        return found

    def messages(self) -> Iterable[Message]:
        """Report how strict the model is, and the first caller that is blocked."""
        for victim in self.victims[:1]:
            how = "cuts off callers" if self.is_switched_on else "is not switched on"
            more = f"; and {len(self.victims) - 1} more" if self.victims[1:] else ""
            yield Template.MTLS_CUTS_OFF(
                how=how,
                application=self.exceptions.application,
                more=f"{victim.finding}; {victim.command}{more}",
            )
        for named in self.exceptions.unmatched[:1]:
            yield Template.MTLS_EXCEPTION_AWAITED(option=OPTION, name=named)
        if self.is_switched_on:
            count = len(
                {(each.selector, port) for each in self.exceptions.opened for port in each.ports}
            )
            ports = "1 port" if count == 1 else f"{count} ports"
            left = f", {ports} open to plain text" if count else ""
            yield Template.MTLS_STRICT(left=left)

    def preview(self, routed: Collection[str]) -> Iterable[Message]:
        """Report the callers that would be blocked, and the ports that would stay open.

        The applications of `routed` Services get the Host of a browser from the gateway.
        """
        excepted, application = self.exceptions, self.exceptions.application
        yield from self.victims
        for each in excepted.elsewhere:
            yield dataclasses.replace(each, severity=Severity.DOUBT)
        for named in excepted.unmatched:
            yield Template.MTLS_EXCEPTION_AWAITED(option=OPTION, name=named)
        for workload in self.outsiders:
            yield Template.CALLER_OUTSIDE_MESH(
                workload=workload, port="what it calls", application=application
            )
        callers: dict[str, list[str]] = {}
        for need in excepted.needs:
            if need.selector:
                callers.setdefault(f"{need.workload}:{need.port}", []).append(need.caller)
        for port, found in callers.items():
            yield Template.PORT_EXCEPTED(port=port, callers=texts.join_names(found))
        opening: dict[str, list[str]] = {}
        for member in excepted.members:
            decided = self.decide_mode(dict(member.labels))
            if decided.policy and not decided.is_strict:
                opening.setdefault(decided.policy.reference, []).append(member.workload)
        for reference, workloads in sorted(opening.items()):
            yield Template.POLICY_KEEPS_OPEN(
                policy=reference, workloads=texts.join_names(workloads)
            )
        # Once strict mode is on, blocked callers have been noticed already.
        if not self.is_on:
            yield from self._report_calls_by_host(routed)
            yield Template.PLAIN_TEXT_UNKNOWN(port="what is called", application=application)

    def _report_calls_by_host(self, routed: Collection[str]) -> Iterable[Message]:
        """Report the calls that fail if an application forwards a browser's Host."""
        receiving = {
            each.name
            for each in self.exceptions.services
            if each.name in routed
            and any(each.selector <= one.labels for one in self.exceptions.members)
        }
        called = [
            f"{service.name}:{port.port}"
            for service, port in self.exceptions.closed
            if port.is_http and receiving - {service.name}
        ]
        if called:
            yield Template.CALLS_BY_HOST(
                callers=", ".join(sorted(receiving)),
                target=", ".join(called),
                remedy=f"add what it calls to juju config {self.exceptions.application} {OPTION}",
            )

    def decide_mode(
        self, labels: Mapping[str, str], port: int = 0
    ) -> peer_authentication.ModeDecision:
        """Find the mode of a port of a pod once this charm's policies are written."""
        return peer_authentication.decide_mode(
            self.would_be, labels, self.model, self.root_namespace, port
        )

    def _report_contradictions(self) -> list[Message]:
        """Report other owners' policies that override this charm's, since they are older."""
        found: dict[str, Message] = {}

        def add(policy: PeerAuthentication, about: str) -> None:
            place = {"namespace": policy.namespace, "name": policy.name}
            said = Template.POLICY_OLDER(policy=policy.reference, about=about, **place)
            found.setdefault(policy.reference, said)

        whole = self.decide_mode({})
        if not whole.is_strict and whole.policy:
            add(whole.policy, "the whole model")
        for each in self.exceptions.opened:
            for member in self.exceptions.members:
                for port in each.ports if each.selector <= member.labels else ():
                    decided = self.decide_mode(dict(member.labels), port)
                    nearest = decided.nearest
                    if decided.is_strict and nearest and nearest in self.others:
                        add(nearest, f"{each.workload}:{port}, which has to stay open")
        return [found[reference] for reference in sorted(found)]

"""Where the model is served: at a gateway that istiod deploys for it, or at one that there is."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from istio_integrator import parts
from istio_integrator.ingress import (
    choice,
    gateway,
    managed_gateway,
    memory,
    observed,
    survey,
)
from istio_integrator.kube import cluster

Problems = Sequence[gateway.Missing | gateway.Refusal]


@dataclasses.dataclass(frozen=True)
class Placed:
    """The gateway workload, and what was seen on the way to it."""

    answer: gateway.Target | gateway.Missing | gateway.Refusal
    current: gateway.Place | None = None
    """Where the model is served until now."""
    services: frozenset[str] = frozenset()
    """All that there are, each `namespace/name`."""
    addresses: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    """From outside, of those that have one."""

    @classmethod
    def of(
        cls,
        answer: gateway.Target | gateway.Missing | gateway.Refusal,
        current: gateway.Place | None,
        services: Iterable[observed.Service],
    ) -> Placed:
        """Keep of the Services that there are what is asked for later."""
        addresses = {one.reference: one.address for one in services}
        return cls(answer, current, frozenset(addresses), addresses)


class Placement:
    """Looks for it; nothing is written."""

    def __init__(
        self,
        scope: parts.Context,
        remembered: memory.Memory,
        managed: managed_gateway.ManagedGateway,
        own: choice.Own,
    ) -> None:
        self._scope = scope
        self._memory = remembered
        self._managed = managed
        self._own = own

    def look(self, *, opened: cluster.Object | None, only_https: bool) -> Placed:
        """Say where the model is to be served.

        What can't be as wished leaves it where it is, with the reason in `problems`.

        Args:
            opened: Istio's own Gateway of ours, if there is one.
            only_https: Whether nothing but redirects is to be served without TLS.
        """
        remembered = self._memory.read()
        is_managed = remembered is not None and self._managed.is_at(remembered)
        if self._managed.is_wanted:
            said = self._managed.trouble(None if is_managed else opened)
            trouble: Problems = (gateway.Refusal(said),) if said else ()
            if is_managed or not trouble:
                return self._at_managed(remembered, trouble, only_https)
            return self._stays(remembered, opened, trouble[0], only_https)
        if remembered is not None and is_managed:
            return self._left(remembered, only_https)
        return self._shared(survey_from=remembered, own=self._own, only_https=only_https)

    def _stays(
        self,
        remembered: gateway.Place | None,
        opened: cluster.Object | None,
        why: gateway.Missing | gateway.Refusal,
        only_https: bool,
    ) -> Placed:
        """Leave the model where it is served, if it is, and say why."""
        if remembered is not None and self._managed.is_at(remembered):
            return self._at_managed(remembered, (why,), only_https)
        if opened is None:
            return Placed(answer=why)
        found = self._shared(survey_from=remembered, own=self._own, only_https=only_https)
        if not isinstance(found.answer, gateway.Target):
            return found
        answer = dataclasses.replace(found.answer, problems=(why, *found.answer.problems))
        return dataclasses.replace(found, answer=answer)

    def _with_services(self, target: gateway.Target, remembered: gateway.Place | None) -> Placed:
        services = map(observed.Service.of, self._scope.cluster.list(cluster.SERVICE))
        return Placed.of(target, remembered, services)

    def _at_managed(
        self, remembered: gateway.Place | None, problems: Problems, only_https: bool
    ) -> Placed:
        target = self._managed.target(only_https=only_https, problems=problems)
        return self._with_services(target, remembered)

    def _left(self, remembered: gateway.Place, only_https: bool) -> Placed:
        """Choose anew, as after a gateway of our own; it serves until another can."""
        wants_own = self._scope.config.gateway_workload
        own = self._own if wants_own else self._managed.own
        found = self._shared(survey_from=None, own=own, only_https=only_https, adopts=False)
        if isinstance(found.answer, gateway.Target):
            return dataclasses.replace(found, current=remembered)
        return self._stays(remembered, None, found.answer, only_https)

    def _shared(
        self,
        *,
        survey_from: gateway.Place | None,
        own: choice.Own,
        only_https: bool,
        adopts: bool = True,
    ) -> Placed:
        """Look for a workload that Istio's own Gateway can be bound to."""
        config = self._scope.config
        options = choice.GatewayOptions(
            model=self._scope.model,
            # With routing=gateway-api it is one of another kind.
            gateway=config.gateway if config.routing == "virtualservice" else "",
            selector=config.gateway_selector,
            service=config.gateway_service,
            hosts=config.hosts,
            only_https=only_https,
            own=own,
            wants_own=config.gateway_workload,
        )
        inventory = survey.inventory(self._scope, options, survey_from, adopts=adopts)
        return Placed.of(choice.resolve(options, inventory), inventory.current, inventory.services)

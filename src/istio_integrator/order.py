"""The charm's parts, and the orders in which they are reconciled, removed and withdrawn."""

from __future__ import annotations

from collections.abc import Callable

import ops

from istio_integrator import diagnosis, observability, parts
from istio_integrator.admission import admission
from istio_integrator.ingress import exposure
from istio_integrator.lifecycle import service, workload
from istio_integrator.membership import claims, model_namespace
from istio_integrator.mesh import discovery
from istio_integrator.relations import endpoints

Step = Callable[[], None]


class Parts:
    """Every part of the charm, made anew for each event.

    Args:
        charm: The charm that they are parts of.
        context: What every part works in.
        related: The application's relations.
        discovered: The search for an Istio, where it was just made.
    """

    def __init__(
        self,
        charm: ops.CharmBase,
        context: parts.Context,
        related: endpoints.Relations,
        *,
        discovered: discovery.Discovery | None = None,
    ) -> None:
        container = charm.unit.get_container(workload.CONTAINER)
        facts = diagnosis.Facts(context, related, container, discovery=discovered)
        self.context = context
        self.claims = claims.Claims(context)
        self.membership = model_namespace.Membership(context)
        self.lifecycle = service.Lifecycle(context, container, lambda: self.membership.joined)
        self.admission = admission.Admission(context, self.lifecycle.image.serving)
        self.ingress = exposure.Ingress(context, related)
        self.concerns = diagnosis.Concerns(facts)
        self.observability = observability.Observability.of(charm, context, related)

    @property
    def reconciled(self) -> tuple[parts.Part, ...]:
        """The parts in the order in which each event reconciles them.

        What new pods get is settled before the namespace joins, and the workload hears of the
        membership that was decided.
        """
        return (
            self.claims,
            self.admission,
            self.membership,
            self.lifecycle,
            self.ingress,
            self.concerns,
            self.observability,
        )

    @property
    def removal(self) -> tuple[Step, ...]:
        """The steps by which everything goes with the application.

        Nothing is evicted while it goes, a door closes before its guard leaves, and the workload
        is last to go of what running Jobs need, since it lets them complete.
        """
        return (
            self.lifecycle.stop_convergence,
            self.lifecycle.give_notice,
            self.ingress.remove,
            self.membership.remove,
            self.admission.remove,
            self.context.manifests.prune_retired,
            self.lifecycle.remove,
            self.claims.remove,
        )

    @property
    def withdrawal(self) -> tuple[Step, ...]:
        """The steps by which an application ends its work in a model that it may not serve.

        Two of them would each replace pods and prepare new ones.
        """
        shared = (self.admission.remove,) if self.context.leader else ()
        return (self.lifecycle.stop, *shared)

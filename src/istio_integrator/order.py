"""The charm's parts, and the orders in which they are reconciled, removed and withdrawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ops

from istio_integrator import observability
from istio_integrator.admission import admission
from istio_integrator.ingress import ingress
from istio_integrator.istio import discovery
from istio_integrator.lifecycle import service, workload
from istio_integrator.membership import claims, model_namespace
from istio_integrator.messages import Message
from istio_integrator.mtls import mtls
from istio_integrator.policies import policies
from istio_integrator.situation.situation import Component, Situation
from istio_integrator.tenants import tenant_policy
from istio_integrator.training import training

Step = Callable[[], Sequence[Message] | None]


class Parts:
    """The parts of the charm, created for each event."""

    def __init__(
        self,
        charm: ops.CharmBase,
        situation: Situation,
        discovered: discovery.Discovery | None = None,
    ) -> None:
        container = charm.unit.get_container(workload.CONTAINER)
        self.situation = situation
        self.discovered = discovered
        """The search for an Istio; None if there was no search or it failed."""
        self.claims = claims.Claims(situation, self._authorization_service)
        self.membership = model_namespace.Membership(situation, lambda: self.admission.works)
        self.lifecycle = service.WorkloadService(
            situation, container, lambda: self.membership.joined
        )
        self.admission = admission.Admission(situation, self.lifecycle.image)
        self.ingress = ingress.Ingress(situation, look=self.lifecycle.seen)
        self.tenant_policy = tenant_policy.TenantPolicy(
            situation,
            lambda: self.ingress.target,
            lambda: self.ingress.plan.routes,
            look=self.lifecycle.seen,
        )
        self.authorization = policies.Authorization(situation, lambda: self.ingress.exposure)
        self.mutual_tls = mtls.MutualTls(situation, self._uninjected)
        self.training = training.Training(situation)
        self.observability = observability.Observability(charm, situation)

    @property
    def reconciled(self) -> tuple[Component, ...]:
        """The parts in the order in which each event reconciles them.

        Admission prepares new pods before the namespace joins. The workload gets the membership
        after its decision. A model joins ambient mode before the webhook that prepared its
        sidecars is removed. The gateway gets permission to call an application before its routes
        exist.
        """
        places: tuple[Component, ...] = (self.admission, self.membership)
        if self.situation.data_plane == "ambient":
            places = (self.membership, self.admission)
        return (
            self.claims,
            *places,
            self.training,
            self.lifecycle,
            self.authorization,
            self.tenant_policy,
            self.ingress,
            self.mutual_tls,
            self.observability,
        )

    @property
    def removal(self) -> tuple[Step, ...]:
        """The steps that remove the application's objects, in order.

        Juju 4 may end the hook after ten seconds and deletes the charm's own objects, so the label
        goes early, and what each step leaves is harmless. Strict mTLS ends before new pods lose
        their sidecars. The label goes before the webhook, which orders a unit pod's containers.
        The EnvoyFilter goes after the gateway's Envoy, which the workload reads, has no server.
        """
        return (
            self.lifecycle.stop_convergence,
            self.mutual_tls.remove,
            self.ingress.close,
            self.membership.remove,
            self.admission.remove,
            self.claims.remove,
            self.ingress.remove_routes,
            self.tenant_policy.remove,
            self.authorization.remove,
            self.training.remove,
            self.ingress.remove_guard,
            self.lifecycle.remove,
        )

    @property
    def withdrawal(self) -> tuple[Step, ...]:
        """The steps that end the work of an application in a model that it may not serve.

        Otherwise two applications would replace pods and prepare new ones.
        """
        shared = (self.mutual_tls.remove, self.admission.remove, self.training.remove)
        return (self.lifecycle.stop, *(shared if self.situation.leader else ()))

    def _authorization_service(self) -> str:
        service = self.ingress.decision.service
        return service.reference if service else ""

    def _uninjected(self) -> int:
        summary = self.lifecycle.workload.uninjected().summary
        return summary.eligible - summary.in_mesh

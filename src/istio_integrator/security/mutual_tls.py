"""Strict mutual TLS for the model, with what has to stay open to plain text."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from istio_integrator.config import config
from istio_integrator.istio import installation, peer_authentication
from istio_integrator.kube import cluster, errors, snapshot
from istio_integrator.messages import Message
from istio_integrator.security import called, exceptions, exceptions_found, mutual_tls_plan
from istio_integrator.situation import situation

logger = logging.getLogger(__name__)

FOLDER = "mutual-tls"


@dataclasses.dataclass(frozen=True)
class Exempt:
    """The policy of a workload, as the template writes it."""

    name: str
    selector: Mapping[str, str]
    ports: Sequence[int]


@dataclasses.dataclass(frozen=True)
class Context:
    """The variables of the templates in mutual-tls."""

    name: str
    exceptions: Sequence[Exempt]


class MutualTls(situation.Component):
    """Asks callers for a certificate of the mesh, as far as nobody is known to be cut off."""

    name = "security"

    def __init__(
        self, context: situation.Situation, seen: snapshot.Snapshot, uninjected: Callable[[], int]
    ) -> None:
        self._context = context
        self._seen = seen
        self._uninjected = uninjected

    def reconcile(self) -> list[Message]:
        """Have the policies be there that the option asks for, or none.

        Returns:
            How strict the model is, or which callers strict mutual TLS would reject.
        """
        if not self._context.leader:
            return []
        if self._context.config.mtls != "strict":
            try:
                self._take_away()
            except errors.ForbiddenError as error:
                # The right to see them goes with that to make them, which others don't need.
                logger.debug("PeerAuthentications can't be listed: %s", error)
        elif self._context.mesh is not None:
            return self._be_strict(self._context.mesh)
        return []

    def remove(self) -> None:
        """Take ours away, that of the whole model before what is excepted from it."""
        self._take_away()

    def situation(
        self, mesh: installation.Mesh, options: config.Config
    ) -> mutual_tls_plan.Situation:
        """Look at everything that is decided by; nothing is written.

        Args:
            mesh: The Istio that the model belongs to.
            options: Those that are asked about, which need not be the application's own.
        """
        seen, model = self._seen, self._context.model
        of_model = exceptions_found.Model(
            pods=seen.objects(cluster.POD, model),
            workloads=called.workloads(seen, model),
            services=seen.objects(cluster.SERVICE, model),
        )
        calling = [obj for kind in called.CALLING for obj in seen.objects(kind)]
        rules = self._context.cluster.list(cluster.DESTINATION_RULE)
        tenants = self._tenants() if rules else ()
        peers = [
            obj
            for place in dict.fromkeys((model, mesh.root_namespace))
            for obj in self._context.cluster.list(cluster.PEER_AUTHENTICATION, place)
        ]
        found = mutual_tls_plan.Situation(
            scene=exceptions.Scene(
                members=exceptions_found.members(of_model),
                services=called.services(of_model.services),
                calls=called.calls(calling, model=model),
                plain_clients=exceptions_found.plain_clients(
                    [one for one in rules if one["metadata"]["namespace"] not in tenants],
                    model=model,
                    domain=self._context.cluster_domain,
                ),
                plain_tenants=exceptions_found.plain_clients(
                    [one for one in rules if one["metadata"]["namespace"] in tenants],
                    model=model,
                    domain=self._context.cluster_domain,
                ),
                named=options.mtls_exceptions,
            ),
            policies=peer_authentication.read_all(peers),
            model=model,
            root_namespace=mesh.root_namespace,
            application=self._context.application,
            owner=self._context.manifests.owner,
            outsiders=exceptions_found.outsiders(of_model, self._context.application),
        )
        if found.is_on:
            return found
        return dataclasses.replace(found, uninjected=self._uninjected())

    def _tenants(self) -> frozenset[str]:
        spaces = {
            each["metadata"]["name"]: cluster.at(each, "metadata", "labels")
            for each in self._seen.objects(cluster.NAMESPACE)
        }
        is_tenants = self._context.served.is_tenants
        return frozenset(name for name, labels in spaces.items() if is_tenants(name, labels))

    def _take_away(self) -> None:
        found = self._context.manifests.owned_in(FOLDER)
        for obj in sorted(found, key=lambda each: "selector" in cluster.at(each, "spec")):
            self._context.cluster.delete(obj)

    def _be_strict(self, mesh: installation.Mesh) -> list[Message]:
        situation = self.situation(mesh, self._context.config)
        plan = mutual_tls_plan.plan(situation)
        if plan.is_switched_on:
            self._context.manifests.apply(FOLDER, self._wanted(plan.opened))
        return [*mutual_tls_plan.messages(situation, plan)]

    def _wanted(self, opened: Iterable[exceptions.Opened]) -> Context:
        application = self._context.application
        return Context(
            name=mutual_tls_plan.strict_name(application),
            exceptions=[
                Exempt(
                    mutual_tls_plan.exception_name(application, each),
                    dict(sorted(each.selector)),
                    sorted(each.ports),
                )
                for each in opened
            ],
        )

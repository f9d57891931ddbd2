"""Strict mutual TLS for the model, with what has to stay open to plain text."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection, Iterable

from istio_integrator import findings
from istio_integrator.config import config
from istio_integrator.findings import Finding
from istio_integrator.istio import installation, peer_authentication
from istio_integrator.kube import cluster, errors, snapshot
from istio_integrator.messages import Message
from istio_integrator.mtls import exceptions, members, preview
from istio_integrator.mtls.plan import Plan
from istio_integrator.situation import model, situation

logger = logging.getLogger(__name__)

FOLDER = "mutual-tls"


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
            plan = self.plan(self._context.mesh, self._context.config)
            if plan.is_switched_on:
                self._context.manifests.apply(FOLDER, _wanted(plan))
            return [*plan.messages()]
        return []

    def remove(self) -> None:
        """Take ours away, that of the whole model before what is excepted from it."""
        self._take_away()

    def preview(
        self, options: config.Config, routed: Callable[[], Collection[tuple[str, int]]]
    ) -> Iterable[Finding]:
        """Say who is cut off by mutual TLS, and what stays open; nothing is written.

        Args:
            options: Those that are asked about.
            routed: Returns the Services that routes of the gateway lead to.
        """
        mesh = self._context.mesh
        if options.mtls != "strict":
            yield findings.fine("mtls=inherit: this application writes no PeerAuthentication")
        elif mesh is None:
            yield findings.doubtful("there is no Istio to join", "juju status")
        else:
            plan = self.plan(mesh, options)
            yield from preview.judge(plan)
            # Once it is on, whoever was cut off has been noticed.
            if not plan.is_on:
                if self._context.data_plane != "ambient":
                    yield from preview.forwarded(plan, {name for name, _ in routed()})
                yield preview.unknown(plan)

    def plan(self, mesh: installation.Mesh, options: config.Config) -> Plan:
        """Look at everything that is decided by; nothing is written.

        Args:
            mesh: The Istio that the model belongs to.
            options: Those that are asked about, which need not be the application's own.
        """
        context, name = self._context, self._context.model
        found = model.Model.of(self._seen, name)
        calling = [obj for kind in model.CALLING for obj in self._seen.objects(kind)]
        policies = peer_authentication.read_all(
            obj
            for place in dict.fromkeys((name, mesh.root_namespace))
            for obj in context.cluster.list(cluster.PEER_AUTHENTICATION, place)
        )
        # In the root namespace this application writes none.
        owner = context.manifests.owner
        ours = [each for each in policies if (each.owner, each.namespace) == (owner, name)]
        clients = members.plain_clients(
            context.cluster.list(cluster.DESTINATION_RULE),
            model_name=name,
            domain=context.cluster_domain,
        )
        tenants = self._tenants() if clients else ()
        plan = Plan(
            scene=exceptions.Scene(
                members=members.members_of(found),
                services=found.services,
                calls=model.calls(calling, model=name),
                plain_clients=[each for each in clients if each.namespace not in tenants],
                plain_tenants=[each for each in clients if each.namespace in tenants],
                named=options.mtls_exceptions,
                standing=[
                    exceptions.Opened("", frozenset(each.selector.items()), frozenset(each.ports))
                    for each in ours
                    if each.selector and each.ports
                ],
                application=context.application,
            ),
            ours=ours,
            others=[each for each in policies if each not in ours],
            model=name,
            root_namespace=mesh.root_namespace,
            outsiders=sorted(
                {
                    found.workload_of(pod)[1]
                    for pod in found.callers(context.application)
                    if not pod.is_in_mesh
                }
            ),
        )
        return plan if plan.is_on else dataclasses.replace(plan, uninjected=self._uninjected())

    def _tenants(self) -> frozenset[str]:
        served = self._context.served
        spaces = (each["metadata"] for each in self._seen.objects(cluster.NAMESPACE))
        return frozenset(
            each["name"]
            for each in spaces
            if served.is_tenants(each["name"], cluster.at(each, "labels"))
        )

    def _take_away(self) -> None:
        found = self._context.manifests.owned_in(FOLDER)
        for obj in sorted(found, key=lambda each: "selector" in cluster.at(each, "spec")):
            self._context.cluster.delete(obj)


def _wanted(plan: Plan) -> cluster.Object:
    """Return the variables of the templates in mutual-tls."""
    exceptions = [
        {
            "name": plan.exception_name(each),
            "selector": dict(sorted(each.selector)),
            "ports": sorted(each.ports),
        }
        for each in plan.scene.opened
    ]
    return {"name": plan.strict_name, "exceptions": exceptions}

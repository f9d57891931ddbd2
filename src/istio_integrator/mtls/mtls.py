"""The component that writes and removes the model's PeerAuthentications."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from integrator_contract import names
from istio_integrator.component import Component
from istio_integrator.config import config
from istio_integrator.istio import installation, peer_authentication
from istio_integrator.kube import cluster, manifests, owners
from istio_integrator.messages import Message, Template
from istio_integrator.mtls import exceptions, members
from istio_integrator.mtls.plan import MutualTlsPlan
from istio_integrator.situation import model

FOLDER = "mutual-tls"
_YOUNGEST = "9999"
"""The creation time of a policy that does not exist yet, after every real one."""


class MutualTls(Component):
    """Requires a certificate of the mesh from callers, unless a caller would be blocked."""

    name = "security"

    def reconcile(self) -> list[Message]:
        """Make the policies agree with the option, and report how strict the model is."""
        if not self._situation.leader:
            return []
        if self._situation.config.mtls != "strict":
            self.remove()
        elif self._facts.mesh is not None:
            plan = self.plan(self._facts.mesh, self._situation.config)
            if plan.is_switched_on:
                variables = _make_variables(plan.exceptions.opened, self._situation.application)
                self._situation.manifests.apply(FOLDER, variables)
            return [*plan.messages()]
        return []

    def remove(self) -> None:
        """Delete this charm's policies, that of the whole model before its exceptions."""
        found = self._situation.manifests.list_owned_in(FOLDER)
        for obj in sorted(found, key=lambda each: "selector" in cluster.at(each, "spec")):
            self._situation.cluster.delete(obj)

    def preview(self, options: config.Config) -> Iterable[Message]:
        """Report the callers that other options would block; nothing is written."""
        mesh = self._facts.mesh
        if options.mtls != "strict":
            yield Template.OPTION_WRITES_NOTHING(option="mtls=inherit", kind="PeerAuthentication")
        elif mesh is None:
            yield Template.PREVIEW_WITHOUT_ISTIO()
        else:
            is_ambient = self._facts.data_plane == "ambient"
            routed = () if is_ambient else self._facts.exposure.routed
            yield from self.plan(mesh, options).preview({service for service, _ in routed})

    def plan(self, mesh: installation.Mesh, options: config.Config) -> MutualTlsPlan:
        """Plan strict mode with options that may differ from the application's."""
        situation, name = self._situation, self._situation.model
        found = self._facts.model
        calling = [obj for kind in model.CALLING for obj in situation.cluster.list(kind)]
        policies = peer_authentication.read_all(
            obj
            for place in dict.fromkeys((name, mesh.settings.root_namespace))
            for obj in situation.cluster.list(cluster.PEER_AUTHENTICATION, place)
        )
        # This charm writes no PeerAuthentication in the root namespace.
        owner = situation.manifests.owner
        ours = [each for each in policies if (each.owner, each.namespace) == (owner, name)]
        clients = members.list_rule_clients(
            situation.cluster.list(cluster.DESTINATION_RULE),
            model_name=name,
            domain=situation.cluster_domain,
        )
        blind = members.list_blind_clients(
            situation.cluster.list(cluster.SIDECAR),
            found.services,
            model_name=name,
            root_namespace=mesh.settings.root_namespace,
            domain=situation.cluster_domain,
        )
        tenants = self._list_tenants() if clients else ()
        excepted = exceptions.Exceptions(
            members=members.list_members(found),
            services=found.services,
            calls=model.list_calls(calling, model=name),
            plain_clients=[
                *(each for each in clients if each.namespace not in tenants),
                *(each for each in blind if each.namespace == name),
            ],
            plain_elsewhere=[
                *(each for each in clients if each.namespace in tenants),
                *(each for each in blind if each.namespace != name),
            ],
            named=options.mtls_exceptions,
            standing=[each for each in ours if each.selector],
            application=situation.application,
        )
        ages = {each.name: each.created for each in ours}
        would_be = peer_authentication.read_all(
            situation.manifests.add_ownership(FOLDER, obj)
            for obj in manifests.render(
                FOLDER, _make_variables(excepted.opened, situation.application)
            )
        )
        others = [each for each in policies if each not in ours]
        is_on = any(not each.selector for each in ours)
        return MutualTlsPlan(
            exceptions=excepted,
            is_on=is_on,
            others=others,
            would_be=[
                *others,
                *(
                    dataclasses.replace(each, created=ages.get(each.name, _YOUNGEST))
                    for each in would_be
                ),
            ],
            model=name,
            root_namespace=mesh.settings.root_namespace,
            outsiders=sorted(
                {
                    found.find_workload(pod)[1]
                    for pod in found.list_callers(situation.application)
                    if not pod.is_in_mesh
                }
            ),
            uninjected=0 if is_on else self._count_uninjected(),
        )

    def _count_uninjected(self) -> int:
        summary = self._facts.uninjected.summary
        return summary.eligible - summary.in_mesh

    def _list_tenants(self) -> frozenset[str]:
        served = self._facts.served
        spaces = (each["metadata"] for each in self._situation.cluster.list(cluster.NAMESPACE))
        return frozenset(
            each["name"]
            for each in spaces
            if served.is_tenant(each["name"], cluster.at(each, "labels"))
        )


def _make_variables(
    opened: Iterable[exceptions.PortException], application: str
) -> dict[str, Any]:
    return {
        "name": names.name_object(application, "strict"),
        "exceptions": [
            {
                "name": owners.name_by_pods(application, f"plain-{each.workload}", each.selector),
                "selector": dict(sorted(each.selector)),
                "ports": sorted(each.ports),
            }
            for each in opened
        ],
    }

"""What more than one check looks at; each fact is read once, when it is first asked for."""

from __future__ import annotations

import dataclasses
import functools

import ops

from integrator_contract import names
from istio_integrator.admission import admission
from istio_integrator.ingress import gateway, ingress
from istio_integrator.istio import (
    authorization_policy,
    discovery,
    installation,
    peer_authentication,
)
from istio_integrator.kube import cluster
from istio_integrator.lifecycle import workload
from istio_integrator.membership import decision, model_namespace
from istio_integrator.policies import policies
from istio_integrator.relations import endpoints
from istio_integrator.situation import model, situation


class Facts:
    """The cluster as the checks see it. Reading any of it may raise a CharmError.

    The mesh of the given situation is not read: it is looked for, unless `discovery` has just
    done so.
    """

    def __init__(
        self,
        given: situation.Situation,
        related: endpoints.Relations,
        container: ops.Container,
        *,
        discovery: discovery.Discovery | None = None,
    ) -> None:
        self._given = given
        self._related = related
        self._discovery = discovery
        self.workload = workload.Workload(container)
        self.cluster = given.cluster
        self.config = given.config
        self.manifests = given.manifests
        self.model = given.model
        self.application = given.application
        self.is_leader = given.leader
        self.exposes = given.exposes

    def objects(self, kind: cluster.Kind, namespace: str = "") -> list[cluster.Object]:
        """List a kind, in one namespace or everywhere."""
        return self.cluster.list(kind, namespace or None)

    @functools.cached_property
    def discovery(self) -> discovery.Discovery:
        """The search for an Istio."""
        return self._discovery or self._given.discover(self._related)

    @property
    def mesh(self) -> installation.Mesh | None:
        """The Istio to join, None where there is none or none that can be chosen."""
        return self.discovery.mesh

    @functools.cached_property
    def context(self) -> situation.Situation:
        """What every part of the charm gets, with the mesh that is there."""
        found = dataclasses.replace(self._given, mesh=self.mesh)
        return dataclasses.replace(found, data_plane=model_namespace.data_plane(found))

    @functools.cached_property
    def namespace(self) -> cluster.Object | None:
        """The model's namespace."""
        return self.cluster.get(cluster.NAMESPACE, self.model)

    @functools.cached_property
    def membership(self) -> decision.Decision:
        """What would be done with the model's namespace now."""
        if self.namespace is None:
            return decision.Decision()
        part = model_namespace.Membership(self.context, lambda: not self.admission_problem)
        return part.decided(self.namespace)

    @functools.cached_property
    def admission_problem(self) -> str:
        """Why the webhook does not prepare new pods; empty where it does."""
        return self.admission.problem()

    @functools.cached_property
    def admission(self) -> admission.Admission:
        """The part that prepares new pods."""
        # It writes nothing here, so that it needs no image.
        return admission.Admission(self.context, str)

    @functools.cached_property
    def pods(self) -> list[model.Pod]:
        """The pods of the model."""
        return model.read(self.objects(cluster.POD, self.model), model.Pod)

    @functools.cached_property
    def profiles(self) -> list[str]:
        """The namespaces of Kubeflow's users."""
        return [
            each["metadata"]["name"]
            for each in self.objects(cluster.NAMESPACE)
            if cluster.at(each, "metadata", "labels").get(names.PART_OF) == names.PROFILE
        ]

    @functools.cached_property
    def policies(self) -> list[authorization_policy.AuthorizationPolicy]:
        """The AuthorizationPolicies of every namespace."""
        own = (authorization_policy.OWN_TRUST_DOMAIN,)
        return authorization_policy.read_all(
            self.objects(cluster.AUTHORIZATION_POLICY),
            self.mesh.trust_domains if self.mesh else own,
        )

    @functools.cached_property
    def peer_authentications(self) -> list[peer_authentication.PeerAuthentication]:
        """The PeerAuthentications of every namespace."""
        return peer_authentication.read_all(self.objects(cluster.PEER_AUTHENTICATION))

    @functools.cached_property
    def ingress(self) -> ingress.Ingress:
        """The part that leads into the model."""
        return ingress.Ingress(self.context, self._related)

    @functools.cached_property
    def authorization(self) -> policies.Authorization:
        """The part that lets callers in by their relations."""
        return policies.Authorization(self.context, self._related, lambda: self.ingress.exposure)

    @property
    def gateway(self) -> gateway.Target | None:
        """The gateway workload that serves the model, where one does."""
        if not self.exposes or self.mesh is None:
            return None
        choice = self.ingress.target
        return choice if isinstance(choice, gateway.Target) else None

    @functools.cached_property
    def gateway_pods(self) -> list[model.Pod]:
        """The pods of the gateway workload that are ready."""
        if self.gateway is None:
            return []
        where, labels = self.gateway.namespace, self.gateway.selector
        found = model.read(self.cluster.list(cluster.POD, where, labels), model.Pod)
        return [each for each in found if each.is_ready]

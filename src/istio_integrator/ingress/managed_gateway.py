"""A Gateway of the Gateway API in the model, whose workload istiod itself deploys."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Mapping, Sequence

from integrator_contract import names
from istio_integrator import parts
from istio_integrator.ingress import gateway, gateway_api, offered
from istio_integrator.kube import cluster, errors
from istio_integrator.messages import Message, Said
from istio_integrator.relations import kubeflow

logger = logging.getLogger(__name__)

FOLDER = "managed-gateway"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context(gateway.Context):
    """The variables of the templates in managed-gateway."""

    gateway_class: str
    revision: str
    redirect: str
    """The name of the EnvoyFilter that redirects to HTTPS; empty: none does."""


class ManagedGateway:
    """Decides whether it serves the model, makes it, and takes it away."""

    def __init__(self, scope: parts.Context) -> None:
        self._scope = scope
        self._offered = offered.Offered(scope)

    def find(self) -> cluster.Object | None:
        """Read our Gateway; None where there is none, or no Gateway API."""
        try:
            return self._scope.manifests.own(cluster.KUBERNETES_GATEWAY, gateway.NAME)
        except errors.ForbiddenError as error:
            # The role is only needed with routing=gateway-api; without it none was made.
            logger.debug("No Gateway of the Gateway API: %s", error)
            return None

    def obstacle(self, opened: cluster.Object | None) -> Message | None:
        """Say what keeps the model from being served by it; None: nothing.

        Args:
            opened: Istio's own Gateway of the model, where the model is served by that.
        """
        if named := self._scope.config.gateway_service:
            return Said.GATEWAY_NAMED_WITH_GATEWAY_API(
                service=named, application=self._scope.application
            )
        return self._offered.obstacle(opened, self._scope.config.hosts)

    def target(self, *, only_https: bool, messages: Sequence[Message] = ()) -> gateway.Target:
        """Say where the model is served by it, and what istiod says about that.

        Args:
            only_https: Whether nothing but redirects is served without TLS.
            messages: What else to say about it.
        """
        state = gateway_api.state(self.find())
        hosts = self._scope.config.hosts[: gateway_api.MOST_HOSTS]
        name = gateway_api.deployment(self._class)
        said = [state.problem] if state.problem else []
        if state.is_programmed and state.address:
            said = [Said.GATEWAY_ADDRESS(name=gateway.NAME, address=state.address)]
        return gateway.Target(
            namespace=self._scope.model,
            selector={names.GATEWAY_NAME: gateway.NAME},
            service=name,
            http_port=gateway_api.HTTP_PORT,
            https_port=gateway_api.HTTPS_PORT,
            hosts=hosts,
            only_https=only_https,
            ready=state.is_programmed,
            workload=name,
            account=name,
            is_own=True,
            is_managed=True,
            messages=(*messages, *said),
        )

    def open(
        self, target: gateway.Target, credential: str, hosts: Mapping[int, Sequence[str]]
    ) -> cluster.Object:
        """Apply our Gateway, and return it.

        Args:
            target: What is to be served.
            credential: The Secret with the certificate; empty for none.
            hosts: By the port of the listeners.
        """
        mesh = self._scope.mesh
        context = Context(
            name=gateway.NAME,
            target=target,
            credential=credential,
            hosts=hosts,
            gateway_class=self._class,
            revision="" if mesh is None or mesh.is_default else mesh.revision,
            redirect=self._redirect if target.only_https else "",
        )
        return self._scope.manifests.apply(FOLDER, context)[-1]

    def remove(self) -> None:
        """Remove the Gateway."""
        try:
            self._scope.manifests.remove(FOLDER)
        except errors.ForbiddenError as error:
            logger.debug("Nothing of the Gateway API: %s", error)

    def metadata(self) -> kubeflow.GatewayMetadata | None:
        """Say what controllers hear of it, once istiod serves it."""
        if not gateway_api.state(self.find()).is_programmed:
            return None
        name = gateway_api.deployment(self._class)
        return kubeflow.GatewayMetadata(
            namespace=self._scope.model,
            gateway_name=gateway.NAME,
            deployment_name=name,
            service_account=name,
        )

    @property
    def _redirect(self) -> str:
        """Its name in the model; the guard's is one of those that an application has."""
        return f"istio-integrator.{self._scope.manifests.owner}.https".lower()

    @functools.cached_property
    def _class(self) -> str:
        """Of the Gateway that is there, which can't change it, else the one that it would get."""
        spec = cluster.at(self.find(), "spec")
        found = spec.get("gatewayClassName") or self._offered.gateway_class
        return str(found or gateway_api.USUAL_CLASS)

"""A Gateway of the Gateway API in the model, whose workload istiod itself deploys."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Iterator, Mapping

from integrator_contract import booleans, names
from istio_integrator import texts
from istio_integrator.ingress import gateway, observed
from istio_integrator.kube import cluster, errors
from istio_integrator.messages import Message, Said
from istio_integrator.relations import kubeflow
from istio_integrator.situation import situation

logger = logging.getLogger(__name__)

FOLDER = "managed-gateway"
PROBE = "http-routes"
"""The folder of the HTTPRoute that is tried."""
USUAL_CLASS = "istio"
MOST_HOSTS = 32
"""A Gateway has 64 listeners at most, and each host takes one for HTTP and one for HTTPS."""
_NEEDED = {
    "PILOT_ENABLE_GATEWAY_API": "the Gateway API",
    "PILOT_ENABLE_GATEWAY_API_STATUS": "the status of Gateways",
    "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER": "the deployment of gateways",
    # Without it the guard would not stand before anything on such a gateway.
    "ENABLE_SELECTOR_BASED_K8S_GATEWAY_POLICY": "EnvoyFilters for gateways of the Gateway API",
}
"""istiod's own switches, on unless they say otherwise, and what they switch off."""
_LONGEST_MESSAGE = 200
_INSTALL = "install the Gateway API 1.4 or newer in the cluster, or set routing=virtualservice"


def bound(found: Iterable[cluster.Object], *, model: str, owner: str) -> list[str]:
    """Name the VirtualServices of others that are bound to our Gateway, `namespace/name`."""

    def is_bound(each: cluster.Object) -> bool:
        named = cluster.items(cluster.at(each, "spec"), "gateways")
        is_here = each["metadata"]["namespace"] == model
        return f"{model}/{gateway.NAME}" in named or (is_here and gateway.NAME in named)

    others = (
        each for each in found if cluster.at(each, "metadata", "labels").get(names.OWNER) != owner
    )
    return sorted(observed.reference(each) for each in others if is_bound(each))


def problem(obj: cluster.Object | None) -> Message | None:
    """Say why istiod does not serve our Gateway as it is now; None where it does.

    What istiod said about an earlier generation does not count.
    """
    generation = cluster.at(obj, "metadata").get("generation", 0)
    conditions = {
        each.get("type"): each
        for each in cluster.parts(cluster.at(obj, "status"), "conditions")
        if each.get("observedGeneration", 0) == generation
    }
    for condition, said in (
        ("Accepted", Said.GATEWAY_NOT_ACCEPTED),
        ("Programmed", Said.GATEWAY_NOT_PROGRAMMED),
    ):
        found = conditions.get(condition, {})
        words = texts.plain(str(found.get("message", "")), _LONGEST_MESSAGE)
        if found.get("status") == "False" and words:
            return said(name=gateway.NAME, words=words)
        if found.get("status") != "True":
            return Said.GATEWAY_NOT_ACCEPTED_YET(name=gateway.NAME)
    return None


def deployment(gateway_class: str) -> str:
    """Name the Deployment, the Service and the ServiceAccount that istiod makes of our Gateway."""
    return f"{gateway.NAME}-{gateway_class}"


class ManagedGateway:
    """Decides whether it serves the model, makes it, and takes it away."""

    def __init__(self, scope: situation.Situation) -> None:
        self._scope = scope

    def find(self) -> cluster.Object | None:
        """Read our Gateway; None where there is none, or no Gateway API."""
        found = self._scope.manifests.owned_of(cluster.KUBERNETES_GATEWAY)
        return next((each for each in found if each["metadata"]["name"] == gateway.NAME), None)

    def obstacle(self, opened: cluster.Object | None) -> Message | None:
        """Say what keeps the model from being served by it instead of by an open Gateway."""
        scope = self._scope
        if named := scope.config.gateway_service:
            return Said.GATEWAY_NAMED_WITH_GATEWAY_API(
                service=named, application=scope.application
            )
        try:
            lacking = next(self._lacking(), "")
        except errors.ForbiddenError as error:
            logger.warning("The Gateway API's kinds can't be read: %s", error)
            return Said.GATEWAY_API_FORBIDDEN(application=scope.application)
        if lacking:
            return Said.GATEWAY_API_LACKS(problem=lacking)
        found = scope.cluster.list(cluster.VIRTUAL_SERVICE) if opened else ()
        others = bound(found, model=scope.model, owner=scope.manifests.owner)
        if not others:
            return None
        return Said.GATEWAY_API_CUTS_OFF(
            count=len(others), gateway=gateway.NAME, names=texts.listed(others)
        )

    def target(self) -> gateway.Target:
        """Say where the model is served by it, and what istiod says about that."""
        found = self.find()
        said = unserved = problem(found)
        addresses = cluster.parts(cluster.at(found, "status"), "addresses")
        if not said and addresses:
            address = texts.plain(str(addresses[0].get("value", "")), _LONGEST_MESSAGE)
            said = Said.GATEWAY_ADDRESS(name=gateway.NAME, address=address)
        name = deployment(self._class)
        return gateway.Target(
            namespace=self._scope.model,
            selector={names.GATEWAY_NAME: gateway.NAME},
            service=name,
            http_port=80,
            https_port=443,
            hosts=self._scope.config.hosts[:MOST_HOSTS],
            ready=not unserved,
            workload=name,
            account=name,
            is_own=True,
            is_managed=True,
            messages=(said,) if said else (),
        )

    def open(self, context: Mapping[str, object]) -> cluster.Object:
        """Apply our Gateway with the variables of Istio's own one, and return it."""
        mesh = self._scope.mesh
        more = {
            "gateway_class": self._class,
            "revision": "" if mesh is None or mesh.is_default else mesh.revision,
            # Its name in the model; the guard's is one of those that an application has.
            "redirect": f"istio-integrator.{self._scope.manifests.owner}.https".lower(),
        }
        return self._scope.manifests.apply(FOLDER, {**context, **more})[-1]

    def metadata(self) -> kubeflow.GatewayMetadata | None:
        """Say what controllers hear of it, once istiod serves it."""
        target = self.target()
        if not target.ready:
            return None
        return kubeflow.GatewayMetadata(
            namespace=target.namespace,
            gateway_name=gateway.NAME,
            deployment_name=target.workload,
            service_account=target.account,
        )

    @functools.cached_property
    def _class(self) -> str:
        """Of the Gateway that is there, which can't change it, else the one that it would get."""
        if found := cluster.at(self.find(), "spec").get("gatewayClassName"):
            return str(found)
        with self._scope.cluster.optional():
            if len(self._classes) == 1:
                return self._classes[0]
        return USUAL_CLASS

    @functools.cached_property
    def _classes(self) -> list[str]:
        return [
            each["metadata"]["name"]
            for each in self._scope.cluster.list(cluster.GATEWAY_CLASS)
            if cluster.at(each, "spec").get("controllerName") == names.GATEWAY_CONTROLLER
        ]

    def _lacking(self) -> Iterator[str]:
        kinds = (cluster.KUBERNETES_GATEWAY, cluster.HTTP_ROUTE)
        serves = self._scope.cluster.serves
        if missing := [kind.name for kind in kinds if not serves(kind, self._scope.model)]:
            yield f"the cluster has no Gateway API with v1 of {', '.join(missing)}; {_INSTALL}"
        if not self._names_rules():
            lacks = "its routes' rules have no names"
            yield f"the cluster's Gateway API is too old, {lacks}; {_INSTALL}"
        mesh = self._scope.mesh
        if mesh is None or mesh.environment is None:
            yield (
                "istiod's Deployment can't be read, so it is not known whether requests would be "
                "authenticated; set routing=virtualservice"
            )
            return
        where = f"{mesh.namespace}/{mesh.service}"
        for name, what in _NEEDED.items():
            if not booleans.parse(mesh.environment.get(name), default=True):
                yield f"istiod {where} has {what} switched off; unset {name} there"
        if not self._classes:
            yield (
                f"istiod {where} offers no GatewayClass of {names.GATEWAY_CONTROLLER}; restart it "
                "if the Gateway API was installed after it, or set routing=virtualservice"
            )
        if len(self._classes) > 1 and USUAL_CLASS not in self._classes:
            shown = texts.listed(self._classes)
            yield f"of several GatewayClasses of istiod ({shown}) none is called {USUAL_CLASS}"
        if (count := len(self._scope.config.hosts)) > MOST_HOSTS:
            yield f"hosts has {count} names, and a Gateway has listeners for {MOST_HOSTS}"

    def _names_rules(self) -> bool:
        """Ask whether the API server keeps the name of a rule."""
        route = {
            "name": "probe",
            "source": "",
            "rule": "probe",
            "path": {"type": "PathPrefix", "value": "/"},
            "mark": "probe",
            "filters": (),
            "service": "probe",
            "port": 80,
        }
        context = {"gateway": gateway.NAME, "header": "probe", "routes": [route]}
        answer = self._scope.manifests.tried(PROBE, context)
        rules = cluster.parts(cluster.at(answer, "spec"), "rules")
        return any(rule.get("name") == "probe" for rule in rules)

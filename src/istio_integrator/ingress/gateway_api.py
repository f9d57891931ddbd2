"""Whether istiod can serve the model by the Gateway API, and what it says about our Gateway."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from integrator_contract import booleans, names
from istio_integrator import texts
from istio_integrator.ingress import gateway, observed
from istio_integrator.kube import cluster
from istio_integrator.messages import Message, Said

USUAL_CLASS = "istio"
MOST_HOSTS = 32
"""A Gateway has 64 listeners at most, and each host takes one for HTTP and one for HTTPS."""
HTTP_PORT = 80
HTTPS_PORT = 443

_NEEDED = {
    "PILOT_ENABLE_GATEWAY_API": "the Gateway API",
    "PILOT_ENABLE_GATEWAY_API_STATUS": "the status of Gateways",
    "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER": "the deployment of gateways",
    # Without it the guard would not stand before anything on such a gateway.
    "ENABLE_SELECTOR_BASED_K8S_GATEWAY_POLICY": "EnvoyFilters for gateways of the Gateway API",
}
"""istiod's own switches, on unless they say otherwise, and what they switch off."""
_LONGEST_MESSAGE = 200
_MOST_CLASSES = 50
_INSTALL = "install the Gateway API 1.4 or newer in the cluster, or set routing=virtualservice"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Offer:
    """What the cluster has of the Gateway API."""

    served: frozenset[str] = frozenset()
    """Kinds that the API server knows in their version v1."""
    is_older: bool = False
    """Whether it knows Gateways only in the version before."""
    names_rules: bool
    """Whether rules of its HTTPRoutes have names; one with them has all else that we write."""
    classes: Sequence[str] = ()
    """GatewayClasses of istiod."""
    istiod: str = ""
    """`namespace/name` of its Deployment; empty where it can't be looked at."""
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """What istiod's container is told."""

    @property
    def gateway_class(self) -> str:
        """The class that Istio's own installation has, else the only one; empty for none."""
        if USUAL_CLASS in self.classes:
            return USUAL_CLASS
        return self.classes[0] if len(self.classes) == 1 else ""


def classes(found: Iterable[cluster.Object]) -> list[str]:
    """Name the GatewayClasses that are istiod's, of too many the first."""
    own = (
        each["metadata"]["name"]
        for each in found
        if cluster.at(each, "spec").get("controllerName") == names.GATEWAY_CONTROLLER
    )
    return sorted(own)[:_MOST_CLASSES]


def obstacle(offer: Offer, hosts: Sequence[str]) -> Message | None:
    """Say what keeps the model from being served by the Gateway API; None: nothing.

    Args:
        offer: What the cluster has.
        hosts: Of the model.
    """
    found = (*_of_cluster(offer), *_of_istiod(offer), *_of_classes(offer), *_of_hosts(hosts))
    return next((Said.GATEWAY_API_LACKS(problem=each) for each in found), None)


def _of_cluster(offer: Offer) -> Iterable[str]:
    if not offer.served and not offer.is_older:
        yield f"the cluster has no Gateway API; {_INSTALL}"
    elif missing := {"Gateway", "HTTPRoute"} - offer.served:
        kinds = ", ".join(sorted(missing))
        yield f"the cluster's Gateway API is too old, it has no v1 of {kinds}; {_INSTALL}"
    elif not offer.names_rules:
        yield f"the cluster's Gateway API is too old, its routes' rules have no names; {_INSTALL}"


def _of_istiod(offer: Offer) -> Iterable[str]:
    if not offer.istiod:
        yield (
            "istiod's Deployment can't be read, so it is not known whether requests would be "
            "authenticated; set routing=virtualservice"
        )
        return
    for name, what in _NEEDED.items():
        if not booleans.parse(offer.environment.get(name), default=True):
            yield f"istiod {offer.istiod} has {what} switched off; unset {name} there"


def _of_classes(offer: Offer) -> Iterable[str]:
    if not offer.classes:
        yield (
            f"istiod {offer.istiod} offers no GatewayClass of {names.GATEWAY_CONTROLLER}; "
            "restart it if the Gateway API was installed after it, or set routing=virtualservice"
        )
    elif not offer.gateway_class:
        shown = observed.listed(offer.classes)
        yield f"of several GatewayClasses of istiod ({shown}) none is called {USUAL_CLASS}"


def _of_hosts(hosts: Sequence[str]) -> Iterable[str]:
    if len(hosts) > MOST_HOSTS:
        yield f"hosts has {len(hosts)} names, and a Gateway has listeners for {MOST_HOSTS}"


def bound(found: Iterable[cluster.Object], *, model: str, owner: str) -> list[str]:
    """Name the VirtualServices of others that are bound to our Gateway, `namespace/name`.

    Args:
        found: All there are.
        model: Where our Gateway is.
        owner: Us.
    """
    full = f"{model}/{gateway.NAME}"
    return sorted(
        observed.reference(each)
        for each in found
        if cluster.at(each, "metadata", "labels").get(names.OWNER) != owner
        and _is_bound(each, full, model)
    )


def _is_bound(virtual_service: cluster.Object, full: str, model: str) -> bool:
    named = cluster.items(cluster.at(virtual_service, "spec"), "gateways")
    is_here = cluster.at(virtual_service, "metadata").get("namespace") == model
    return full in named or (is_here and gateway.NAME in named)


def stay(bound: Sequence[str]) -> Message | None:
    """Say why VirtualServices of other teams keep the model where it is; None without any."""
    if not bound:
        return None
    return Said.GATEWAY_API_CUTS_OFF(
        count=len(bound), gateway=gateway.NAME, names=observed.listed(bound)
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """What istiod says about a Gateway as it is now."""

    problem: Message | None = None
    address: str = ""

    @property
    def is_programmed(self) -> bool:
        """Whether the Gateway is served."""
        return self.problem is None


def state(obj: cluster.Object | None) -> State:
    """Read it; what istiod said about an earlier generation does not count.

    Args:
        obj: The Gateway, None while there is none.
    """
    waiting = Said.GATEWAY_NOT_ACCEPTED_YET(name=gateway.NAME)
    if obj is None:
        return State(problem=waiting)
    status = cluster.at(obj, "status")
    said = {
        str(each.get("type")): each
        for each in cluster.parts(status, "conditions")
        if each.get("observedGeneration", 0) == cluster.at(obj, "metadata").get("generation", 0)
    }
    addresses = [each.get("value") for each in cluster.parts(status, "addresses")]
    address = texts.plain(str(addresses[0] or ""), _LONGEST_MESSAGE) if addresses else ""
    for condition, problem in (
        ("Accepted", Said.GATEWAY_NOT_ACCEPTED),
        ("Programmed", Said.GATEWAY_NOT_PROGRAMMED),
    ):
        found = said.get(condition, {})
        if found.get("status") == "True":
            continue
        message = texts.plain(str(found.get("message", "")), _LONGEST_MESSAGE)
        if found.get("status") != "False" or not message:
            return State(problem=waiting, address=address)
        return State(problem=problem(name=gateway.NAME, words=message), address=address)
    return State(address=address)


def deployment(gateway_class: str) -> str:
    """Name the Deployment, the Service and the ServiceAccount that istiod makes of our Gateway."""
    return f"{gateway.NAME}-{gateway_class}"

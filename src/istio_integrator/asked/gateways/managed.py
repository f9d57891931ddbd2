"""A Gateway of the Gateway API in the model, whose workload istiod itself deploys."""

from __future__ import annotations

from collections.abc import Iterator

from integrator_contract import booleans, names
from istio_integrator import error_messages, texts
from istio_integrator.asked import gateway
from istio_integrator.istio import installation
from istio_integrator.kube import cluster, errors
from istio_integrator.messages import Message, Template
from istio_integrator.situation.situation import Situation

USUAL_CLASS = "istio"
MOST_HOSTS = 32
"""A Gateway has 64 listeners at most, and each host takes one for HTTP and one for HTTPS."""
_NEEDED = {
    "PILOT_ENABLE_GATEWAY_API": "the Gateway API",
    "PILOT_ENABLE_GATEWAY_API_STATUS": "the status of Gateways",
    "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER": "the deployment of gateways",
    # Without it istiod would not apply the guard to such a gateway.
    "ENABLE_SELECTOR_BASED_K8S_GATEWAY_POLICY": "EnvoyFilters for gateways of the Gateway API",
}
"""Variables of istiod, true by default, and the feature that each one enables."""
_LONGEST_MESSAGE = 200


def find_gateway(situation: Situation) -> cluster.Object | None:
    """Read this charm's Gateway; None without a Gateway or without the Gateway API."""
    found = situation.manifests.list_owned_of(cluster.KUBERNETES_GATEWAY)
    return next((each for each in found if each["metadata"]["name"] == gateway.NAME), None)


def find_obstacle(
    situation: Situation, mesh: installation.Mesh | None, opened: cluster.Object | None
) -> Message | None:
    """Return why a managed gateway cannot serve the model or replace an open Gateway of Istio."""
    if named := situation.config.gateway_service:
        return Template.GATEWAY_NAMED_WITH_GATEWAY_API(
            service=named, application=situation.application
        )
    try:
        lacking = next(_list_lacks(situation, mesh), None)
    except errors.ForbiddenError as error:
        return error_messages.explain_error(error, application=situation.application)
    if lacking:
        return lacking
    if others := _list_bound_routes(situation) if opened else ():
        return Template.GATEWAY_API_CUTS_OFF(
            names=texts.join_names(others),
            count=len(others),
            gateway=gateway.NAME,
            application=situation.application,
        )
    return None


def read_target(situation: Situation) -> gateway.Target:
    """Return the managed gateway, with istiod's messages about it."""
    found = find_gateway(situation)
    said = unserved = _find_problem(found)
    addresses = cluster.parts(cluster.at(found, "status"), "addresses")
    if not said and addresses:
        address = texts.escape(str(addresses[0].get("value", "")), _LONGEST_MESSAGE)
        said = Template.GATEWAY_ADDRESS(name=gateway.NAME, address=address)
    # istiod names the Deployment, the Service and the ServiceAccount alike.
    name = f"{gateway.NAME}-{find_class(situation)}"
    return gateway.Target(
        namespace=situation.model,
        selector={names.GATEWAY_NAME: gateway.NAME},
        service=name,
        http_port=80,
        https_port=443,
        hosts=situation.config.hosts[:MOST_HOSTS],
        ready=not unserved,
        accounts=(name,),
        is_own=True,
        is_managed=True,
        messages=(said,) if said else (),
    )


def _list_bound_routes(situation: Situation) -> list[str]:
    """List other teams' VirtualServices that are bound to this charm's Gateway."""
    found: list[str] = []
    for each in situation.cluster.list(cluster.VIRTUAL_SERVICE):
        metadata = each["metadata"]
        gateways = cluster.items(cluster.at(each, "spec"), "gateways")
        is_here = metadata["namespace"] == situation.model and gateway.NAME in gateways
        is_bound = is_here or f"{situation.model}/{gateway.NAME}" in gateways
        if (
            is_bound
            and cluster.at(metadata, "labels").get(names.OWNER) != situation.manifests.owner
        ):
            found.append(cluster.namespaced_name(each))
    return sorted(found)


def find_class(situation: Situation) -> str:
    """Return the GatewayClass of the existing Gateway, which can't change, or of a new one."""
    if found := cluster.at(find_gateway(situation), "spec").get("gatewayClassName"):
        return str(found)
    with situation.cluster.skip_if_forbidden():
        if len(classes := _list_classes(situation)) == 1:
            return classes[0]
    return USUAL_CLASS


def _list_classes(situation: Situation) -> list[str]:
    return [
        each["metadata"]["name"]
        for each in situation.cluster.list(cluster.GATEWAY_CLASS)
        if cluster.at(each, "spec").get("controllerName") == names.GATEWAY_CONTROLLER
    ]


def _list_lacks(situation: Situation, mesh: installation.Mesh | None) -> Iterator[Message]:
    application = situation.application
    kinds = (cluster.KUBERNETES_GATEWAY, cluster.HTTP_ROUTE)
    if missing := [
        kind.name for kind in kinds if not situation.cluster.serves(kind, situation.model)
    ]:
        yield Template.GATEWAY_API_MISSING(kinds=", ".join(missing), application=application)
    if not _keeps_rule_names(situation):
        yield Template.GATEWAY_API_TOO_OLD(application=application)
    if mesh is None or mesh.settings.environment is None:
        yield Template.GATEWAY_API_UNVERIFIED(application=application)
        return
    where = f"{mesh.injector.namespace}/{mesh.injector.service}"
    for name, what in _NEEDED.items():
        if not booleans.parse(mesh.settings.environment.get(name), default=True):
            yield Template.GATEWAY_API_SWITCHED_OFF(istiod=where, feature=what, variable=name)
    classes = _list_classes(situation)
    if not classes:
        yield Template.GATEWAY_CLASS_MISSING(istiod=where, application=application)
    if len(classes) > 1 and USUAL_CLASS not in classes:
        yield Template.GATEWAY_CLASS_AMBIGUOUS(
            classes=texts.join_names(classes), usual=USUAL_CLASS, application=application
        )
    if (count := len(situation.config.hosts)) > MOST_HOSTS:
        yield Template.GATEWAY_HOSTS_TOO_MANY(
            count=count, limit=MOST_HOSTS, application=application
        )


def _keeps_rule_names(situation: Situation) -> bool:
    """Tell whether the API server keeps the name of a route's rule."""
    route = {
        "apiVersion": cluster.HTTP_ROUTE.api_version,
        "kind": cluster.HTTP_ROUTE.name,
        "metadata": {"generateName": "probe-", "namespace": situation.model},
        "spec": {"rules": [{"name": "probe"}]},
    }
    answer = situation.cluster.create(route, dry_run=True)
    rules = cluster.parts(cluster.at(answer, "spec"), "rules")
    return any(rule.get("name") == "probe" for rule in rules)


def _find_problem(obj: cluster.Object | None) -> Message | None:
    """Return why istiod does not serve the Gateway's current generation; None if it does."""
    generation = cluster.at(obj, "metadata").get("generation", 0)
    conditions = {
        each.get("type"): each
        for each in cluster.parts(cluster.at(obj, "status"), "conditions")
        if each.get("observedGeneration", 0) == generation
    }
    for condition, said in (
        ("Accepted", Template.GATEWAY_NOT_ACCEPTED),
        ("Programmed", Template.GATEWAY_NOT_PROGRAMMED),
    ):
        found = conditions.get(condition, {})
        words = texts.escape(str(found.get("message", "")), _LONGEST_MESSAGE)
        if found.get("status") == "False" and words:
            return said(name=gateway.NAME, words=words)
        if found.get("status") != "True":
            return Template.GATEWAY_NOT_ACCEPTED_YET(name=gateway.NAME)
    return None

"""What the cluster has for the choice of the gateway: workloads, Services, Gateways, a guard."""

from __future__ import annotations

import dataclasses
import logging

import pydantic

from integrator_contract import names
from istio_integrator import parts
from istio_integrator.ingress import choice, gateway, guards, observed
from istio_integrator.kube import cluster
from istio_integrator.mesh import plaintext

logger = logging.getLogger(__name__)

_MOST_CANDIDATES = 20
"""Workloads whose pods are looked at before the first choice, each by a request."""


def inventory(
    scope: parts.Context,
    options: choice.GatewayOptions,
    remembered: gateway.Place | None,
    *,
    adopts: bool = True,
) -> choice.Inventory:
    """Read from the cluster what `choice.resolve` decides by.

    Args:
        scope: What every part may use.
        options: What the operator says about the gateway.
        remembered: Where the model is served, as far as that was written down.
        adopts: Whether a guard of ours says so, too, where nothing is.
    """
    api, mesh = scope.cluster, scope.mesh
    istiod = (
        api.get(cluster.DEPLOYMENT, mesh.service, mesh.namespace)
        if mesh and mesh.namespace
        else None
    )
    found = choice.Inventory(
        workloads=[
            observed.Workload.of(obj)
            for kind in (cluster.DEPLOYMENT, cluster.DAEMON_SET)
            for obj in api.list(kind)
        ],
        services=[observed.Service.of(obj) for obj in api.list(cluster.SERVICE)],
        gateways=api.list(cluster.GATEWAY),
        scoped=observed.is_scoped(istiod),
        current=remembered,
    )
    if remembered is not None and not options.is_open(remembered):
        return found
    tenants = _tenants(scope) - {options.service.partition("/")[0]}
    current = remembered or (_adopted(scope, options, tenants) if adopts else None)
    found = dataclasses.replace(found, tenants=tenants, current=current)
    if not options.is_open(current):
        return found
    return dataclasses.replace(found, running=_running(api, options, found))


def _tenants(scope: parts.Context) -> frozenset[str]:
    labels = {
        each["metadata"]["name"]: cluster.at(each, "metadata", "labels")
        for each in scope.cluster.list(cluster.NAMESPACE)
    }
    return frozenset(name for name in labels if scope.served.is_tenants(name, labels[name]))


def _adopted(
    scope: parts.Context, options: choice.GatewayOptions, tenants: frozenset[str]
) -> gateway.Place | None:
    """Read where a guard of ours is, of which nothing is remembered yet.

    One in a tenant's namespace was led there, or is the tenant's own work.
    """
    marks = {names.OWNER: scope.manifests.owner, names.COMPONENT: guards.FOLDER}
    present = [
        obj
        for obj in scope.cluster.list(cluster.ENVOY_FILTER, labels=marks)
        if obj["metadata"]["namespace"] not in tenants
        # One before a Gateway of the Gateway API, which can't be bound otherwise, is left.
        and names.GATEWAY_NAME not in cluster.at(obj, "spec", "workloadSelector", "labels")
    ]
    if not present:
        return None
    guard = min(present, key=lambda obj: str(obj["metadata"].get("creationTimestamp")))
    namespace = guard["metadata"]["namespace"]
    selector = cluster.at(guard, "spec", "workloadSelector", "labels")
    own = options.own
    is_own = own and namespace == options.model and selector == own.selector
    opened = scope.cluster.get(cluster.GATEWAY, gateway.NAME, options.model)
    try:
        return gateway.Place.model_validate(
            {
                "namespace": namespace,
                "service": own.service.partition("/")[2] if own and is_own else None,
                "selector": selector,
                "hosts": options.hosts,
                "only_https": options.only_https,
                **(gateway.served(opened) if opened and scope.manifests.is_ours(opened) else {}),
            }
        )
    except pydantic.ValidationError as error:
        logger.warning("%s is not as this charm writes it: %s", cluster.reference(guard), error)
        return None


def _running(
    api: cluster.Cluster, options: choice.GatewayOptions, found: choice.Inventory
) -> frozenset[str]:
    """Name the candidates that have a ready pod with a router."""
    asked = [
        one
        for one in choice.candidates(options, found)
        if one.ready and one.namespace not in found.tenants
    ]
    if len(asked) > _MOST_CANDIDATES:
        # Whichever they are, they are several.
        return frozenset(one.reference for one in asked)
    return frozenset(one.reference for one in asked if _routes(api, one))


def _routes(api: cluster.Cluster, workload: observed.Workload) -> bool:
    pods = api.list(cluster.POD, workload.namespace, workload.labels)
    return any(plaintext.is_router(pod) and cluster.is_ready(pod) for pod in pods)

"""The routes in the cluster, without those that the API server rejects.

A VirtualService has all of them, in the order of the plan. With the Gateway API each is an
HTTPRoute, which istiod sorts. There a prefix matches whole parts of a path: `/kfp` is `/kfp` and
what is below `/kfp/`, and not `/kfpx`. A method of gRPC is a path like any other: before 1.30
Istio ignores GRPCRoutes at a hostname that has HTTPRoutes (istio issue 57172).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from istio_integrator import error_messages
from istio_integrator.ingress import gateway, record
from istio_integrator.ingress.record import Values
from istio_integrator.ingress.routes.plan import Kind, Route
from istio_integrator.kube import cluster, errors, owners
from istio_integrator.messages import Message, Said
from istio_integrator.situation import situation

logger = logging.getLogger(__name__)

VIRTUAL_SERVICE = "routes"
HTTP_ROUTES = "http-routes"
GRPC = "grpc"
"""Folders of templates."""


def apply(
    scope: situation.Situation, planned: Sequence[Route], target: gateway.Target, values: Values
) -> tuple[list[Route], list[Message]]:
    """Have the gateway serve routes, without those that the API server rejects.

    Returns:
        What is served, and what is wrong with the rest.

    Raises:
        ApiError: All of it is rejected, and no part of it is the reason.
    """
    problems = _apply_grpc(scope, [route for route in planned if route.is_grpc], target)

    def of_routes(found: Sequence[Route]) -> dict[str, Any]:
        if target.is_managed:
            return _http_routes(scope, found, values)
        return _virtual_service(scope, found, target, values)

    groups: dict[tuple[str, int], list[Route]] = {}
    for route in planned:
        # An HTTPRoute has one route, and the VirtualService all of them.
        key = route.source, route.place if target.is_managed else 0
        groups.setdefault(key, []).append(route)
    folder = HTTP_ROUTES if target.is_managed else VIRTUAL_SERVICE
    refused = scope.manifests.apply_fitting(folder, groups, of_routes)
    served = [route for key, group in groups.items() if key not in refused for route in group]
    found = [Said.REQUEST_INVALID(request=each) for each in problems]
    for source, error in {source: error for (source, _), error in refused.items()}.items():
        found.append(error_messages.of_object(error, f"routes of {source} in {scope.model}"))
    hidden = [record.hide_in(each) for each in found]
    for problem in hidden:
        logger.warning("%s.", problem.text)
    return served, hidden


def remove(scope: situation.Situation) -> None:
    """Remove the routes of both kinds."""
    for folder in (VIRTUAL_SERVICE, HTTP_ROUTES, GRPC):
        scope.manifests.remove(folder)


def _virtual_service(
    scope: situation.Situation, found: Iterable[Route], target: gateway.Target, values: Values
) -> dict[str, Any]:
    routes = sorted(found, key=lambda route: route.precedence)
    return {
        "name": owners.object_name(scope.application, VIRTUAL_SERVICE),
        "sources": _sources(routes),
        "routes": routes,
        "values": values,
        "gateway": f"{scope.model}/{gateway.NAME}",
        "hosts": target.written_hosts,
        "export_to": target.seen_from(scope.model),
    }


def _http_routes(
    scope: situation.Situation, found: Iterable[Route], values: Values
) -> dict[str, Any]:
    return {
        "gateway": gateway.NAME,
        "routes": [
            {
                "name": owners.object_name(scope.application, f"route-{one.relation}-{one.place}"),
                "source": one.source,
                # The EnvoyFilter finds routes without authentication by the name of the rule.
                "rule": "" if one.is_asked else values.free_route,
                "path": _path_match(one),
                "mark": values.asked if one.is_asked else values.free,
                "filters": _filters(one),
                "service": one.backend.host.partition(".")[0],
                "port": one.backend.port,
            }
            for one in found
        ],
        "header": values.header,
    }


def _parts(prefix: str) -> str:
    return prefix.rstrip("/") or "/"


def _path_match(route: Route) -> dict[str, str]:
    if route.kind is Kind.EXACT:
        return {"type": "Exact", "value": route.path}
    return {"type": "PathPrefix", "value": _parts(route.path)}


def _filters(route: Route) -> list[dict[str, Any]]:
    if route.kind is Kind.EXACT:
        change = {"type": "ReplaceFullPath", "replaceFullPath": route.rewrite}
    elif _parts(route.rewrite) == _parts(route.path):
        return []
    else:
        change = {"type": "ReplacePrefixMatch", "replacePrefixMatch": _parts(route.rewrite)}
    return [{"type": "URLRewrite", "urlRewrite": {"path": change}}] if route.rewrite else []


def _sources(routes: Iterable[Route]) -> str:
    found = {(route.relation, route.source) for route in routes}
    return ", ".join(source for _, source in sorted(found))


def _apply_grpc(
    scope: situation.Situation, wanted: Sequence[Route], target: gateway.Target
) -> list[str]:
    """Have the gateway speak HTTP/2 with backends of gRPC that have no DestinationRule."""
    try:
        rules = scope.cluster.list(cluster.DESTINATION_RULE, scope.model) if wanted else []
        others = [rule for rule in rules if not scope.manifests.is_ours(rule)]
        taken = [str(cluster.at(rule, "spec").get("host", "")) for rule in others]
        ports: dict[str, set[int]] = {}
        for host, port in (route.backend for route in wanted):
            if not any(_is_for(rule, host) for rule in taken):
                ports.setdefault(host, set()).add(port)
        backends = [
            {
                "name": owners.object_name(scope.application, f"{GRPC}-{host.partition('.')[0]}"),
                "host": host,
                "ports": sorted(numbers),
            }
            for host, numbers in sorted(ports.items())
        ]
        scope.manifests.apply(GRPC, {"backends": backends, "export_to": target.namespace})
    except errors.ConflictError:
        raise
    except (errors.ApiError, errors.ForbiddenError, errors.ForeignError) as error:
        # Roles that are older than the charm lack the right; without it none was made.
        logger.debug("DestinationRules: %s", error)
        return [f"gRPC of {_sources(wanted)}: {error}"] if wanted else []
    return []


def _is_for(rule: str, host: str) -> bool:
    """Tell whether a DestinationRule of the same namespace is for a Service."""
    if rule.startswith("*"):
        return host.endswith(rule[1:])
    service, namespace, svc, *_ = host.split(".")
    return rule in (host, service, f"{service}.{namespace}", f"{service}.{namespace}.{svc}")

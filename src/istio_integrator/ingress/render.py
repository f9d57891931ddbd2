"""The routes in the cluster, without those that the API server rejects.

One VirtualService has all routes, in the order of the plan. With the Gateway API each route is an
HTTPRoute, and istiod sorts them. There a prefix matches whole path segments: `/kfp` matches `/kfp`
and paths below `/kfp/`, but not `/kfpx`. A gRPC method is rendered as a path, because Istio before
1.30 ignores GRPCRoutes at a hostname with HTTPRoutes (istio issue 57172).
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from integrator_contract import names
from istio_integrator import error_messages
from istio_integrator.asked import gateway
from istio_integrator.asked.routes.plan import Route
from istio_integrator.ingress.record import RandomValues
from istio_integrator.istio import destination_rule
from istio_integrator.kube import cluster, errors
from istio_integrator.messages import Message, Template
from istio_integrator.situation.situation import Situation

logger = logging.getLogger(__name__)

VIRTUAL_SERVICE = "routes"
HTTP_ROUTES = "http-routes"
GRPC = "grpc"
"""Folders of templates."""


def apply_routes(
    situation: Situation,
    planned: Sequence[Route],
    target: gateway.Target,
    values: RandomValues,
    *,
    is_dry_run: bool = False,
) -> tuple[list[Route], list[Message]]:
    """Apply routes; return those that the API server accepts, and the problems of the others.

    A dry run changes nothing.
    """
    named = functools.partial(names.name_object, situation.application)
    grpc = [route for route in planned if route.is_grpc]
    found = [] if is_dry_run else _apply_grpc(situation, grpc, target)

    def of_routes(routes: Sequence[Route]) -> dict[str, Any]:
        return {
            "named": named,
            "sources": _name_sources(routes),
            "routes": sorted(routes, key=lambda route: route.precedence),
            "values": values,
            "gateway": gateway.NAME,
            "model": situation.model,
            "domain": situation.domain,
            "target": target,
        }

    groups: dict[tuple[str, int], list[Route]] = {}
    for route in planned:
        # An HTTPRoute has one route. The VirtualService has all routes.
        key = route.request.reference, route.place if target.is_managed else 0
        groups.setdefault(key, []).append(route)
    folder = HTTP_ROUTES if target.is_managed else VIRTUAL_SERVICE
    refused = situation.manifests.apply_accepted(folder, groups, of_routes, is_dry_run=is_dry_run)
    served = [route for key, group in groups.items() if key not in refused for route in group]
    for source, error in {source: error for (source, _), error in refused.items()}.items():
        found.append(
            error_messages.explain_refused_object(
                error, f"routes of {source} in {situation.model}"
            )
        )
    for problem in found:
        logger.warning("%s.", problem.text)
    return served, found


def remove_routes(situation: Situation) -> None:
    """Remove the routes of both kinds."""
    for folder in (VIRTUAL_SERVICE, HTTP_ROUTES, GRPC):
        situation.manifests.remove(folder)


def _name_sources(routes: Iterable[Route]) -> str:
    found = {(route.request.relation, route.request.reference) for route in routes}
    return ", ".join(source for _, source in sorted(found))


def _apply_grpc(
    situation: Situation, wanted: Sequence[Route], target: gateway.Target
) -> list[Message]:
    """Enable HTTP/2 to gRPC backends that have no DestinationRule."""
    try:
        rules = situation.cluster.list(cluster.DESTINATION_RULE, situation.model) if wanted else []
        others = [rule for rule in rules if not situation.manifests.is_ours(rule)]
        hosts = (str(cluster.at(rule, "spec").get("host", "")) for rule in others)
        place = situation.model, situation.model, situation.cluster_domain
        taken = {destination_rule.find_service(host, *place) for host in hosts}
        ports: dict[str, set[int]] = {}
        for route in wanted:
            if not taken & {"*", route.service}:
                ports.setdefault(route.service, set()).add(route.port)
        variables = {
            "named": functools.partial(names.name_object, situation.application),
            "ports": ports,
            "domain": situation.domain,
            "export_to": target.namespace,
        }
        situation.manifests.apply(GRPC, variables)
    except errors.ConflictError:
        raise
    except (errors.ApiError, errors.ForbiddenError, errors.ForeignError) as error:
        # Roles of an older charm lack the permission. Without it the charm created no rules.
        logger.debug("DestinationRules: %s", error)
        problem = f"gRPC of {_name_sources(wanted)}: {error}"
        return [Template.REQUEST_INVALID(request=problem)] if wanted else []
    return []

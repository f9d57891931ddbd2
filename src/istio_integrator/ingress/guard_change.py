"""How a guard becomes one of another shape, as a refresh brings it, unseen by its neighbours.

A gateway hears of filters and of routes one after the other. Routes of the next guard in front of
filters of the former one have those ask about the hosts of others, too; the next guard's filters
do right by the routes of either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from istio_integrator.kube import cluster, manifests

_FILTER = "HTTP_FILTER"


def filters_first(settle: Callable[[], None]) -> manifests.Steps:
    """Have the filters of a guard change by themselves, where they and what is around them do.

    Args:
        settle: Waits until the gateway has heard of it.
    """

    def steps(found: cluster.Object, wanted: cluster.Object) -> Iterable[cluster.Object]:
        if step := between(found, wanted):
            yield step
            settle()

    return steps


def between(found: cluster.Object | None, wanted: cluster.Object) -> cluster.Object | None:
    """Make the step from one guard to another; None where one is enough.

    Filters that are switched on otherwise are none for the former guard's routes; nor are those
    that ask another service or take another word of it, since its routes know what to take away.

    Args:
        found: The EnvoyFilter that stands.
        wanted: The one that is to stand.
    """
    filters, rest = _parted(found)
    wanted_filters, wanted_rest = _parted(wanted)
    if manifests.is_current(filters, wanted_filters) or manifests.is_current(rest, wanted_rest):
        return None
    if not rest or _nature(filters) != _nature(wanted_filters):
        return None
    return {**wanted, "spec": {**wanted["spec"], "configPatches": [*wanted_filters, *rest]}}


def _parted(guard: cluster.Object | None) -> tuple[list[cluster.Object], list[cluster.Object]]:
    patches = cluster.parts(cluster.at(guard, "spec"), "configPatches")
    filters = [each for each in patches if each.get("applyTo") == _FILTER]
    return filters, [each for each in patches if each.get("applyTo") != _FILTER]


def _nature(filters: list[cluster.Object]) -> list[tuple[object, ...]]:
    """List what routes rely on: names, whether off until switched on, who is asked, its word."""
    values = [cluster.at(each, "patch", "value") for each in filters]
    services = [cluster.at(value, "typed_config", "http_service") for value in values]
    return [
        (
            value.get("name"),
            value.get("disabled"),
            service.get("server_uri"),
            cluster.at(service, "authorization_response").get("allowed_upstream_headers"),
        )
        for value, service in zip(values, services, strict=True)
    ]

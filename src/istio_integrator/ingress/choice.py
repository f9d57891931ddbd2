"""Decide which gateway workload serves the model: once, and afterwards by the operator's word.

Nothing that others make moves the model. What is remembered counts before what is
found, and what is absent is waited for where it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

from integrator_contract import names, selectors
from istio_integrator.ingress import gateway, observed, sharing
from istio_integrator.ingress.gateway import Missing, Place, Refusal, Target
from istio_integrator.ingress.observed import Service, Workload
from istio_integrator.kube import cluster


@dataclasses.dataclass(frozen=True, kw_only=True)
class Own:
    """The gateway workload that we run for this model alone, or could."""

    service: str
    """`namespace/name` of its Service, and of the workload."""
    selector: Mapping[str, str]

    def is_at(self, place: Place) -> bool:
        """Tell whether a place is this one."""
        return f"{place.namespace}/{place.service}" == self.service


@dataclasses.dataclass(frozen=True, kw_only=True)
class GatewayOptions:
    """What the options say about the gateway."""

    model: str
    gateway: str = ""
    """`namespace/name` of a Gateway to copy the selector from."""
    selector: str = ""
    service: str = ""
    """`namespace/name` of the gateway's Service."""
    hosts: tuple[str, ...] = ()
    only_https: bool = False
    """Whether nothing but redirects is served without TLS."""
    own: Own | None = None
    wants_own: bool = False

    def is_open(self, current: Place | None) -> bool:
        """Tell whether the gateway is to be chosen among all that there are."""
        if self.wants_own or self.service:
            return False
        return current is None or bool(self.own and self.own.is_at(current))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inventory:
    """What the cluster has."""

    workloads: Sequence[Workload] = ()
    services: Sequence[Service] = ()
    gateways: Sequence[cluster.Object] = ()
    scoped: bool = False
    """Whether istiod binds Gateways only to workloads of their own namespace."""
    current: Place | None = None
    """Where the model is served until now."""
    tenants: Collection[str] = ()
    """Namespaces of people who are not to serve a model unasked."""
    running: Collection[str] = ()
    """References of workloads that have a ready pod with a router."""


def resolve(options: GatewayOptions, inventory: Inventory) -> Target | Missing | Refusal:
    """Decide which workload serves the model's routes, or what the operator has to say.

    What can't be as wished leaves the model where it is served, with the reason in `problems`.
    """
    answer = _as_asked(options, inventory)
    if isinstance(answer, Target):
        answer = _admitted(options, inventory, answer)
    if not isinstance(answer, Target) and inventory.current is not None:
        return _standing(options, inventory, inventory.current, answer) or answer
    return answer


def candidates(options: GatewayOptions, inventory: Inventory) -> list[Workload]:
    """List the workloads that may be the gateway where nothing is remembered or named."""
    asked = _asked_selector(options, inventory)
    own = options.own.service if options.own else ""
    return [
        one
        for one in inventory.workloads
        if one.reference != own
        and (observed.matches(asked, one.labels) if isinstance(asked, dict) else one.is_ingress)
    ]


@dataclasses.dataclass(frozen=True)
class _Spot:
    """A namespace and what selects the gateway in it."""

    namespace: str
    selector: Mapping[str, str]
    service: str = ""
    """Empty: the only one."""


def _as_asked(options: GatewayOptions, inventory: Inventory) -> Target | Missing | Refusal:
    """Find what the options name, else what is remembered, else the only candidate."""
    if options.wants_own and options.own is not None:
        namespace, _, name = options.own.service.partition("/")
        return _at(options, inventory, _Spot(namespace, options.own.selector, name))
    asked = _asked_selector(options, inventory)
    if isinstance(asked, Missing):
        return asked
    current = None if _is_own(options, inventory.current) else inventory.current
    if options.service:
        spot = _named(options, inventory, asked, current)
    elif current is not None:
        spot = _remembered(inventory, current, asked)
    else:
        spot = _first(options, inventory, asked)
    return _at(options, inventory, spot) if isinstance(spot, _Spot) else spot


def _asked_selector(
    options: GatewayOptions, inventory: Inventory
) -> dict[str, str] | Missing | None:
    """Read the selector that the operator gave, or that of the Gateway which is named."""
    if options.selector:
        return selectors.equality(options.selector)
    if not options.gateway:
        return None
    for obj in inventory.gateways:
        if observed.reference(obj) == options.gateway:
            return observed.selector_of(obj)
    return Missing(f"waiting for Gateway {options.gateway}")


def _named(
    options: GatewayOptions,
    inventory: Inventory,
    asked: Mapping[str, str] | None,
    current: Place | None,
) -> _Spot | Missing | Refusal:
    namespace, _, name = options.service.partition("/")
    if asked is None and current is not None and _is_known_as(current, namespace, name):
        asked = current.selector
    if asked is not None:
        return _Spot(namespace, asked, name)
    services = [one for one in inventory.services if one.reference == options.service]
    workloads = [
        one
        for one in inventory.workloads
        if one.is_ingress and any(s.serves(one) for s in services)
    ]
    if not workloads:
        return Missing(
            f"waiting for Service {options.service} with the pods of an ingress gateway"
        )
    selectors = {tuple(sorted(_selector_of(one).items())) for one in workloads}
    if len(selectors) > 1:
        return Refusal(_several(workloads, "set gateway-selector"))
    return _Spot(namespace, dict(selectors.pop()), name)


def _is_known_as(current: Place, namespace: str, name: str) -> bool:
    return current.namespace == namespace and current.service in (None, name)


def _remembered(inventory: Inventory, current: Place, asked: Mapping[str, str] | None) -> _Spot:
    selector = current.selector if asked is None else asked
    service = current.service or ""
    if selector != current.selector:
        # Another workload of the same namespace may have a Service of its own.
        here = [one for one in inventory.workloads if one.namespace == current.namespace]
        serves = any(
            one.serves(each)
            for one in inventory.services
            if one.name == service
            for each in here
            if observed.matches(selector, each.labels)
        )
        service = service if serves else ""
    return _Spot(current.namespace, selector, service)


def _first(
    options: GatewayOptions, inventory: Inventory, asked: Mapping[str, str] | None
) -> _Spot | Missing | Refusal:
    """Choose among what is ready, really routes and is not in a tenant's namespace."""
    looked_at = candidates(options, inventory)
    trusted = [one for one in looked_at if one.namespace not in inventory.tenants]
    chosen = [one for one in trusted if one.ready and one.reference in inventory.running]
    if inventory.scoped and any(one.namespace == options.model for one in chosen):
        chosen = [one for one in chosen if one.namespace == options.model]
    spots = {
        (one.namespace, tuple(sorted((asked or _selector_of(one)).items()))) for one in chosen
    }
    if len(spots) > 1:
        return Refusal(_several(chosen, "set gateway-service"))
    if spots:
        ((namespace, selector),) = spots
        return _Spot(namespace, dict(selector))
    if trusted:
        names = observed.listed(one.reference for one in trusted)
        return Missing(f"waiting for an ingress gateway: {names} has no ready router")
    if looked_at:
        names = observed.listed(one.reference for one in looked_at)
        return Missing(
            f"waiting for an ingress gateway: {names} is in a namespace of tenants; name its "
            "Service in gateway-service if it is to serve this model"
        )
    if asked is not None:
        option = "gateway-selector" if options.selector else f"gateway={options.gateway}"
        return Missing(f"waiting for a gateway workload: none matches {option}")
    return Missing(
        "waiting for an ingress gateway: install one, name it in gateway-service, or set "
        "gateway-workload=true"
    )


def _selector_of(workload: Workload) -> Mapping[str, str]:
    for key in ("istio", "app", names.NAME):
        if key in workload.labels:
            return {key: workload.labels[key]}
    return dict(sorted(workload.labels.items())[: observed.MOST_LABELS])


def _at(options: GatewayOptions, inventory: Inventory, spot: _Spot) -> Target | Missing | Refusal:
    """Look at what a spot has."""
    workloads = _workloads(options, inventory, spot.namespace, spot.selector)
    if not workloads:
        marks = ",".join(f"{key}={value}" for key, value in spot.selector.items())
        where = f"waiting for the gateway: namespace {spot.namespace} has no workload with"
        return Missing(f"{where} {marks or 'an empty selector'}")
    serving = [one for one in inventory.services if any(map(one.serves, workloads))]
    if spot.service:
        serving = [one for one in serving if one.name == spot.service]
        if not serving:
            pods = f"with the pods of {_best(workloads).reference}"
            return Missing(f"waiting for Service {spot.namespace}/{spot.service} {pods}")
    serving = [one for one in serving if one.is_web]
    if not serving:
        best = _best(workloads).reference
        return Missing(f"waiting for a Service with an http or https port for {best}")
    if len(serving) > 1:
        names = observed.listed(one.reference for one in serving)
        best = _best(workloads).reference
        return Refusal(f"several Services for {best} ({names}): set gateway-service")
    (service,) = serving
    workload = _best([one for one in workloads if service.serves(one)])
    return Target(
        namespace=spot.namespace,
        selector=spot.selector,
        service=service.name,
        http_port=service.http_port,
        https_port=service.https_port,
        hosts=options.hosts,
        only_https=options.only_https,
        neighbours=_neighbours(options, inventory, workload.labels),
        ready=workload.ready,
        workload=workload.name,
        is_own=bool(options.own and options.own.service == f"{spot.namespace}/{service.name}"),
        notes=_look_alikes(inventory, spot.namespace, spot.selector),
    )


def _workloads(
    options: GatewayOptions, inventory: Inventory, namespace: str, selector: Mapping[str, str]
) -> list[Workload]:
    """List what a selector means in a namespace; our own workload is known by its name."""
    own = options.own
    is_own = own is not None and namespace == options.model and selector == own.selector
    return [
        one
        for one in inventory.workloads
        if one.namespace == namespace
        and observed.matches(selector, one.labels)
        and (own is None or (one.reference == own.service) == is_own)
    ]


def _best(workloads: Iterable[Workload]) -> Workload:
    return max(workloads, key=lambda one: (one.ready, one.name))


def _neighbours(
    options: GatewayOptions, inventory: Inventory, marks: Mapping[str, str]
) -> tuple[observed.Neighbour, ...]:
    served = inventory.current.hosts if inventory.current else ()
    return sharing.neighbours(
        inventory.gateways,
        marks,
        ours=f"{options.model}/{gateway.NAME}",
        hosts={*options.hosts, *served},
    )


def _look_alikes(
    inventory: Inventory, namespace: str, selector: Mapping[str, str]
) -> tuple[str, ...]:
    names = [
        one.reference
        for one in inventory.workloads
        if one.namespace != namespace and observed.matches(selector, one.labels)
    ]
    return (
        (f"not the model's gateway in spite of its labels: {observed.listed(names)}",)
        if names
        else ()
    )


def _admitted(options: GatewayOptions, inventory: Inventory, target: Target) -> Target | Refusal:
    """Hold what others have on the workload against what is wished.

    Who is served there already stays so, with the hosts of until now; who is not, is refused.
    """
    if target.is_own:
        names = observed.listed(one.reference for one in target.neighbours)
        note = (
            (f"Gateways of others on the model's own gateway workload: {names}",) if names else ()
        )
        return dataclasses.replace(target, notes=(*target.notes, *note))
    current = inventory.current
    trouble = _unseen(options, inventory, target) or sharing.trouble(
        target, options.hosts, only_https=options.only_https
    )
    if current is None or not target.is_at(current):
        return Refusal(trouble) if trouble else target
    refused = sharing.refused_change(target, current, options.hosts, only_https=options.only_https)
    if refused:
        return dataclasses.replace(
            target,
            hosts=current.hosts,
            only_https=current.only_https,
            problems=(Refusal(refused),),
        )
    return dataclasses.replace(target, problems=(Refusal(trouble),) if trouble else ())


def _standing(
    options: GatewayOptions, inventory: Inventory, current: Place, why: Missing | Refusal
) -> Target | None:
    """Describe where the model is served as long as it can't be as wished.

    Returns:
        None where not even its ports are known.
    """
    workloads = _workloads(options, inventory, current.namespace, current.selector)
    services = [
        one
        for one in inventory.services
        if (one.namespace, one.name) == (current.namespace, current.service) and one.is_web
    ]
    ports = services[0] if services else current
    if current.service is None or not (ports.http_port or ports.https_port):
        return None
    workload = _best(workloads) if workloads else None
    is_there = workload is not None and any(one.serves(workload) for one in services)
    return Target(
        namespace=current.namespace,
        selector=current.selector,
        service=current.service,
        http_port=ports.http_port,
        https_port=ports.https_port,
        hosts=current.hosts,
        only_https=current.only_https,
        neighbours=_neighbours(
            options, inventory, workload.labels if workload else current.selector
        ),
        ready=is_there and workload is not None and workload.ready,
        workload=workload.name if workload else "",
        is_own=_is_own(options, current),
        problems=(why,),
        notes=_look_alikes(inventory, current.namespace, current.selector),
    )


def _is_own(options: GatewayOptions, place: Place | None) -> bool:
    return options.own is not None and place is not None and options.own.is_at(place)


def _unseen(options: GatewayOptions, inventory: Inventory, target: Target) -> str:
    if not inventory.scoped or target.namespace == options.model:
        return ""
    return (
        f"istiod has {observed.SCOPE_SETTING}, so gateway {target.reference} does not see this "
        "model: unset it, or set gateway-workload=true"
    )


def _several(workloads: Iterable[Workload], what: str) -> str:
    names = observed.listed(one.reference for one in workloads)
    return f"several ingress gateways ({names}): {what}"

"""What the charm expects the gateway's Envoy to have, and what the workload sees there."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
from collections.abc import Mapping
from typing import Literal

Protocol = Literal["HTTP", "HTTPS"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server of our Gateway."""

    port: int
    protocol: Protocol
    hosts: tuple[str, ...] = ()
    """Those of ours that the Gateway has; none while it has only its random name."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What the charm has written about the gateway, as Envoy should have it."""

    namespace: str
    selector: Mapping[str, str]
    gateway: str
    """Our Gateway, NAMESPACE/NAME."""
    servers: tuple[Server, ...]
    hosts: tuple[str, ...] = ()
    """Hosts whose virtual hosts our filters guard by name; none: every virtual host is guarded."""
    filters: tuple[str, ...]
    """The names of our HTTP filters, all of which a filter chain must have."""
    latest: str = ""
    """The filter whose name changes with the hosts. A chain with an earlier one guards the earlier
    hosts; empty: there is none."""
    entry: str
    """The name of the route that our EnvoyFilter adds to each virtual host of our Gateway."""
    routes: int = 0
    """Routes of Envoy that demand one of `marks`, at each host that our Gateway has."""
    marks: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    """Header values that only our routes demand; routes with earlier values are out of date."""
    clusters: tuple[str, ...] = ()
    """Envoy's names for the authorization service and for the routes' Services."""

    def word(self) -> str:
        """Return a word that no other expectation has, by which an answer names this one."""
        values = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(values.encode()).hexdigest()[:16]


class Unseen(enum.StrEnum):
    """Why the workload has not seen what the gateway has."""

    NOT_YET = "not yet"
    NO_PODS = "no pods"
    FORBIDDEN = "forbidden"
    """Kubernetes refuses the request; the detail names the right."""
    UNREACHABLE = "unreachable"
    """A pod's Envoy does not answer, or not with what Envoy answers."""
    TOO_LARGE = "too large"


class Cause(enum.StrEnum):
    """The usual cause of something that the gateway's Envoy lacks."""

    UPDATE_REFUSED = "update refused"
    """Envoy refuses a listener of ours: `port`, `words`."""
    WARMING = "warming"
    """A new listener waits for certificates, the earlier one serves: `port`, `secrets`."""
    FILTERS_IGNORED = "filters ignored"
    """No filter chain of the gateway has a filter of ours: istiod ignores EnvoyFilters."""
    FILTERS_MISSING = "filters missing"
    """A filter chain lacks one: `port`."""
    HOST_TAKEN = "host taken"
    """Another team's Gateway serves our host: `host`, `port`, `by`."""
    SERVER_MISSING = "server missing"
    """Istiod dropped our server: `port`, `protocol`."""
    ROUTES_MISSING = "routes missing"
    """Envoy has earlier routes, which another team's VirtualService can freeze: `host`, `port`,
    `routes`."""
    OTHER_DOMAIN = "other domain"
    """Istiod uses another DNS domain than the charm: `domain`."""
    CLUSTER_MISSING = "cluster missing"
    """The gateway does not know a Service, which is usually not exported to it: `service`, its
    namespace `home`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """One thing that the gateway's Envoy lacks."""

    cause: Cause
    about: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the gateway's Envoy has."""

    of: str
    """The word of the expectation that this is about."""
    unseen: Unseen | None = Unseen.NOT_YET
    detail: str = ""
    pods: int = 0
    ready: int = 0
    """Gateway pods that are Ready; of many, some are looked at."""
    guarded: tuple[int, ...] = ()
    """Ports whose filter chains have all our filters, in every pod that was looked at."""
    unguarded: tuple[int, ...] = ()
    """Ports of which a filter chain lacks a filter of ours, in some pod."""
    is_open: bool = False
    routes: int = 0
    """Of those expected, how many every pod serves with our filters at every host."""
    missing: tuple[Missing, ...] = ()
    """The cause that comes before others first."""
    is_late: bool = False
    """Whether what is missing has had the time that a change usually takes to arrive."""

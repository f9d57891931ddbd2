"""The configuration that the charm expects in the gateway's Envoy, and the one found there."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
from collections.abc import Mapping
from typing import Literal

from . import refusals

Protocol = Literal["HTTP", "HTTPS"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server of the model's Gateway."""

    port: int
    protocol: Protocol
    hosts: tuple[str, ...] = ()
    """The model's hosts on the Gateway; empty while it has only its random name."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The charm's configuration of the gateway, as Envoy should have it."""

    namespace: str
    selector: Mapping[str, str]
    gateway: str
    """The model's Gateway, NAMESPACE/NAME."""
    servers: tuple[Server, ...]
    hosts: tuple[str, ...] = ()
    """Hosts whose virtual hosts the charm's filters guard by name; empty: every virtual host."""
    filters: tuple[str, ...]
    """The charm's HTTP filters, all required in a filter chain."""
    latest: str = ""
    """The filter whose name changes with the hosts, or empty. A chain with an earlier filter
    guards the earlier hosts."""
    entry: str
    """The route that the charm's EnvoyFilter adds to each virtual host of the Gateway."""
    routes: int = 0
    """Routes of Envoy that require one of `marks`, per host of the Gateway."""
    marks: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    """Header values that only the charm's routes require; routes with earlier values are
    outdated."""
    proof: tuple[str, str] = dataclasses.field(default=("", ""), repr=False)
    """Namespace and value of the dynamic metadata that the charm's EnvoyFilter has each route of
    these hosts require."""
    istiod: str = ""
    """The namespace of istiod, which keeps Envoy's words about routes that it rejects."""
    clusters: tuple[str, ...] = ()
    """Envoy's names for the authorization service and for the routes' Services."""

    def digest(self) -> str:
        """Return a hash of the expectation, which an answer refers to."""
        values = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(values.encode()).hexdigest()[:16]


class ReadFailure(enum.StrEnum):
    """Reason why the workload could not read the gateway's configuration."""

    NOT_YET = "not yet"
    NO_PODS = "no pods"
    FORBIDDEN = "forbidden"
    """Kubernetes denies the request; the detail names the right."""
    UNREACHABLE = "unreachable"
    """A pod's Envoy does not answer, or its answer is not Envoy's."""
    TOO_LARGE = "too large"


class Cause(enum.StrEnum):
    """The usual cause of something that the gateway's Envoy lacks."""

    UPDATE_REFUSED = "update refused"
    """Envoy rejects a listener of the Gateway."""
    WARMING = "warming"
    """A new listener waits for certificates while the earlier one serves."""
    FILTERS_IGNORED = "filters ignored"
    """No filter chain of the gateway has the charm's filters: istiod ignores EnvoyFilters."""
    FILTERS_MISSING = "filters missing"
    """A filter chain lacks one of the charm's filters."""
    HOST_TAKEN = "host taken"
    """Another team's Gateway serves the model's host."""
    HOST_SHARED = "host shared"
    """Another integrator's EnvoyFilter guards the host too."""
    SERVER_MISSING = "server missing"
    """Istiod dropped the Gateway's server."""
    ROUTES_MISSING = "routes missing"
    """Envoy has earlier routes, which another team's VirtualService can freeze."""
    ROUTES_UNREAD = "routes unread"
    """The gateway's routes are too large to be read."""
    ROUTES_UNANSWERED = "routes unanswered"
    """An Envoy of the gateway did not send its routes."""
    OTHER_DOMAIN = "other domain"
    """Istiod uses another DNS domain than the charm."""
    CLUSTER_MISSING = "cluster missing"
    """The gateway does not know a Service, which is usually not exported to it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MissingPart:
    """A part of the expected configuration that Envoy lacks."""

    cause: Cause
    host: str = ""
    port: int = 0
    protocol: str = ""
    secrets: str = ""
    by: str = ""
    """The object of another team that has the host."""
    routes: str = ""
    words: str = ""
    """Envoy's reason."""
    domain: str = ""
    home: str = ""
    """The namespace of the Service."""
    service: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EnvoyState:
    """The configuration found in the gateway's Envoys."""

    of: str
    """The `digest` of the expectation that it was compared with."""
    unseen: ReadFailure | None = ReadFailure.NOT_YET
    detail: str = ""
    refusal: refusals.Refusal | None = None
    """The webhook or policy that rejects port-forwards to the gateway's pods."""
    pods: int = 0
    ready: int = 0
    """Gateway pods that are Ready; only some of many are checked."""
    guarded: tuple[int, ...] = ()
    """Ports whose filter chains have all the charm's filters, in every checked pod."""
    unguarded: tuple[int, ...] = ()
    """Ports with a filter chain that lacks one of the charm's filters, in any checked pod."""
    is_open: bool = False
    routes: int = 0
    """Expected routes that every pod serves, with the charm's filters, at every host that no
    other integrator guards."""
    missing: tuple[MissingPart, ...] = ()
    """Root causes first."""
    words: str = ""
    """Envoy's words about routes that it rejects, if routes are missing and istiod has them."""
    is_late: bool = False
    """Whether missing parts have had the usual time of a change to arrive."""

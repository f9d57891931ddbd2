"""The fields of Envoy's `/config_dump` that the rules read.

Fields are described at
https://www.envoyproxy.io/docs/envoy/latest/api-v3/admin/v3/config_dump.proto
"""

# msgspec copies empty defaults.
# ruff: noqa: D101, RUF012

from __future__ import annotations

import msgspec

from .types import Partial


class Named(Partial):
    name: str = ""


class Rds(Partial):
    route_config_name: str = ""


class ConnectionManager(Partial):
    rds: Rds = msgspec.field(default_factory=Rds)
    http_filters: list[Named] = []


class NetworkFilter(Partial):
    typed_config: ConnectionManager = msgspec.field(default_factory=ConnectionManager)


class ChainMatch(Partial):
    server_names: list[str] = []


class Chain(Partial):
    name: str = ""
    filter_chain_match: ChainMatch = msgspec.field(default_factory=ChainMatch)
    filters: list[NetworkFilter] = []


class ListenerConfiguration(Partial):
    filter_chains: list[Chain] = []
    default_filter_chain: Chain | None = None


class ListenerState(Partial):
    listener: ListenerConfiguration = msgspec.field(default_factory=ListenerConfiguration)


class UpdateFailure(Partial):
    details: str = ""


class Listener(Partial):
    active_state: ListenerState = msgspec.field(default_factory=ListenerState)
    warming_state: ListenerState = msgspec.field(default_factory=ListenerState)
    error_state: UpdateFailure = msgspec.field(default_factory=UpdateFailure)


class StringMatch(Partial):
    exact: str = ""


class HeaderMatch(Partial):
    string_match: StringMatch = msgspec.field(default_factory=StringMatch)


class MetadataMatch(Partial):
    filter: str = ""
    value: HeaderMatch = msgspec.field(default_factory=HeaderMatch)


class RouteMatch(Partial):
    headers: list[HeaderMatch] = []
    dynamic_metadata: list[MetadataMatch] = []


class Script(Partial):
    ask: bool = False


class ScriptMetadata(Partial):
    lua: Script = msgspec.field(name="envoy.filters.http.lua", default_factory=Script)


class Metadata(Partial):
    filter_metadata: ScriptMetadata = msgspec.field(default_factory=ScriptMetadata)


class VirtualHostRoute(Partial):
    name: str = ""
    match: RouteMatch = msgspec.field(default_factory=RouteMatch)
    metadata: Metadata = msgspec.field(default_factory=Metadata)


class VirtualHost(Partial):
    name: str = ""
    domains: list[str] = []
    routes: list[VirtualHostRoute] = []


class RouteConfiguration(Partial):
    name: str = ""
    virtual_hosts: list[VirtualHost] = []


class Routes(Partial):
    route_config: RouteConfiguration = msgspec.field(default_factory=RouteConfiguration)


class DynamicCluster(Partial):
    cluster: Named = msgspec.field(default_factory=Named)


class Acknowledgement(Partial):
    last_error: str = msgspec.field(name="lastError", default="")


class Synchronization(Partial):
    """A proxy in istiod's `/debug/syncz` (istio, pilot/pkg/xds/debug.go)."""

    proxy: str = ""
    """NAME.NAMESPACE of its pod."""
    resources: dict[str, Acknowledgement] = {}
    """By the URL of their type."""


class Configuration(Partial):
    """The configuration of one Envoy."""

    listeners: list[Listener]
    routes: list[Routes] | None
    """None: not read."""
    clusters: list[DynamicCluster]
    warming_secrets: list[Named]
    """Certificates that istiod has not sent."""
    unanswered: str = ""
    """Why Envoy's answer about routes did not arrive; empty: it arrived, or is too large."""

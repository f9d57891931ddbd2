"""What an Envoy has, read from `/config_dump` as far as the rules look at it.

Fields are described at https://www.envoyproxy.io/docs/envoy/latest/api-v3/admin/v3/config_dump.proto
"""

# ruff: noqa: D101  msgspec copies empty defaults

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Model(msgspec.Struct, kw_only=True):
    """Base of the slim types: unknown fields are skipped."""


class Named(Model):
    name: str = ""


class Rds(Model):
    route_config_name: str = ""


class ConnectionManager(Model):
    rds: Rds = msgspec.field(default_factory=Rds)
    http_filters: list[Named] = []


class NetworkFilter(Model):
    typed_config: ConnectionManager = msgspec.field(default_factory=ConnectionManager)


class ChainMatch(Model):
    server_names: list[str] = []


class Chain(Model):
    filter_chain_match: ChainMatch = msgspec.field(default_factory=ChainMatch)
    filters: list[NetworkFilter] = []


class ListenerConfiguration(Model):
    filter_chains: list[Chain] = []
    default_filter_chain: Chain | None = None


class ListenerState(Model):
    listener: ListenerConfiguration = msgspec.field(default_factory=ListenerConfiguration)


class UpdateFailure(Model):
    details: str = ""


class Listener(Model):
    active_state: ListenerState = msgspec.field(default_factory=ListenerState)
    warming_state: ListenerState = msgspec.field(default_factory=ListenerState)
    error_state: UpdateFailure = msgspec.field(default_factory=UpdateFailure)


class StringMatch(Model):
    exact: str = ""


class HeaderMatch(Model):
    string_match: StringMatch = msgspec.field(default_factory=StringMatch)


class RouteMatch(Model):
    headers: list[HeaderMatch] = []


class Route(Model):
    name: str = ""
    match: RouteMatch = msgspec.field(default_factory=RouteMatch)


class VirtualHost(Model):
    name: str = ""
    domains: list[str] = []
    routes: list[Route] = []


class RouteConfiguration(Model):
    name: str = ""
    virtual_hosts: list[VirtualHost] = []


class Routes(Model):
    route_config: RouteConfiguration = msgspec.field(default_factory=RouteConfiguration)


class Cluster(Model):
    cluster: Named = msgspec.field(default_factory=Named)


class Dump(Model, Generic[T]):
    """An answer of `/config_dump?resource=…`."""

    configs: list[T] = []


class Proxy(Model):
    """One Envoy."""

    listeners: list[Listener]
    routes: list[Routes]
    clusters: list[Cluster]
    warming_secrets: list[Named]
    """Certificates that istiod has not sent."""

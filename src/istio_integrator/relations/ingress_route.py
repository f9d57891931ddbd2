"""The interface `istio_ingress_route`, by which current Kubeflow charms request routes.

An application writes one JSON document under `config` in its data bag, as the library
charmlibs.interfaces.istio_ingress_route serializes it. The classes here have the names of the
library's classes. The library validates neither names nor paths. The endpoint decides whether a
route needs authentication.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

import pydantic

from integrator_contract import bounded
from istio_integrator.relations import endpoints, kubeflow

CONFIG = "config"
EXTERNAL_HOST = "external_host"
TLS_ENABLED = "tls_enabled"

MOST_ROUTES = 128
"""Routes of one application; Kubeflow's charms request one each."""
_LONGEST_VALUE = 256
"""Characters of a path or of a gRPC name."""

GrpcName = Annotated[
    kubeflow.Text,
    pydantic.Field(max_length=_LONGEST_VALUE),
    kubeflow.require_pattern(
        r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*",
        "is not a name such as package.Service",
    ),
]
# The Gateway API reads an empty replacement as `/`.
Replacement = Annotated[
    kubeflow.Text, pydantic.AfterValidator(lambda value: kubeflow.validate_path(value or "/"))
]
_Few = pydantic.Field(max_length=16)
_Many = pydantic.Field(max_length=MOST_ROUTES)


class _Complete(kubeflow.Wire):
    """A part that is served only if all of its fields are known."""

    model_config = pydantic.ConfigDict(extra="allow")

    @property
    def unserved(self) -> list[str]:
        """The set fields that are not supported, including those of newer libraries."""
        return [name for name, value in (self.model_extra or {}).items() if value]


class _Listener(kubeflow.Wire):
    port: kubeflow.Port
    protocol: Literal["HTTP", "GRPC"]


class BackendRef(kubeflow.Wire):
    """A Service that receives the requests."""

    service: kubeflow.DnsLabel
    port: kubeflow.Port


class HTTPPathMatch(kubeflow.Wire):
    """A path, or a path and everything below it."""

    type: kubeflow.Name = "PathPrefix"
    value: Annotated[kubeflow.Text, pydantic.Field(min_length=1, max_length=_LONGEST_VALUE)]

    @property
    def is_served(self) -> bool:
        """Whether the type is supported."""
        return self.type in ("Exact", "PathPrefix")

    @pydantic.model_validator(mode="after")
    def _is_path(self) -> Self:
        if self.is_served:
            kubeflow.validate_path(self.value)
        return self


class HTTPRouteMatch(_Complete):
    """A match of a route; a request must meet all of its conditions."""

    path: HTTPPathMatch | None = None


class GRPCMethodMatch(kubeflow.Wire):
    """A method of a gRPC service, or all of its methods."""

    service: GrpcName
    method: GrpcName | None = None


class GRPCRouteMatch(_Complete):
    """A match of a gRPC route."""

    method: GRPCMethodMatch | None = None


class PathModifier(kubeflow.Wire):
    """A replacement of the path; the key of its value follows from the type."""

    type: Literal["ReplaceFullPath", "ReplacePrefixMatch"]
    value: Replacement = pydantic.Field(
        validation_alias=pydantic.AliasChoices("replaceFullPath", "replacePrefixMatch", "value")
    )


class URLRewriteSpec(_Complete):
    """The changes to a request before it is sent to the backend."""

    path: PathModifier | None = None


class HTTPRouteFilter(kubeflow.Wire):
    """A filter, which has `url_rewrite` if it is a rewrite."""

    url_rewrite: Annotated[URLRewriteSpec | None, pydantic.Field(alias="urlRewrite")] = None


class _Route(_Complete):
    name: kubeflow.Name
    """For messages only; no object has this name."""
    listener: _Listener
    backends: Annotated[tuple[BackendRef, ...], _Few]
    filters: Annotated[tuple[HTTPRouteFilter, ...], _Few] | None = None


class HTTPRoute(_Route):
    """The backends of HTTP requests that fit one of the matches."""

    matches: Annotated[tuple[HTTPRouteMatch, ...], _Few] | None = None
    """None: every request."""


class GRPCRoute(_Route):
    """The backends of gRPC requests that fit one of the matches."""

    matches: Annotated[tuple[GRPCRouteMatch, ...], _Few] | None = None


class IstioIngressRouteConfig(kubeflow.Wire):
    """All routes of an application on one relation."""

    model: kubeflow.DnsLabel
    """The namespace of the backends."""
    http_routes: Annotated[tuple[HTTPRoute, ...], _Many] = ()
    grpc_routes: Annotated[tuple[GRPCRoute, ...], _Many] = ()


Received = kubeflow.Received[IstioIngressRouteConfig]


def read_config(text: str) -> tuple[IstioIngressRouteConfig | None, str]:
    """Read the document in an application's data bag; a missing document is not a problem."""
    if not text:
        return None, ""
    return kubeflow.read_message(
        lambda: IstioIngressRouteConfig.model_validate(bounded.read_json(text))
    )


def read_requests(related: endpoints.Relations) -> list[Received]:
    """Return the routes of every application, the oldest relation first."""
    found = (
        one
        for endpoint in kubeflow.INGRESS_ROUTES
        for one in kubeflow.read_messages(
            related, endpoint, lambda bag: read_config(bag.get(CONFIG, ""))
        )
    )
    return sorted(found, key=lambda one: one.relation)


def publish_host(related: endpoints.Relations, *, external_host: str, tls_enabled: bool) -> None:
    """Write the model's host and TLS to every application; an empty host keeps the last one."""
    told = {EXTERNAL_HOST: external_host} if external_host else {}
    for endpoint in kubeflow.INGRESS_ROUTES:
        related.write(endpoint, {**told, TLS_ENABLED: str(tls_enabled)})

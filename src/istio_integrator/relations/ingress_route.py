"""The wire format of `istio_ingress_route`, by which today's Kubeflow charms ask for routes.

An application writes one JSON document under `config` in its data bag, as the library
charmlibs.interfaces.istio_ingress_route serializes it; the classes here are named like the
library's. It is answered with `external_host` and `tls_enabled`. Nothing in the bags says
whether a route needs authentication: that is what the two endpoints are for.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal, Self

import pydantic

from integrator_contract import bounded
from istio_integrator import texts
from istio_integrator.relations import endpoints, kubeflow

CONFIG = "config"
EXTERNAL_HOST = "external_host"
TLS_ENABLED = "tls_enabled"

MOST_ROUTES = 128
"""Routes of one application; those of Kubeflow's charms have one."""
_MOST_PARTS = 16
"""Matches, backends or filters of one route."""
_LONGEST_NAME = 253
_LONGEST_VALUE = 256
"""Characters of a path or of a gRPC name."""


def _replacement(value: str) -> str:
    # The Gateway API takes an empty one for the root.
    return kubeflow.path(value or "/")


Name = Annotated[kubeflow.Text, pydantic.StringConstraints(max_length=_LONGEST_NAME)]
GrpcName = Annotated[
    kubeflow.Text,
    pydantic.Field(max_length=_LONGEST_VALUE),
    kubeflow.like(
        r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*",
        "is not a name such as package.Service",
    ),
]
Replacement = Annotated[kubeflow.Text, pydantic.AfterValidator(_replacement)]
Unserved = Any
"""What the interface has and no route is served with; it is only looked for."""
_Few = pydantic.Field(max_length=_MOST_PARTS)


class _Wire(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="ignore", defer_build=True)


class _Complete(_Wire):
    """What is served as a whole or not at all, so that fields of newer libraries are noticed."""

    model_config = pydantic.ConfigDict(extra="allow")

    @property
    def unknown(self) -> list[str]:
        """The names of fields with a value that this version does not know."""
        return [name for name, value in (self.model_extra or {}).items() if value]


class Listener(_Wire):
    """The gateway's port that a route is asked for at."""

    port: kubeflow.Port
    protocol: Literal["HTTP", "GRPC"]


class BackendRef(_Wire):
    """A Service that requests are led to."""

    service: kubeflow.DnsLabel
    port: kubeflow.Port


class HTTPPathMatch(_Wire):
    """A path, or a path and everything below it."""

    type: Name = "PathPrefix"
    value: Annotated[kubeflow.Text, pydantic.Field(min_length=1, max_length=_LONGEST_VALUE)]

    @property
    def is_served(self) -> bool:
        """Whether routes are served with a path of this type."""
        return self.type in ("Exact", "PathPrefix")

    @pydantic.model_validator(mode="after")
    def _is_path(self) -> Self:
        if self.is_served:
            kubeflow.path(self.value)
        return self


class HTTPRouteMatch(_Complete):
    """What a request has to have; all of it."""

    path: HTTPPathMatch | None = None
    method: Unserved = None
    headers: Unserved = None


class GRPCMethodMatch(_Wire):
    """A method of a gRPC service, or all of them."""

    service: GrpcName
    method: GrpcName | None = None


class GRPCRouteMatch(_Complete):
    """What a gRPC request has to have; all of it."""

    method: GRPCMethodMatch | None = None
    headers: Unserved = None


class PathModifier(_Wire):
    """What becomes of a path; the key of the value is named like the type."""

    type: Literal["ReplaceFullPath", "ReplacePrefixMatch"]
    value: Replacement = pydantic.Field(
        validation_alias=pydantic.AliasChoices("replaceFullPath", "replacePrefixMatch", "value")
    )


class URLRewriteSpec(_Complete):
    """What becomes of a request on its way to the backend."""

    hostname: Unserved = None
    path: PathModifier | None = None


class HTTPRouteFilter(_Wire):
    """A rewrite; a filter of another kind has none."""

    url_rewrite: Annotated[URLRewriteSpec | None, pydantic.Field(alias="urlRewrite")] = None


class _Route(_Complete):
    name: Name
    """For people; nothing is named after it."""
    listener: Listener
    backends: Annotated[tuple[BackendRef, ...], _Few]
    hostnames: Unserved = None
    filters: Annotated[tuple[HTTPRouteFilter, ...], _Few] | None = None


class HTTPRoute(_Route):
    """Requests that any of the matches fits, and what is done with them."""

    matches: Annotated[tuple[HTTPRouteMatch, ...], _Few] | None = None
    """None: every request."""


class GRPCRoute(_Route):
    """The same for gRPC."""

    matches: Annotated[tuple[GRPCRouteMatch, ...], _Few] | None = None


class IstioIngressRouteConfig(_Wire):
    """All that an application asks for on one relation."""

    model: kubeflow.DnsLabel
    """The namespace of the backends."""
    http_routes: Annotated[tuple[HTTPRoute, ...], pydantic.Field(max_length=MOST_ROUTES)] = ()
    grpc_routes: Annotated[tuple[GRPCRoute, ...], pydantic.Field(max_length=MOST_ROUTES)] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Received(kubeflow.Received[IstioIngressRouteConfig]):
    """What one related application said, and at which of the two endpoints."""

    endpoint: str

    @property
    def reference(self) -> str:
        """How people know the relation: `istio-ingress-route:3 kfp-ui`."""
        return f"{self.endpoint}:{self.relation} {self.application}"

    @property
    def is_asked(self) -> bool:
        """Whether authentication comes before the routes."""
        return self.endpoint != kubeflow.OPEN_INGRESS_ROUTE


def read(text: str) -> tuple[IstioIngressRouteConfig | None, str]:
    """Read what stands under `config` in an application's data bag.

    Returns:
        The configuration, or what is wrong; neither where the other side has not written yet.
    """
    if not text:
        return None, ""
    try:
        return IstioIngressRouteConfig.model_validate(bounded.read_json(text)), ""
    except pydantic.ValidationError as error:
        return None, texts.problems(error)
    except bounded.DocumentError as error:
        return None, texts.plain(f"sends a document that {error}", texts.LONGEST_PROBLEM)


def received(related: endpoints.Relations) -> list[Received]:
    """List what every application said that is related by this interface, the oldest first."""
    found: list[Received] = []
    for endpoint in kubeflow.INGRESS_ROUTES:
        for bag in related.bags(endpoint):
            config, problem = read(bag.content.get(CONFIG, ""))
            found.append(
                Received(
                    endpoint=endpoint,
                    relation=bag.relation,
                    application=bag.application,
                    message=config,
                    problem=problem,
                )
            )
    return sorted(found, key=lambda one: one.relation)


def answer(related: endpoints.Relations, *, external_host: str, tls_enabled: bool) -> None:
    """Tell every application how the model is reached, whether or not it asked for a route yet.

    Args:
        related: The relations.
        external_host: A name or an address; empty while there is none, which leaves what was told.
        tls_enabled: Whether HTTPS is served. The interface has it as the word that Python writes.
    """
    told = {EXTERNAL_HOST: external_host} if external_host else {}
    for endpoint in kubeflow.INGRESS_ROUTES:
        related.write(endpoint, {**told, TLS_ENABLED: str(tls_enabled)})

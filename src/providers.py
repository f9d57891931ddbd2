"""Which extension provider of the mesh may ask about the model's requests in our place."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable
from typing import Annotated, Literal

import pydantic
import pydantic.alias_generators

import authentication
import cluster
import component
import manifests

logger = logging.getLogger(__name__)

POLICY = cluster.kind("security.istio.io/v1", "AuthorizationPolicy")


def _lower(values: frozenset[str]) -> frozenset[str]:
    return frozenset(value.lower() for value in values)


Headers = Annotated[frozenset[str], pydantic.AfterValidator(_lower)]


class _HttpProvider(pydantic.BaseModel):
    """An `envoyExtAuthzHttp` of Istio's MeshConfig that asks as our own filter does.

    A field that is not here changes what is asked, or what a failure means: `statusOnError`,
    `pathPrefix`, `includeRequestBodyInCheck` and others.
    """

    model_config = pydantic.ConfigDict(
        frozen=True, extra="forbid", alias_generator=pydantic.alias_generators.to_camel
    )

    service: str
    """`HOST`, or `NAMESPACE/HOST`."""
    port: int
    timeout: str = ""
    fail_open: Literal[False] = False
    include_request_headers_in_check: Headers = frozenset()
    headers_to_upstream_on_allow: Headers = frozenset()
    headers_to_downstream_on_deny: Headers = frozenset()
    """Empty: all."""
    headers_to_downstream_on_allow: Headers = frozenset()

    def difference(self, service: authentication.Service) -> str:
        """Say in what it is not as the application asked for; empty: in nothing."""
        if missing := set(service.request_headers) - self.include_request_headers_in_check:
            return f"includeRequestHeadersInCheck lacks {', '.join(sorted(missing))}"
        if self.headers_to_upstream_on_allow != frozenset(service.response_headers):
            wanted = ", ".join(sorted(service.response_headers)) or "empty"
            return f"headersToUpstreamOnAllow is not {wanted}"
        shown = self.headers_to_downstream_on_deny
        if shown and "set-cookie" not in shown:
            # Without its cookie no login ends.
            return "headersToDownstreamOnDeny lacks set-cookie"
        return ""


@dataclasses.dataclass(frozen=True)
class Choice:
    """A provider to name in a policy, or why there is none."""

    name: str = ""
    reason: str = ""
    """Empty where no provider is for this service at all."""


def choose(
    service: authentication.Service,
    configured: Iterable[cluster.Object],
    policies: Iterable[cluster.Object],
) -> Choice:
    """Choose the provider that asks the service in the way that its application wants.

    Args:
        service: Who is to be asked.
        configured: The mesh configuration's `extensionProviders`.
        policies: Others' AuthorizationPolicies that may concern the gateway workload.
    """
    choice = Choice()
    for entry in configured:
        http = cluster.at(entry, "envoyExtAuthzHttp")
        if not _is_for(service, http):
            continue
        name = str(entry.get("name", ""))
        if problem := _problem(name, service, http, policies):
            choice = Choice(reason=f"extension provider {name} is not used: {problem}")
        else:
            return Choice(name)
    return choice


def find(scope: component.Scope, service: authentication.Service, namespace: str) -> str:
    """Look which provider may be named now; empty: none.

    Args:
        scope: The mesh, and a way to its policies.
        service: Who is to be asked.
        namespace: Of the gateway workload.
    """
    mesh = scope.mesh
    if mesh is None or not mesh.extension_providers:
        return ""
    policies = [
        policy
        for place in sorted({namespace, mesh.root_namespace})
        for policy in scope.cluster.list(POLICY, namespace=place)
    ]
    others = obstacles(policies, scope.manifests.owner)
    choice = choose(service, mesh.extension_providers, others)
    if choice.reason:
        logger.info("%s.", choice.reason)
    return choice.name


def obstacles(policies: Iterable[cluster.Object], owner: str) -> list[cluster.Object]:
    """Take those policies before which we step back: all, but younger ones of other integrators.

    They step back themselves. If each did before the other, both would come again, for ever.
    """
    found = list(policies)
    ours = [_age(policy) for policy in found if _owner(policy) == owner]
    return [
        policy
        for policy in found
        if _owner(policy) != owner and not (_owner(policy) and ours and _age(policy) > min(ours))
    ]


def _owner(policy: cluster.Object) -> str:
    return str(cluster.at(policy, "metadata", "labels").get(manifests.OWNER, ""))


def _age(policy: cluster.Object) -> tuple[str, str]:
    return policy["metadata"].get("creationTimestamp", ""), policy["metadata"]["name"]


def _is_for(service: authentication.Service, http: cluster.Object) -> bool:
    namespace, _, host = str(http.get("service", "")).rpartition("/")
    here = service.host.split(".")[1]
    is_port = str(http.get("port", "")) == str(service.port)
    return is_port and host.lower() == service.host and namespace in ("", here)


def _problem(
    name: str,
    service: authentication.Service,
    http: cluster.Object,
    policies: Iterable[cluster.Object],
) -> str:
    try:
        difference = _HttpProvider.model_validate(http).difference(service)
    except pydantic.ValidationError as error:
        fields = sorted({".".join(map(str, problem["loc"])) for problem in error.errors()})
        return f"we have no such {', '.join(fields)}"
    if difference:
        return difference
    for policy in policies:
        spec = cluster.at(policy, "spec")
        other = cluster.at(spec, "provider").get("name")
        if spec.get("action") == "CUSTOM" and other != name:
            # Two on one workload, and istiod refuses what either guards, unless it has
            # PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS (istio 57933).
            return f"{cluster.reference(policy)} names {other}"
    return ""

"""Evaluation of AuthorizationPolicies for a caller and a request; pure.

istiod translates the rules to filters of Envoy (istio pilot/pkg/security/authz). For ztunnel it
keeps only the parts about connections (pilot/pkg/serviceregistry/ambient, authorization.go). Only
the caller's principal and the port are known. An answer that depends on another attribute, such as
a path or a token, is `Truth.MAYBE`.
"""

from __future__ import annotations

import dataclasses
import enum
import fnmatch
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from integrator_contract import booleans, names
from istio_integrator.kube import cluster

OWN_TRUST_DOMAIN = "cluster.local"
"""In a policy it means the mesh's trust domain and its aliases, whatever their names are."""
SOURCE = {
    "principals": "source.principal",
    "namespaces": "source.namespace",
    "serviceAccounts": "source.serviceAccount",
    "trustDomains": "source.trustDomain",
    "ipBlocks": "source.ip",
    "remoteIpBlocks": "remote.ip",
    "requestPrincipals": "request.auth.principal",
}
"""The fields of a source, with the attribute that a condition uses for each."""
OPERATION = {
    "ports": "destination.port",
    "hosts": "request.host",
    "methods": "request.method",
    "paths": "request.path",
}
"""The fields of an operation. Attributes with `request.` exist only in HTTP."""
SEEN_BY_ZTUNNEL = frozenset(
    {
        "source.principal",
        "source.namespace",
        "source.serviceAccount",
        "source.ip",
        "destination.ip",
        "destination.port",
    }
)


class Truth(enum.IntEnum):
    """A value of three-valued logic: `min` is its `and`, `max` is its `or`."""

    NO = 0
    MAYBE = 1
    YES = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class InboundRequest:
    """A request to a pod."""

    port: int | None = None
    """Of the pod; None: not known."""
    seen_by: Literal["http", "tcp", "ztunnel"] = "http"
    """What enforces the policies: Envoy on HTTP, Envoy on other TCP traffic, or ztunnel."""

    def has_attribute(self, attribute: str) -> bool:
        """Tell whether the proxy can evaluate a condition on an attribute."""
        if self.seen_by == "ztunnel":
            return attribute in SEEN_BY_ZTUNNEL
        return self.seen_by == "http" or not attribute.startswith("request.")


@dataclasses.dataclass(frozen=True)
class AttributeCondition:
    """The values of one attribute that a rule includes or excludes."""

    attribute: str
    values: tuple[str, ...]
    excludes: bool = False

    def holds(self, caller: str, request: InboundRequest) -> Truth:
        """Tell whether a caller and a request meet the condition."""
        found = _combine_any(
            _matches_value(self.attribute, each, caller, request) for each in self.values
        )
        return Truth(Truth.YES - found) if self.excludes else found


Conditions = tuple[AttributeCondition, ...]
"""Joined by AND."""


@dataclasses.dataclass(frozen=True)
class AuthorizationRule:
    """A rule of an AuthorizationPolicy.

    Without sources it matches any caller, and without operations any request.
    """

    sources: tuple[Conditions, ...] = ()
    operations: tuple[Conditions, ...] = ()
    conditions: Conditions = ()

    @property
    def principals(self) -> list[str]:
        """The principals that its sources name."""
        return [
            value
            for source in self.sources
            for each in source
            if each.attribute == "source.principal" and not each.excludes
            for value in each.values
        ]

    def matches(self, caller: str, request: InboundRequest, *, strictly: bool) -> Truth:
        """Tell whether the rule matches a request.

        If the proxy can't evaluate a condition, a rule that is read `strictly` does not match, as
        in an ALLOW policy. Otherwise that condition is left out, as in a DENY policy.
        """
        parts = [each for each in (self.operations, self.sources, (self.conditions,)) if each]
        attributes = {each.attribute for part in parts for one in part for each in one}
        if strictly and not all(map(request.has_attribute, attributes)):
            return Truth.NO

        def hold(conditions: Conditions) -> Truth:
            return _combine_all(
                each.holds(caller, request)
                for each in conditions
                if request.has_attribute(each.attribute)
            )

        return _combine_all(_combine_any(map(hold, part)) for part in parts)


@dataclasses.dataclass(frozen=True)
class Attachment:
    """The workloads of a policy, selected by labels or by their Gateway.

    AuthorizationPolicy, RequestAuthentication and WasmPlugin share these rules (istio
    pilot/pkg/model, policyattachment.go).
    """

    namespace: str
    selector: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """Labels of the workloads; empty: all workloads of the namespace, or of the mesh."""
    targets: tuple[tuple[str, str], ...] = ()
    """Kind and name of each target. A sidecar ignores a policy with targets."""

    @staticmethod
    def from_object(obj: cluster.Object) -> Attachment:
        """Read the selector and the targets of a policy."""
        spec = cluster.at(obj, "spec")
        single = cluster.at(spec, "targetRef")
        references = cluster.parts(spec, "targetRefs") or ([single] if single else [])
        return Attachment(
            namespace=obj["metadata"].get("namespace", ""),
            selector=cluster.at(spec, "selector", "matchLabels"),
            targets=tuple((str(each.get("kind")), str(each.get("name"))) for each in references),
        )

    def selects(self, labels: Mapping[str, Any], namespace: str, root_namespace: str) -> bool:
        """Tell whether the policy applies to the sidecar or gateway in a pod with these labels."""
        if self.targets:
            gateway = str(labels.get(names.GATEWAY_NAME))
            return self.namespace == namespace and ("Gateway", gateway) in self.targets
        here = self.namespace in (namespace, root_namespace)
        return here and self.selector.items() <= labels.items()


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuthorizationPolicy(Attachment):
    """An AuthorizationPolicy."""

    name: str
    action: str = "ALLOW"
    rules: tuple[AuthorizationRule, ...] = ()
    labels: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    @property
    def reference(self) -> str:
        """The name in messages."""
        return f"{cluster.AUTHORIZATION_POLICY.name} {self.namespace}/{self.name}"

    @property
    def denies_all(self) -> bool:
        """Whether it denies every request."""
        if self.action == "ALLOW":
            return not self.rules
        return self.action == "DENY" and AuthorizationRule() in self.rules

    def matches(self, caller: str, request: InboundRequest) -> Truth:
        """Tell whether one of its rules matches a request."""
        strictly = self.action == "ALLOW"
        return _combine_any(
            each.matches(caller, request, strictly=strictly) for each in self.rules
        )


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The decision about a request."""

    answer: Truth
    policy: AuthorizationPolicy | None = None
    """The policy that denies the request, where the answer is NO."""


def make_principal(namespace: str, account: str, trust_domain: str = OWN_TRUST_DOMAIN) -> str:
    """Return the principal of a ServiceAccount, as policies and certificates have it."""
    return f"{trust_domain}/ns/{namespace}/sa/{account}"


def read_all(
    objects: Iterable[cluster.Object], trust_domains: Sequence[str] = (OWN_TRUST_DOMAIN,)
) -> list[AuthorizationPolicy]:
    """Read AuthorizationPolicies, except dry-run policies and those that can't be read."""
    return cluster.read_each(objects, lambda obj: _read_policy(obj, trust_domains))


def decide(
    policies: Collection[AuthorizationPolicy], caller: str, request: InboundRequest
) -> Verdict:
    """Decide about a request by all policies that select its pod.

    The caller is a principal, or empty for one without a certificate of the mesh. A CUSTOM policy
    calls a service whose answer is not known here. AUDIT decides nothing.
    """
    most = Truth.YES
    for policy in policies:
        if policy.action in ("CUSTOM", "DENY") and (found := policy.matches(caller, request)):
            if policy.action == "DENY" and found is Truth.YES:
                return Verdict(Truth.NO, policy)
            most = Truth.MAYBE
    allowing = [each for each in policies if each.action == "ALLOW"]
    if allowing:
        most = min(most, _combine_any(each.matches(caller, request) for each in allowing))
    return Verdict(most, None if most else allowing[0])


def _read_policy(
    obj: cluster.Object, trust_domains: Sequence[str]
) -> Iterator[AuthorizationPolicy]:
    metadata, spec, attachment = (
        obj["metadata"],
        cluster.at(obj, "spec"),
        Attachment.from_object(obj),
    )
    dry_run = cluster.at(metadata, "annotations").get(names.DRY_RUN)
    if booleans.parse(str(dry_run), default=False):
        return

    def conditions(
        part: cluster.Object, attributes: Mapping[str, str]
    ) -> Iterator[AttributeCondition]:
        for field in part:
            included = _strip_negation(field)
            # An unknown field counts as an attribute that may match.
            attribute = attributes.get(included, included)
            values = [
                one
                for each in cluster.items(part, field)
                for one in _expand_value(attribute, str(each), attachment.namespace, trust_domains)
            ]
            if values:
                yield AttributeCondition(attribute, tuple(values), excludes=field != included)

    def parts(
        one: cluster.Object, key: str, name: str, attributes: Mapping[str, str]
    ) -> tuple[Conditions, ...]:
        found = (cluster.at(each, name) for each in cluster.parts(one, key))
        return tuple(tuple(conditions(each, attributes)) for each in found)

    rules = [
        AuthorizationRule(
            parts(one, "from", "source", SOURCE),
            parts(one, "to", "operation", OPERATION),
            tuple(
                each
                for part in cluster.parts(one, "when")
                for each in conditions(part, {"values": str(part.get("key"))})
            ),
        )
        for one in cluster.parts(spec, "rules")
    ]
    yield AuthorizationPolicy(
        **vars(attachment),
        name=metadata["name"],
        action=str(spec.get("action") or "ALLOW"),
        rules=tuple(rules),
        labels=cluster.at(metadata, "labels"),
    )


def _expand_value(
    attribute: str, value: str, namespace: str, trust_domains: Sequence[str]
) -> Sequence[str]:
    """Expand a value of a policy in a namespace, as istiod does."""
    if attribute == "source.principal":
        return _expand_aliases(value, trust_domains)
    if attribute == "source.trustDomain" and value in trust_domains:
        return trust_domains
    if attribute == "source.serviceAccount" and "/" not in value:
        return (f"{namespace}/{value}",)
    return (value,)


def name_excluding_field(field: str) -> str:
    """Return the name of the excluding field for a field of a source or operation."""
    return f"not{field[:1].upper()}{field[1:]}"


def _strip_negation(field: str) -> str:
    name = field.removeprefix("not")
    return field if name == field else f"{name[:1].lower()}{name[1:]}"


def _expand_aliases(named: str, trust_domains: Sequence[str]) -> Sequence[str]:
    """Expand a principal for each trust domain of the mesh (pilot/pkg/security/trustdomain)."""
    domain, *rest = named.split("/")
    is_own = domain == OWN_TRUST_DOMAIN or any(
        _matches_pattern(domain, each) or _matches_pattern(each, domain) for each in trust_domains
    )
    if len(rest) != 4 or domain == "*" or not is_own:
        return (named,)
    return tuple(
        dict.fromkeys(
            named
            if domain.startswith("*") and _matches_pattern(domain, each)
            else "/".join((each, *rest))
            for each in trust_domains
        )
    )


def _matches_value(attribute: str, value: str, caller: str, request: InboundRequest) -> Truth:
    """Tell whether a value of an attribute matches a caller or a request."""
    if has_name := _IDENTITIES.get(attribute):
        return _to_truth(bool(caller) and has_name(value, caller))
    if attribute in OPERATION.values() and value == "*":
        return Truth.YES
    if attribute == "destination.port" and request.port is not None:
        return _to_truth(_matches_pattern(value, str(request.port)))
    return Truth.MAYBE


def _to_truth(holds: bool) -> Truth:
    return Truth.YES if holds else Truth.NO


def _matches_pattern(pattern: str, text: str) -> bool:
    """Match a text exactly, by a prefix, by a suffix, or any text."""
    if pattern.startswith("*"):
        return text.endswith(pattern[1:])
    return text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern


def _is_like(pattern: str, text: str) -> bool:
    """Match a text with `*` as a wildcard anywhere; the other wildcards of fnmatch are escaped."""
    return fnmatch.fnmatchcase(text, re.sub(r"[?[]", r"[\g<0>]", pattern))


def _combine_any(answers: Iterable[Truth]) -> Truth:
    return max(answers, default=Truth.NO)


def _combine_all(answers: Iterable[Truth]) -> Truth:
    return min(answers, default=Truth.YES)


_IDENTITIES: Mapping[str, Callable[[str, str], bool]] = {
    "source.principal": _matches_pattern,
    "source.namespace": lambda value, who: _is_like(f"*/ns/{value}/*", f"/{who}"),
    "source.serviceAccount": lambda value, who: who.endswith(
        "/ns/{}/sa/{}".format(*value.split("/", 1))
    ),
    "source.trustDomain": lambda value, who: _is_like(value, who.partition("/")[0]),
}
"""How to match a value with a caller's principal, by attribute."""

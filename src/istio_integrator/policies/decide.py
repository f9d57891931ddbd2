"""The AuthorizationPolicy of each workload of the model; pure.

Applications name Services, but a sidecar does not know Services. Therefore the policies have the
labels of the pods and the ports on which they listen. A sidecar ignores a policy with targets
(istio pilot/pkg/model, policyattachment.go), so the rules of such policies, which charms write
beside their relations, are copied to policies with selectors.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from integrator_contract import names
from istio_integrator import texts
from istio_integrator.istio import authorization_policy
from istio_integrator.istio.authorization_policy import SEEN_BY_ZTUNNEL, Attachment, make_principal
from istio_integrator.kube import cluster, fences
from istio_integrator.messages import Message, Template
from istio_integrator.relations import kubeflow, service_mesh
from istio_integrator.situation.model import Call, Labels, Model, Pod, Probe, Service
from istio_integrator.situation.situation import Exposure

Mode = Literal["off", "related", "closed"]
Rule = dict[str, Any]
"""A rule in the API format of an AuthorizationPolicy."""

SHARED = ("metadata-grpc-service", "mlmd")
"""Services that every user's pipelines call, and whose charms declare no callers by relations.

They do not distinguish users. Their callers include pods without a sidecar. They also include the
charm envoy, whose sidecar does not know the forwarded Host and so sends no certificate.
"""
MOST_WORKLOADS = 16
"""Workloads that one application may select by labels. Each gets a policy, which includes the
rules of all wider selectors. Kubeflow's charms select one workload each."""
_MOST_RULES = 64
"""Rules that are copied from one policy; those of Kubeflow's charms have one or two."""
_TOO_MANY = f"speaks of more than {MOST_WORKLOADS} workloads by labels: the rest is refused"
_UNKNOWN = "waiting for the name of a caller of another model: relate it to provide-cmr-mesh, too"
_NOT_ITS_OWN = "has a policy for what is not its own"
_PATTERNS = frozenset("*{}")
"""Characters by which a path in a policy also matches other paths."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyInput:
    """The callers that relations, options and the cluster declare."""

    mode: Mode
    model: Model
    consumers: Sequence[service_mesh.ApplicationPolicies] = ()
    exposure: Exposure
    calls: Collection[Call] = ()
    """Calls by API servers, which have no certificate of the mesh."""
    others: Sequence[cluster.Object] = ()
    """AuthorizationPolicies of other owners in the model."""
    is_ambient: bool = False
    """Whether ztunnel enforces the policies, and waypoints may forward calls."""
    standing: Sequence[cluster.Object] = ()
    """This charm's AuthorizationPolicies, as they are now."""

    @property
    def opened(self) -> list[Call]:
        """The calls that need no certificate of the mesh."""
        shared = filter(None, map(self.model.find_service, SHARED))
        return [
            *self.calls,
            *(Call("pipelines", each.name, port.port) for each in shared for port in each.ports),
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkloadPolicy:
    """The AuthorizationPolicy of one workload."""

    selector: Labels
    rules: tuple[Rule, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuthorizationPlan:
    """The policies to write, and their messages."""

    policies: tuple[WorkloadPolicy, ...] = ()
    is_closed: bool = False
    """Whether a further policy denies every call to the model's other workloads."""
    messages: tuple[Message, ...] = ()
    """The requests of relations that are rejected, or that wait for an object."""
    unenforced: tuple[str, ...] = ()
    """Workloads with rules that the model's data plane cannot enforce completely."""


def decide(asked: PolicyInput) -> AuthorizationPlan:
    """Decide which callers each workload admits."""
    if asked.mode == "off":
        return AuthorizationPlan()
    book = _PolicyBuilder(asked)
    book.add_requested_rules()
    book.keep_standing_rules()
    book.restrict_backends()
    if asked.mode == "closed":
        book.restrict_open_workloads()
    book.admit_known_callers()
    policies: list[WorkloadPolicy] = []
    beyond: list[str] = []
    for key, rules in book.list_rules():
        kept, says_more = _keep_layer_4(rules) if asked.is_ambient else (rules, False)
        if kept or not rules:
            policies.append(WorkloadPolicy(selector=key, rules=kept))
        if says_more:
            beyond.append(", ".join(f"{label}={value}" for label, value in sorted(key)))
    return AuthorizationPlan(
        policies=tuple(policies),
        is_closed=asked.mode == "closed",
        messages=tuple({each.text: each for each in book.messages}.values()),
        unenforced=tuple(beyond),
    )


class _PolicyBuilder:
    """The workloads with a policy, each with its rules."""

    def __init__(self, asked: PolicyInput) -> None:
        self._asked = asked
        self._model = asked.model
        self._rules: dict[Labels, list[Rule]] = {}
        self.messages: list[Message] = []
        for one in asked.consumers:
            for each in one.problems:
                self._report_problem(Template.AUTHORIZATION_INVALID, one, each)

    def list_rules(self) -> Iterator[tuple[Labels, tuple[Rule, ...]]]:
        """List the rules of each selector, the more exact selector first.

        A selector also gets the rules of every wider one. So no pod misses a part of its rules
        while the policies are being written.
        """
        for key in sorted(self._rules, key=lambda key: (-len(key), sorted(key))):
            wider = (rules for other, rules in self._rules.items() if other <= key)
            yield key, _merge_rules(rule for rules in wider for rule in rules)

    def add_requested_rules(self) -> None:
        """Add the rules that applications request; a rejected rule changes nothing."""
        for one in self._asked.consumers:
            units: set[Labels] = set()
            for policy in one.policies:
                who = make_principal(policy.source_namespace, policy.source_app_name)
                if kubeflow.is_of_another_model(policy.source_app_name):
                    self._report_problem(Template.AUTHORIZATION_WAITS, one, _UNKNOWN)
                if policy.target_type == "unit":
                    self._add_unit_rule(one, policy, who, units)
                else:
                    self._add_application_rule(one, policy, who)

    def keep_standing_rules(self) -> None:
        """Keep the existing rules of an application whose requests are all rejected."""
        consumers = self._asked.consumers
        refused = {one.application for one in consumers if one.problems and not one.policies}
        for each in self._asked.standing:
            selector = cluster.at(each, "spec", "selector", "matchLabels")
            if selector.get(names.NAME) in refused:
                rules = cluster.parts(cluster.at(each, "spec"), "rules")
                self._restrict_workload(frozenset(selector.items()), *rules)

    def restrict_backends(self) -> None:
        """Restrict the backends of routes to the gateway and the callers of other rules."""
        for found, ports in self._find_backends(self._asked.exposure.routed):
            self._restrict_workload(found.selector, *self._make_gateway_rules(ports))

    def restrict_open_workloads(self) -> None:
        """Add policies for workloads that always have callers from outside of the mesh."""
        for key in self._asked.exposure.gateway_pods:
            self._restrict_workload(key, {})
        for pod in self._model.pods_to_come:
            if pod.is_router or names.is_modeloperator(pod.metadata.labels):
                self._restrict_workload(pod.workload_labels, {})
            elif _list_probes(pod) and not self._find_restricted(pod.workload_labels):
                self._restrict_workload(pod.workload_labels)
        for call in self._asked.opened:
            found = self._model.find_service(call.service)
            if found and not self._find_restricted(found.selector):
                self._restrict_workload(found.selector)

    def admit_known_callers(self) -> None:
        """Admit callers that need no relation to the workloads with a policy."""
        called = {(each.service, each.port) for each in self._asked.opened}
        for found, ports in self._find_backends(called):
            if ports:
                self._add_rules(found.selector, _make_rule([_make_operation(ports)]))
        for found, ports in self._find_backends(self._asked.exposure.guards):
            self._add_rules(found.selector, *self._make_gateway_rules(ports))
        for found in self._model.services if self._asked.is_ambient else ():
            if found.waypoint:
                # The waypoint replaces each caller; its own policies decide about callers.
                self._add_rules(
                    found.selector, _make_rule([], principals=[make_principal(*found.waypoint)])
                )
        for pod in self._model.pods_to_come:
            for probe in _list_probes(pod):
                asking = {"methods": [probe.method], "paths": [probe.path]}
                self._add_rules(
                    pod.workload_labels, _make_rule([{**_make_operation([probe.port]), **asking}])
                )
        for found, rules in self._copy_waypoint_rules():
            self._add_rules(found.selector, *rules)

    def _report_problem(
        self, said: Template, one: service_mesh.ApplicationPolicies, problem: str
    ) -> None:
        text = texts.escape(f"{one.reference}: {problem}", texts.LONGEST_PROBLEM)
        self.messages.append(said(problem=text))

    def _restrict_workload(self, key: Labels, *rules: Rule) -> None:
        """Restrict the callers of a workload to its rules, and add rules.

        An empty selector would match every workload, so it is ignored.
        """
        if key:
            self._rules.setdefault(key, []).extend(rules)

    def _find_restricted(self, key: Labels) -> list[Labels]:
        """List the selectors with a policy that have a pod in common with a selector."""
        return list(self._model.find_overlapping(key, self._rules))

    def _add_rules(self, key: Labels, *rules: Rule) -> None:
        """Add rules to the policies of a selector, if it has any."""
        for each in self._find_restricted(key):
            self._rules[each] += rules

    def _make_gateway_rules(self, ports: Sequence[int]) -> list[Rule]:
        who = list(self._asked.exposure.gateways)
        return [_make_rule([_make_operation(ports)], principals=who)] if who and ports else []

    def _add_unit_rule(
        self,
        one: service_mesh.ApplicationPolicies,
        policy: service_mesh.MeshPolicy,
        who: str,
        units: set[Labels],
    ) -> None:
        labels = policy.target_selector_labels or {}
        if policy.target_app_name:
            labels = {names.NAME: policy.target_app_name}
        if one.application not in (labels.get(names.NAME), labels.get(names.CREATED_BY)):
            self._report_problem(Template.AUTHORIZATION_INVALID, one, _NOT_ITS_OWN)
            return
        key = frozenset(labels.items())
        units.add(key)
        if len(units) > MOST_WORKLOADS:
            self._report_problem(Template.AUTHORIZATION_INVALID, one, _TOO_MANY)
            return
        # A policy without endpoints, or an endpoint without ports, allows every port.
        listed = [endpoint.ports or () for endpoint in policy.endpoints]
        ports = sorted(set[int]().union(*listed)) if all(listed) else []
        self._restrict_workload(
            key, _make_rule([_make_operation(ports)] if ports else [], principals=[who])
        )

    def _add_application_rule(
        self, one: service_mesh.ApplicationPolicies, policy: service_mesh.MeshPolicy, who: str
    ) -> None:
        name = policy.target_service or policy.target_app_name or ""
        found = self._model.find_service(name)
        if policy.target_app_name not in (None, one.application):
            problem = f"{_NOT_ITS_OWN}: {policy.target_app_name}"
            self._report_problem(Template.AUTHORIZATION_INVALID, one, problem)
        elif found is None:
            self._report_problem(Template.AUTHORIZATION_WAITS, one, f"waiting for Service {name}")
        elif not self._model.is_service_of(found, one.application):
            self._report_problem(
                Template.AUTHORIZATION_INVALID, one, f"{_NOT_ITS_OWN}: Service {name}"
            )
        else:
            operations: list[Rule] = []
            for endpoint in policy.endpoints or (service_mesh.AllowedRequests(),):
                ports, unknown = self._model.find_pod_ports(found, endpoint.ports or ())
                if unknown:
                    self._report_problem(Template.AUTHORIZATION_WAITS, one, unknown)
                if ports:
                    named = ("hosts", "methods", "paths")
                    more = {key: list(value) for key in named if (value := getattr(endpoint, key))}
                    operations.append({**_make_operation(ports), **more})
            rules = [_make_rule(operations, principals=[who])] if operations else []
            self._restrict_workload(found.selector, *rules)

    def _find_backends(
        self, services: Collection[tuple[str, int]]
    ) -> Iterator[tuple[Service, list[int]]]:
        for name, port in sorted(services):
            if found := self._model.find_service(name):
                yield found, self._model.find_pod_ports(found, [port])[0]

    def _copy_waypoint_rules(self) -> Iterator[tuple[Service, list[Rule]]]:
        """Copy the rules of policies whose target is a Service, with the ports of its pods."""
        for policy in self._asked.others:
            with fences.isolate(cluster.reference(policy)):
                spec = cluster.at(policy, "spec")
                if spec.get("action", "ALLOW") != "ALLOW":
                    continue
                targets = Attachment.from_object(policy).targets
                named = [
                    self._model.find_service(name) for kind, name in targets if kind == "Service"
                ]
                for found in filter(None, named):
                    rules = cluster.parts(spec, "rules")[:_MOST_RULES]
                    yield (
                        found,
                        [each for rule in rules for each in self._rewrite_ports(rule, found)],
                    )

    def _rewrite_ports(self, rule: Rule, found: Service) -> Iterator[Rule]:
        """Rewrite a rule with the ports of pods; a rule without such a port is dropped."""
        known = {str(port.port) for port in found.ports}
        operations: list[Rule] = []
        for each in [cluster.at(each, "operation") for each in cluster.parts(rule, "to")] or [{}]:
            asked = set(map(str, cluster.items(each, "ports"))) or known
            asked = (asked & known).difference(map(str, cluster.items(each, "notPorts")))
            ports = self._model.find_pod_ports(found, sorted(map(int, asked)))[0] if asked else []
            if ports:
                more = {key: each[key] for key in each if key not in ("ports", "notPorts")}
                operations.append({**more, **_make_operation(ports)})
        if operations:
            yield {**copy.deepcopy(rule), **_make_rule(operations)}


def _make_rule(operations: Sequence[Rule], **source: list[str]) -> Rule:
    """Render a rule; without a source it matches any caller, without operations any request."""
    return {
        **({"from": [{"source": source}]} if source else {}),
        **({"to": [{"operation": each} for each in operations]} if operations else {}),
    }


def _make_operation(ports: Iterable[int]) -> Rule:
    """Render an operation with ports of pods."""
    return {"ports": [str(port) for port in ports]}


def _merge_rules(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Remove duplicate rules, and merge rules that differ only in their principals."""
    named: dict[str, set[str]] = {}
    others: dict[str, Rule] = {}
    for rule in rules:
        match rule:
            case {"from": [{"source": {"principals": [*who], **more}}], **rest} if not more:
                named.setdefault(json.dumps(rest, sort_keys=True), set()).update(map(str, who))
            case _:
                others[json.dumps(rule, sort_keys=True)] = rule
    if {} in others.values():
        return ({},)
    sources = ((rest, [{"source": {"principals": sorted(who)}}]) for rest, who in named.items())
    return (
        *({"from": source, **json.loads(rest)} for rest, source in sorted(sources)),
        *(rule for _, rule in sorted(others.items())),
    )


def _list_probes(pod: Pod) -> list[Probe]:
    """List the kubelet's probes of a pod with a proxy."""
    asked = pod.probes if pod.is_in_mesh else ()
    return [probe for probe in asked if not _PATTERNS.intersection(probe.path)]


def _list_ztunnel_fields(attributes: Mapping[str, str]) -> set[str]:
    """List the fields of a source or operation that ztunnel evaluates."""
    found = {field for field, attribute in attributes.items() if attribute in SEEN_BY_ZTUNNEL}
    return found.union(map(authorization_policy.name_excluding_field, found))


_PORTS, _CALLERS = (
    _list_ztunnel_fields(authorization_policy.OPERATION),
    _list_ztunnel_fields(authorization_policy.SOURCE),
)
_CONDITIONS = SEEN_BY_ZTUNNEL - {"source.serviceAccount"}


def _keep_layer_4(rules: Iterable[Rule]) -> tuple[tuple[Rule, ...], bool]:
    """Keep the parts of rules that ztunnel can enforce, and tell whether any part was removed.

    With ztunnel a rule about requests never matches (istio pilot/pkg/serviceregistry/ambient,
    authorization.go); a waypoint would enforce it.
    """
    # Probes bypass ztunnel.
    asked = [each for each in rules if not _is_probe_rule(each)]
    kept = [_keep_layer_4_part(each) for each in asked]
    unique = {json.dumps(each, sort_keys=True): each for each in kept}
    return tuple(unique.values()), kept != asked


def _is_probe_rule(rule: Rule) -> bool:
    operations = [cluster.at(each, "operation") for each in cluster.parts(rule, "to")]
    return "from" not in rule and bool(operations) and all("paths" in one for one in operations)


def _keep_layer_4_part(rule: Rule) -> Rule:
    found: Rule = {}
    for key, name, fields in (("from", "source", _CALLERS), ("to", "operation", _PORTS)):
        every = [cluster.at(each, name) for each in cluster.parts(rule, key)]
        kept = [{field: one[field] for field in one if field in fields} for one in every]
        # An empty source or operation matches everything, and so does a missing list.
        if kept and all(kept):
            found[key] = [{name: each} for each in kept]
    conditions = [each for each in cluster.parts(rule, "when") if each.get("key") in _CONDITIONS]
    return {**found, "when": conditions} if conditions else found

"""What of a rule a node's ztunnel holds, which knows callers and ports and no requests; pure.

A rule that speaks of requests it takes for one that nobody meets (istio
pilot/pkg/serviceregistry/ambient, authorization.go). So what it can hold of such a rule is
written, and the rest is named: a waypoint would hold it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from istio_integrator.istio import authorization_policy
from istio_integrator.kube import cluster

Rule = dict[str, Any]
"""A rule as an AuthorizationPolicy has it."""


def _held(attributes: Mapping[str, str]) -> frozenset[str]:
    """List the fields of a source or operation that ztunnel looks at."""
    seen = authorization_policy.SEEN_BY_ZTUNNEL
    found = [field for field, attribute in attributes.items() if attribute in seen]
    return frozenset((*found, *map(authorization_policy.excluding, found)))


_PORTS = _held(authorization_policy.OPERATION)
_CALLERS = _held(authorization_policy.SOURCE)
_CONDITIONS = authorization_policy.SEEN_BY_ZTUNNEL - {"source.serviceAccount"}


def reduced(rules: Iterable[Rule]) -> tuple[tuple[Rule, ...], bool]:
    """Keep of rules what layer 4 carries, and tell whether they said more than that."""
    # Probes come past ztunnel.
    asked = [each for each in rules if not _is_the_kubelets(each)]
    kept = [_kept(each) for each in asked]
    unique = {json.dumps(each, sort_keys=True): each for each in kept}
    return tuple(unique.values()), kept != asked


def _is_the_kubelets(rule: Rule) -> bool:
    operations = _parts(rule, "to", "operation")
    return "from" not in rule and bool(operations) and all("paths" in one for one in operations)


def _kept(rule: Rule) -> Rule:
    sources = [_only(one, _CALLERS) for one in _parts(rule, "from", "source")]
    operations = [_only(one, _PORTS) for one in _parts(rule, "to", "operation")]
    conditions = [each for each in cluster.parts(rule, "when") if each.get("key") in _CONDITIONS]
    # One empty part takes everybody, or everything, and so does no part at all.
    found: Rule = {}
    if sources and all(sources):
        found["from"] = [{"source": each} for each in sources]
    if operations and all(operations):
        found["to"] = [{"operation": each} for each in operations]
    if conditions:
        found["when"] = conditions
    return found


def _parts(rule: Rule, key: str, part: str) -> list[Rule]:
    return [cluster.at(each, part) for each in cluster.parts(rule, key)]


def _only(part: Rule, keys: Collection[str]) -> Rule:
    return {key: value for key, value in part.items() if key in keys}

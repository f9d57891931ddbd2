"""What of policies a node's ztunnel holds, which knows callers and ports and no requests; pure.

A rule that speaks of requests it takes for one that nobody meets (istio
pilot/pkg/serviceregistry/ambient, authorization.go). So what it can hold of such a rule is
written, and the rest is named: a waypoint would hold it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterator, Mapping

from istio_integrator.istio import authorization_policy
from istio_integrator.kube import cluster
from istio_integrator.security import policies
from istio_integrator.security.policies_book import Rule


def _held(attributes: Mapping[str, str]) -> frozenset[str]:
    """List the fields of a source or operation that ztunnel looks at."""
    seen = authorization_policy.SEEN_BY_ZTUNNEL
    found = [field for field, attribute in attributes.items() if attribute in seen]
    return frozenset((*found, *map(authorization_policy.excluding, found)))


_PORTS = _held(authorization_policy.OPERATION)
_CALLERS = _held(authorization_policy.SOURCE)
_CONDITIONS = authorization_policy.SEEN_BY_ZTUNNEL - {"source.serviceAccount"}


def reduced(decision: policies.Decision) -> tuple[policies.Decision, list[str]]:
    """Keep of policies what layer 4 carries.

    Returns:
        The policies, and the workloads of which something more was said.
    """
    kept: list[policies.Policy] = []
    more: list[str] = []
    for policy in decision.policies:
        rules = [rule for each in policy.rules if (rule := _kept(each)) is not None]
        unique = {json.dumps(rule, sort_keys=True): rule for rule in rules}
        if not policy.rules or unique:
            kept.append(dataclasses.replace(policy, rules=tuple(unique.values())))
        if any(_says_more(each) for each in policy.rules):
            more.append(", ".join(f"{key}={value}" for key, value in policy.selector))
    return dataclasses.replace(decision, policies=tuple(kept)), more


def _is_the_kubelets(rule: Rule) -> bool:
    """Tell whether it lets probes in, which come past ztunnel: it has everybody, and paths."""
    operations = list(_operations(rule))
    return "from" not in rule and bool(operations) and all("paths" in one for one in operations)


def _says_more(rule: Rule) -> bool:
    return not _is_the_kubelets(rule) and _kept(rule) != rule


def _kept(rule: Rule) -> Rule | None:
    """Return what layer 4 holds of a rule; None where that would be everybody for a few paths."""
    if _is_the_kubelets(rule):
        return None
    sources = [_only(one, _CALLERS) for one in _sources(rule)]
    operations = [_only(one, _PORTS) for one in _operations(rule)]
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


def _sources(rule: Rule) -> Iterator[Rule]:
    return (cluster.at(each, "source") for each in cluster.parts(rule, "from"))


def _operations(rule: Rule) -> Iterator[Rule]:
    return (cluster.at(each, "operation") for each in cluster.parts(rule, "to"))


def _only(part: Rule, keys: Collection[str]) -> Rule:
    return {key: value for key, value in part.items() if key in keys}

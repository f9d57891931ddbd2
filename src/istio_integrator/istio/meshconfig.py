"""What an installation of Istio says about itself, read from its own objects; pure."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from integrator_contract import bounded, pods
from istio_integrator.istio import authorization_policy, injectors
from istio_integrator.kube import cluster, fences

logger = logging.getLogger(__name__)

MESH = "istio"
"""The ConfigMap with the mesh configuration, which a revision has under its own name."""
INJECTOR = "istio-sidecar-injector"
"""The ConfigMap with the template of sidecars and the values that fill it."""
SHARED = "SHARED_MESH_CONFIG"
"""In istiod's environment: a ConfigMap whose mesh configuration it puts below its own one, as the
add-on of AKS has it (istio pilot/pkg/bootstrap/mesh.go)."""
_PORT = re.compile(r"[0-9]{1,5}")
_REGISTRY_ONLY = "REGISTRY_ONLY"


def environment(istiod: cluster.Object | None) -> dict[str, str]:
    """Read the environment variables in istiod's Deployment.

    A variable whose value comes from another object is empty.
    """
    spec = cluster.at(istiod, "spec", "template", "spec")
    return {
        str(entry.get("name")): str(entry.get("value") or "")
        for container in cluster.parts(spec, "containers")
        for entry in cluster.parts(container, "env")
    }


def settings(*config_maps: cluster.Object | None) -> dict[str, Any]:
    """Read the mesh configuration; what a later ConfigMap says comes before what an earlier does.

    It is empty where there is none that can be read.
    """
    found: dict[str, Any] = {}
    for config_map in config_maps:
        found = _over(_mapping(config_map, "mesh", bounded.read_yaml), found)
    return found


def _over(first: dict[str, Any], below: dict[str, Any]) -> dict[str, Any]:
    """Put one mesh configuration over another, as messages of protobuf are merged."""
    both = {
        key: _over(cluster.at(first, key), cluster.at(below, key))
        for key in first.keys() & below.keys()
        if isinstance(first[key], dict)
    }
    return {**below, **first, **both}


def _mapping(
    config_map: cluster.Object | None, key: str, read: Callable[..., Any]
) -> cluster.Object:
    """Read a mapping in a ConfigMap's data; empty where there is none that can be read."""
    text = str(cluster.at(config_map, "data").get(key) or "{}")
    try:
        value = read(text, longest=bounded.LONGEST_OBJECT)
    except bounded.DocumentError as error:
        reference = cluster.reference(config_map or {})
        logger.warning("%s is ignored: its %s %s.", reference, key, error)
        return {}
    return cluster.at({key: value}, key)


def trust_domains(settings: dict[str, Any]) -> tuple[str, ...]:
    """Read the trust domain of the mesh, and behind it its aliases."""
    own = str(settings.get("trustDomain") or authorization_policy.OWN_TRUST_DOMAIN)
    return (own, *map(str, cluster.items(settings, "trustDomainAliases")))


def port(value: Any, default: int) -> int:
    """Read a port; the default where it is none."""
    return value if pods.is_port(value) else default


def unserved(selectors: Iterable[cluster.Object], labels: Mapping[str, str]) -> str:
    """Tell by which label istiod would serve a namespace that its discoverySelectors leave out.

    Returns:
        What `kubectl label` takes; empty where istiod serves the namespace.
    """
    remedies = [_unmet(selector, labels) for selector in selectors]
    # Without any, istiod serves every namespace (istio pkg/kube/namespace/filter.go).
    return "" if "" in remedies or not remedies else remedies[0]


def _unmet(selector: cluster.Object, labels: Mapping[str, str]) -> str:
    """Return what has to be done with the labels to meet one LabelSelector."""
    return " ".join(
        f"{each.key}-" if each.is_negated else f"{each.key}={next(iter(each.values), 'true')}"
        for each in injectors.requirements(selector)
        if not each.matches(labels)
    )


def is_registry_only(
    settings: dict[str, Any], sidecars: Iterable[cluster.Object], *, model: str
) -> bool:
    """Tell whether proxies of the model, or some, let nothing out that Istio does not know.

    A Sidecar for pods comes before one for their namespace, this before one in the root
    namespace, and this before the mesh configuration.
    """
    default = _mode(settings)
    some: list[str] = []
    all_of: dict[bool, str] = {}
    for each in sidecars:
        with fences.around(cluster.reference(each)):
            spec = cluster.at(each, "spec")
            is_own = each["metadata"]["namespace"] == model
            if not cluster.at(spec, "workloadSelector", "labels"):
                all_of[is_own] = _mode(spec) or default
            elif is_own:
                some.append(_mode(spec) or default)
    return _REGISTRY_ONLY in (*some, all_of.get(True) or all_of.get(False) or default)


def _mode(settings: cluster.Object) -> str:
    return str(cluster.at(settings, "outboundTrafficPolicy").get("mode") or "")


def excluded_ports(config_map: cluster.Object | None) -> tuple[int, ...]:
    """Read `global.proxy.excludeOutboundPorts` of the injector's values."""
    values = _mapping(config_map, "values", bounded.read_json)
    return ports(cluster.at(values, "global", "proxy").get("excludeOutboundPorts"))


def ports(text: Any) -> tuple[int, ...]:
    """Read ports with commas between them; what is none is left out."""
    numbers = (int(part) for part in str(text or "").split(",") if _PORT.fullmatch(part.strip()))
    return tuple(filter(pods.is_port, numbers))

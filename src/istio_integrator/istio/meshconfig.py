"""What an installation of Istio says about itself, read from its own objects; pure."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Self

from integrator_contract import bounded, names, pods
from istio_integrator.istio import authorization_policy, injectors
from istio_integrator.kube import cluster, fences

logger = logging.getLogger(__name__)

MESH = "istio"
"""The ConfigMap with the mesh configuration, which a revision has under its own name."""
SHARED = "SHARED_MESH_CONFIG"
"""In istiod's environment: a ConfigMap whose mesh configuration it puts below its own one, as the
add-on of AKS has it (istio pilot/pkg/bootstrap/mesh.go)."""
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class IstiodSettings:
    """What istiod was told, as far as this cluster shows it."""

    has_settings: bool = True
    """Whether its mesh configuration can be read in this cluster; without, a dry-run pod shows
    some of it."""
    environment: Mapping[str, str] | None = None
    """Of istiod's Deployment; None where that is not known."""
    hold_by_default: bool = False
    """Whether the mesh's own configuration already holds applications."""
    status_port: int = names.DEFAULT_STATUS_PORT
    """Of the proxies, unless a pod says otherwise; 0 is switched off."""
    root_namespace: str = "istio-system"
    """Whose policies and Sidecars apply to every namespace; empty: not known."""
    trust_domains: tuple[str, ...] = (authorization_policy.OWN_TRUST_DOMAIN,)
    """The mesh's own, in the certificates of its pods, and then its aliases."""
    discovery_selectors: tuple[dict[str, Any], ...] = ()
    """LabelSelectors of the namespaces that istiod serves; none: it serves all."""
    registry_only: bool = False
    """Whether proxies let nothing out that Istio does not know."""

    @classmethod
    def read(
        cls,
        own: cluster.Object | None,
        shared: cluster.Object | None,
        *,
        environment: Mapping[str, str] | None = None,
        installed_in: str = "",
    ) -> Self:
        """Read the installation's ConfigMap, over a shared one that istiod puts below it.

        The root namespace is `installed_in` where the mesh configuration names none.
        """
        found = _over(_mapping(own), _mapping(shared))
        defaults, root = cluster.at(found, "defaultConfig"), found.get("rootNamespace")
        port = defaults.get("statusPort")
        trust_domain = str(found.get("trustDomain") or authorization_policy.OWN_TRUST_DOMAIN)
        return cls(
            has_settings=own is not None,
            environment=environment,
            hold_by_default=defaults.get("holdApplicationUntilProxyStarts") is True,
            status_port=port if pods.is_port(port) else names.DEFAULT_STATUS_PORT,
            root_namespace=root if isinstance(root, str) and root else installed_in,
            trust_domains=(trust_domain, *map(str, cluster.items(found, "trustDomainAliases"))),
            discovery_selectors=tuple(cluster.parts(found, "discoverySelectors")),
            registry_only=_mode(found) == _REGISTRY_ONLY,
        )


def _over(first: dict[str, Any], below: dict[str, Any]) -> dict[str, Any]:
    """Put one mesh configuration over another, as messages of protobuf are merged."""
    both = {
        key: _over(cluster.at(first, key), cluster.at(below, key))
        for key in first.keys() & below.keys()
        if isinstance(first[key], dict)
    }
    return {**below, **first, **both}


def _mapping(config_map: cluster.Object | None) -> cluster.Object:
    """Read the mesh configuration in a ConfigMap; empty where there is none that can be read."""
    text = str(cluster.at(config_map, "data").get("mesh") or "{}")
    try:
        value = bounded.read_yaml(text, longest=bounded.LONGEST_OBJECT)
    except bounded.DocumentError as error:
        reference = cluster.reference(config_map or {})
        logger.warning("%s is ignored: its mesh %s.", reference, error)
        return {}
    return cluster.at({"mesh": value}, "mesh")


def unserved(selectors: Iterable[cluster.Object], labels: Mapping[str, str]) -> str:
    """Return what `kubectl label` takes for istiod to serve a namespace; empty where it does."""
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


def is_registry_only(sidecars: Iterable[cluster.Object], *, model: str, default: bool) -> bool:
    """Tell whether proxies of the model, or some, let nothing out that Istio does not know.

    A Sidecar for pods comes before one for their namespace, this before one in the root
    namespace, and this before the mesh configuration.
    """
    of_pods: list[bool] = []
    of_namespace: dict[bool, bool] = {}
    for each in sidecars:
        with fences.around(cluster.reference(each)):
            spec = cluster.at(each, "spec")
            is_own = each["metadata"]["namespace"] == model
            mode = _mode(spec)
            is_closed = mode == _REGISTRY_ONLY if mode else default
            if not cluster.at(spec, "workloadSelector", "labels"):
                of_namespace[is_own] = is_closed
            elif is_own:
                of_pods.append(is_closed)
    return any(of_pods) or of_namespace.get(True, of_namespace.get(False, default))


def _mode(settings: cluster.Object) -> str:
    return str(cluster.at(settings, "outboundTrafficPolicy").get("mode") or "")

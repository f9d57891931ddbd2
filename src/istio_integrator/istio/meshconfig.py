"""The settings of an installation of Istio, read from its own objects."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from integrator_contract import bounded, names, pods
from istio_integrator.istio import authorization_policy, injectors
from istio_integrator.kube import cluster

logger = logging.getLogger(__name__)

_SHARED = "SHARED_MESH_CONFIG"
"""A variable of istiod that names a ConfigMap, whose mesh configuration istiod's own one
overrides, as in the add-on of AKS (istio pilot/pkg/bootstrap/mesh.go)."""
_REGISTRY_ONLY = "REGISTRY_ONLY"


@dataclasses.dataclass(frozen=True, kw_only=True)
class IstiodSettings:
    """The settings of istiod, as far as objects of this cluster show them."""

    has_settings: bool = True
    """Whether its mesh configuration can be read in this cluster; otherwise a dry-run pod shows
    some of it."""
    environment: Mapping[str, str] | None = None
    """Of istiod's Deployment; None: not known."""
    hold_by_default: bool = False
    """Whether the mesh configuration already holds applications."""
    status_port: int = names.DEFAULT_STATUS_PORT
    """Of proxies whose pods set no other one; 0: disabled."""
    root_namespace: str = "istio-system"
    """The namespace whose policies and Sidecars apply to every namespace; empty: not known."""
    trust_domains: tuple[str, ...] = (authorization_policy.OWN_TRUST_DOMAIN,)
    """The mesh's own trust domain, in its pods' certificates, and then its aliases."""
    discovery_selectors: tuple[dict[str, Any], ...] = ()
    """LabelSelectors of the namespaces that istiod serves; empty: all namespaces."""
    registry_only: bool = False
    """Whether some proxies of the model block calls to hosts that Istio does not know."""


def read(api: cluster.Cluster, injector: injectors.Injector, *, model: str) -> IstiodSettings:
    """Read istiod's Deployment, its mesh configuration, and the Sidecars that concern a model."""

    def get(kind: cluster.Kind, name: str, namespace: str) -> cluster.Object | None:
        return api.get_if_allowed(kind, name, namespace) if name and namespace else None

    # Istio's charts name the Deployment like its Service.
    istiod = get(cluster.DEPLOYMENT, injector.service, injector.namespace)
    containers = cluster.parts(cluster.at(istiod, "spec", "template", "spec"), "containers")
    environment = {
        str(each.get("name")): str(each.get("value") or "")
        for container in containers
        for each in cluster.parts(container, "env")
    }
    home, revision = injector.installed_in, injector.istiod_revision
    own = get(cluster.CONFIG_MAP, "istio" if revision == "default" else f"istio-{revision}", home)
    shared = get(cluster.CONFIG_MAP, environment.get(_SHARED, ""), home)
    found = _merge(_read_mesh_config(own), _read_mesh_config(shared))
    defaults, root = cluster.at(found, "defaultConfig"), found.get("rootNamespace")
    root = root if isinstance(root, str) and root else home
    port = defaults.get("statusPort")
    trust_domain = str(found.get("trustDomain") or authorization_policy.OWN_TRUST_DOMAIN)
    return IstiodSettings(
        has_settings=own is not None,
        environment=environment if istiod else None,
        hold_by_default=defaults.get("holdApplicationUntilProxyStarts") is True,
        status_port=port if pods.is_port(port) else names.DEFAULT_STATUS_PORT,
        root_namespace=root,
        trust_domains=(trust_domain, *map(str, cluster.items(found, "trustDomainAliases"))),
        discovery_selectors=tuple(cluster.parts(found, "discoverySelectors")),
        registry_only=_is_registry_only(
            (
                each
                for namespace in sorted({model, root} - {""})
                for each in api.list_if_allowed(cluster.SIDECAR, namespace)
            ),
            model=model,
            default=_read_outbound_mode(found) == _REGISTRY_ONLY,
        ),
    )


def _merge(first: dict[str, Any], below: dict[str, Any]) -> dict[str, Any]:
    """Merge two mesh configurations as protobuf merges messages; the first overrides."""
    both = {
        key: _merge(cluster.at(first, key), cluster.at(below, key))
        for key in first.keys() & below.keys()
        if isinstance(first[key], dict)
    }
    return {**below, **first, **both}


def _read_mesh_config(config_map: cluster.Object | None) -> cluster.Object:
    """Read the mesh configuration in a ConfigMap; empty if it is missing or can't be parsed."""
    text = str(cluster.at(config_map, "data").get("mesh") or "{}")
    try:
        value = bounded.read_yaml(text, longest=bounded.LONGEST_OBJECT)
    except bounded.DocumentError as error:
        reference = cluster.reference(config_map or {})
        logger.warning("%s is ignored: its mesh %s.", reference, error)
        return {}
    return cluster.at(value)


def find_lacking_labels(selectors: Iterable[cluster.Object], labels: Mapping[str, str]) -> str:
    """Return the `kubectl label` arguments for istiod to serve a namespace; empty if it does."""
    remedies = [
        " ".join(
            f"{each.key}-" if each.is_negated else f"{each.key}={next(iter(each.values), 'true')}"
            for each in injectors.read_requirements(selector)
            if not each.matches(labels)
        )
        for selector in selectors
    ]
    # Without a selector, istiod serves every namespace (istio pkg/kube/namespace/filter.go).
    return "" if "" in remedies or not remedies else remedies[0]


def read_lacking_labels(
    api: cluster.Cluster, selectors: Sequence[cluster.Object], namespace: str
) -> str:
    """Return the `kubectl label` arguments for istiod to serve an existing namespace."""
    found = api.get(cluster.NAMESPACE, namespace) if selectors and namespace else None
    return find_lacking_labels(selectors, cluster.at(found, "metadata", "labels")) if found else ""


def _is_registry_only(sidecars: Iterable[cluster.Object], *, model: str, default: bool) -> bool:
    """Tell whether some pods of a model have the outbound policy `REGISTRY_ONLY`.

    The order of precedence is a Sidecar with a workloadSelector, a Sidecar of the namespace, a
    Sidecar of the root namespace, the mesh configuration.
    """

    def of(obj: cluster.Object) -> Iterable[tuple[tuple[bool, bool], bool]]:
        spec, mode = cluster.at(obj, "spec"), _read_outbound_mode(cluster.at(obj, "spec"))
        selects = bool(cluster.at(spec, "workloadSelector", "labels"))
        place = obj["metadata"]["namespace"] == model, selects
        yield place, mode == _REGISTRY_ONLY if mode else default

    found = cluster.read_each(sidecars, of)
    of_namespaces = dict(found)
    return any(is_closed for place, is_closed in found if place == (True, True)) or (
        of_namespaces.get((True, False), of_namespaces.get((False, False), default))
    )


def _read_outbound_mode(settings: cluster.Object) -> str:
    return str(cluster.at(settings, "outboundTrafficPolicy").get("mode") or "")

"""What an installation of Istio says about itself, read from its own objects; pure."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any

import yaml

import cluster

logger = logging.getLogger(__name__)

MESH = "istio"
"""The ConfigMap with the mesh configuration, which a revision has under its own name."""
INJECTOR = "istio-sidecar-injector"
"""The ConfigMap with the template of sidecars and the values that fill it."""
_REGISTRY_ONLY = "REGISTRY_ONLY"


def settings(found: cluster.Object | None) -> dict[str, Any]:
    """Read the mesh configuration; empty where there is none or it is no YAML."""
    try:
        text = str(cluster.at(found, "data").get("mesh", ""))
        return cluster.at({"mesh": yaml.safe_load(text)}, "mesh")
    except yaml.YAMLError as error:
        logger.warning("The mesh configuration is not YAML: %s", error)
        return {}


def is_registry_only(
    settings: dict[str, Any], sidecars: Iterable[cluster.Object], *, model: str
) -> bool:
    """Tell whether proxies of the model, or some, let nothing out that Istio does not know.

    A Sidecar for pods comes before one for their namespace, this before one in the root
    namespace, and this before the mesh configuration.

    Args:
        settings: The mesh configuration.
        sidecars: Those of the model and of the root namespace.
        model: The model's namespace.
    """
    default = _mode(settings)
    some: list[str] = []
    all_of: dict[bool, str] = {}
    for each in sidecars:
        spec = cluster.at(each, "spec")
        is_own = each["metadata"]["namespace"] == model
        if not cluster.at(spec, "workloadSelector", "labels"):
            all_of[is_own] = _mode(spec) or default
        elif is_own:
            some.append(_mode(spec) or default)
    return _REGISTRY_ONLY in (*some, all_of.get(True) or all_of.get(False) or default)


def _mode(settings: cluster.Object) -> str:
    return str(cluster.at(settings, "outboundTrafficPolicy").get("mode") or "")


def excluded_ports(found: cluster.Object | None) -> tuple[int, ...]:
    """Read `global.proxy.excludeOutboundPorts` of the injector's values."""
    try:
        values = {"values": json.loads(str(cluster.at(found, "data").get("values", "{}")))}
    except ValueError as error:
        logger.warning("The injector's values are not JSON: %s", error)
        return ()
    ports = cluster.at(values, "values", "global", "proxy").get("excludeOutboundPorts")
    return tuple(int(port) for port in str(ports or "").split(",") if port.strip().isdecimal())


def variable(deployment: cluster.Object | None, name: str) -> str:
    """Read an environment variable of istiod in lower case; empty where it is not set."""
    spec = cluster.at(deployment, "spec", "template", "spec")
    for container in cluster.items(spec, "containers"):
        for each in cluster.items(container, "env"):
            if each["name"] == name:
                return str(each.get("value", "")).lower()
    return ""

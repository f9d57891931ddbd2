"""The dry-run pod that shows whether an injector answers, and which proxy it adds."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from integrator_contract import booleans, bounded, dry_run, names, pods, refusals
from istio_integrator.kube import cluster, errors

_CNI_CHECK = "istio-validation"
"""The init container that verifies the redirection; only pods with Istio's CNI plugin have it."""
_REDIRECTS = "istio-init"
_OUTBOUND_PORTS = "-o"
"""The argument of istio-init for outbound ports that it does not redirect."""
_DNS_CAPTURE = "ISTIO_META_DNS_CAPTURE"
"""A variable of the proxy, which istio-init and the CNI plugin read as well."""
_EVERYWHERE = "0.0.0.0/0"
"""The range that Canonical's charms of Istio exclude in each pod, by `injectedAnnotations`."""
_PROXY_CONFIG = "PROXY_CONFIG"
"""A variable of the proxy with `defaultConfig` of the mesh configuration and the pod's own
settings, without Istio's defaults (istio/pkg/kube/inject, cleanProxyConfig)."""
_DISCOVERY_ADDRESS = "istiod.istio-system.svc:15012"
"""Istio's default (istio/pkg/config/mesh, DefaultProxyConfig)."""
_HOLD = "holdApplicationUntilProxyStarts"
NATIVE: Mapping[str, str] = {names.NATIVE_SIDECAR: "true"}
"""Annotations that request a native sidecar."""
_VERSION_TAG = re.compile(r":(\d{1,4}\.\d{1,4}(?:\.\d{1,4})?)")
_PORT = re.compile(r"[0-9]{1,5}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbedProxy:
    """The proxy that new pods get, as a dry-run pod showed it."""

    probed: bool = False
    """Whether the dry-run pod got a sidecar; otherwise the other fields are assumptions."""
    problem: str = ""
    """Why the pod has no sidecar, in the API server's words."""
    is_unchanged: bool = False
    """Whether new pods are created without a sidecar, as no injector is called for them."""
    refusal: refusals.Refusal | None = None
    """The rejection by another webhook or policy; whether Istio injects is then not known."""
    native_proxy: bool = False
    """Whether it is a native sidecar."""
    proxy_revision: str = ""
    """The revision of new pods, which a tag may change."""
    version: str = ""
    """Read from the tag of the proxy's image."""
    cni: bool = False
    """Whether Istio's CNI plugin redirects the traffic of pods, before any container starts."""
    captures_outbound: bool = True
    """Whether outbound calls go through the proxy, which `injectedAnnotations` may disable."""
    captures_names: bool = False
    """Whether DNS queries go through the proxy."""
    hold_by_default: bool = False
    """Whether the mesh configuration sets the hold, and not the pod or this charm's admission."""
    status_port: int = names.DEFAULT_STATUS_PORT
    """Of proxies whose pods set no other one; 0: disabled."""
    discovery_address: str = ""
    """The address of istiod in the proxy's configuration."""
    excluded_outbound_ports: tuple[int, ...] = ()
    """Ports that proxies do not intercept; a pod's own annotation replaces the list."""


def probe_injector(
    api: cluster.Cluster,
    namespace: str,
    labels: Mapping[str, str],
    *,
    like: cluster.Object | None,
    annotations: Mapping[str, str] | None = None,
) -> ProbedProxy:
    """Create a pod by dry run, which this charm's admission does not change."""
    marked = {names.MESH_PROBE: "true", **labels}
    asked = dry_run.make_pod(like or {}, marked, namespace=namespace, annotations=annotations)
    try:
        created = api.create(asked, dry_run=True)
    except errors.RefusedError as error:
        if error.refusal.is_istio:
            return ProbedProxy(problem=_explain_failure(error.refusal))
        return ProbedProxy(problem=str(error.refusal), refusal=error.refusal)
    except errors.ApiError as error:
        return ProbedProxy(problem=error.message)
    except errors.UnreachableError as error:
        # An injector that accepts connections but never answers delays the API server, too.
        return ProbedProxy(problem=str(error))
    return read_changes(created)


def _explain_failure(refusal: refusals.Refusal) -> str:
    """Return the last cause of a failure to reach the injector, or Istio's refusal."""
    if not refusal.is_unreachable:
        return str(refusal)
    # After a certificate error the API server adds a guess at the reason.
    words = refusal.words.partition(" (possibly because of ")[0]
    _, name, *_ = refusal.author.split('"')
    return f"{name}: {words.rpartition(': ')[2]}"


def parse_ports(listed: object) -> list[int]:
    """Read comma-separated port numbers from an annotation; other text is ignored."""
    found = [each.strip() for each in str(listed or "").split(",")]
    return [int(each) for each in found if _PORT.fullmatch(each) and pods.is_port(int(each))]


def read_changes(created: cluster.Object) -> ProbedProxy:
    """Read the injector's changes from a created pod."""
    spec = cluster.at(created, "spec")
    inits, containers = cluster.parts(spec, "initContainers"), cluster.parts(spec, "containers")
    native = [each for each in inits if each.get("restartPolicy") == "Always"]
    proxies = [each for each in (*native, *containers) if each.get("name") == names.PROXY]
    if not proxies:
        problem = "the injector was not asked for the pod"
        return ProbedProxy(problem=problem, is_unchanged=True)
    proxy = proxies[0]
    annotations = cluster.at(created, "metadata", "annotations")
    environment = {each.get("name"): each.get("value") for each in cluster.parts(proxy, "env")}
    config = _read_mapping(environment.get(_PROXY_CONFIG))
    excluded_ranges = annotations.get(names.EXCLUDED_OUTBOUND_RANGES, "").split(",")
    version = _VERSION_TAG.search(str(proxy.get("image", "")))
    status_port, own_config = config.get("statusPort"), annotations.get(names.PROXY_CONFIG, "")
    return ProbedProxy(
        probed=True,
        native_proxy=proxy in native,
        proxy_revision=str(
            _read_mapping(annotations.get(names.SIDECAR_STATUS)).get("revision") or ""
        ),
        version=version[1] if version else "",
        cni=any(each.get("name") == _CNI_CHECK for each in inits),
        captures_outbound=_EVERYWHERE not in excluded_ranges,
        captures_names=booleans.parse(environment.get(_DNS_CAPTURE), default=False),
        hold_by_default=config.get(_HOLD) is True and _HOLD not in own_config,
        status_port=status_port if pods.is_port(status_port) else names.DEFAULT_STATUS_PORT,
        discovery_address=str(config.get("discoveryAddress") or _DISCOVERY_ADDRESS),
        excluded_outbound_ports=_read_excluded_ports(inits, annotations),
    )


def _read_mapping(text: Any) -> dict[str, Any]:
    """Read a JSON object; empty if the text is not one."""
    try:
        value = bounded.read_json(str(text or "{}"), longest=bounded.LONGEST_OBJECT)
    except bounded.DocumentError:
        return {}
    return cluster.at(value)


def _read_excluded_ports(inits: list[Any], annotations: dict[str, Any]) -> tuple[int, ...]:
    """Read the outbound ports that a pod does not redirect.

    The CNI plugin reads them from an annotation, istio-init from an argument.
    """
    for container in inits:
        arguments = cluster.items(container, "args")
        if container.get("name") == _REDIRECTS and _OUTBOUND_PORTS in arguments[:-1]:
            return tuple(parse_ports(arguments[arguments.index(_OUTBOUND_PORTS) + 1]))
    return tuple(parse_ports(annotations.get(names.EXCLUDED_OUTBOUND_PORTS)))

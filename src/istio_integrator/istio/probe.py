"""The dry-run pod that shows whether an injector is alive, and what pods get of it."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

from integrator_contract import booleans, bounded, names, refusals
from istio_integrator.istio import meshconfig
from istio_integrator.kube import cluster, errors

_CNI_CHECK = "istio-validation"
"""The init container that checks what Istio's CNI plugin did; without the plugin there is none."""

_DNS_CAPTURE = "ISTIO_META_DNS_CAPTURE"
"""In the proxy's environment; istio-init and the CNI plugin go by it as well."""
_EVERYWHERE = "0.0.0.0/0"
"""What Canonical's charms of Istio have every pod leave alone, by `injectedAnnotations`."""

_PROXY_CONFIG = "PROXY_CONFIG"
"""In the proxy's environment, what the mesh configuration's `defaultConfig` and the pod say, as
far as it is not Istio's default (istio/pkg/kube/inject, cleanProxyConfig)."""
_DISCOVERY_ADDRESS = "istiod.istio-system.svc:15012"
"""Istio's default (istio/pkg/config/mesh, DefaultProxyConfig)."""
_HOLD = "holdApplicationUntilProxyStarts"
NAME = "istio-integrator-probe"
"""What the names of dry-run pods begin with."""
NATIVE: Mapping[str, str] = {names.NATIVE_SIDECAR: "true"}
"""Annotations that ask for a native sidecar."""
HOLD: Mapping[str, str] = {names.PROXY_CONFIG: json.dumps({_HOLD: True})}
"""Annotations that ask for a proxy which holds the application."""
_UNKNOWN_IMAGE = "never-created.invalid/probe"
"""Of a pod that is written before the unit's own pod could be read."""
_REDIRECTS = "istio-init"
_OUTBOUND_PORTS = "-o"
"""The argument of istio-init for ports that are left alone."""

_VERSION_TAG = re.compile(r":(\d{1,4}\.\d{1,4}(?:\.\d{1,4})?)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """What became of a dry-run pod."""

    injected: bool
    native: bool = False
    """The proxy is an init container that keeps running."""
    held: bool = False
    """The proxy comes first and keeps the application waiting."""
    revision: str = ""
    version: str = ""
    """As the tag of the proxy's image tells it."""
    cni: bool = False
    """Traffic is redirected from the pod's first moment, by Istio's CNI plugin."""
    captures_outbound: bool = True
    """Whether its calls go through the proxy."""
    captures_names: bool = False
    """Whether its look-ups of names do."""
    overwritten: tuple[str, ...] = ()
    """Annotations that came back with another value than the pod asked for."""
    holds: bool = False
    """Whether the mesh asks to hold the application, and not the pod or whoever prepared it, as
    our own admission does."""
    status_port: int = names.DEFAULT_STATUS_PORT
    discovery_address: str = ""
    """Where the proxy looks for istiod."""
    excluded_outbound_ports: tuple[int, ...] = ()
    """That the proxy leaves alone."""
    problem: str = ""
    """Why there is no sidecar."""
    refusal: refusals.Refusal | None = None
    """Who else than Istio refused the pod, which says nothing about the injector."""


def pod(
    namespace: str,
    labels: Mapping[str, str],
    *,
    like: cluster.Object | None,
    annotations: Mapping[str, str] | None = None,
) -> cluster.Object:
    """Write a dry-run pod that policies of the cluster admit as they admitted the unit's pod.

    It has the image and the controller of that pod, and meets every pod security standard. It
    names no user, because OpenShift assigns one for each namespace.

    Args:
        namespace: The namespace of the pod.
        labels: They say what the pod is for, and whether to inject it.
        like: The unit's own pod; None where it is not known.
        annotations: What the pod asks of the injector.
    """
    owners = [
        # OpenShift lets nobody block the deletion of an owner without a right of its own.
        {**each, "blockOwnerDeletion": False}
        for each in cluster.parts(cluster.at(like, "metadata"), "ownerReferences")
        if each.get("controller") is True
    ]
    containers = cluster.parts(cluster.at(like, "spec"), "containers")
    images = [each.get("image") for each in containers if each.get("name") == names.CHARM]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{NAME}-",
            "namespace": namespace,
            "labels": dict(labels),
            "annotations": dict(annotations or {}),
            "ownerReferences": owners,
        },
        "spec": {
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "probe",
                    "image": next(iter(images), None) or _UNKNOWN_IMAGE,
                    "resources": {
                        "requests": {"cpu": "1m", "memory": "1Mi"},
                        "limits": {"cpu": "1m", "memory": "1Mi"},
                    },
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }


def ask(
    api: cluster.Cluster,
    namespace: str,
    labels: Mapping[str, str],
    *,
    like: cluster.Object | None,
    annotations: Mapping[str, str] | None = None,
) -> Answer:
    """Create a pod by dry run, which this charm's admission leaves as it is.

    Raises:
        ForbiddenError: The charm may not create pods.
    """
    marked = {names.MESH_PROBE: "true", **labels}
    asked = pod(namespace, marked, like=like, annotations=annotations)
    try:
        created = api.create(asked, dry_run=True)
    except errors.ForbiddenError:
        raise
    except errors.RefusedError as error:
        if error.refusal.is_istio:
            return Answer(injected=False, problem=_said_by_istio(error.refusal))
        return Answer(injected=False, problem=str(error.refusal), refusal=error.refusal)
    except errors.ApiError as error:
        return Answer(injected=False, problem=error.message)
    except errors.UnreachableError as error:
        # An injector that takes connections and never answers takes the API server's time too.
        return Answer(injected=False, problem=str(error))
    before = asked["metadata"]["annotations"]
    after = cluster.at(created, "metadata", "annotations")
    overwritten = tuple(sorted(key for key in before if after.get(key) != before[key]))
    return dataclasses.replace(read(created), overwritten=overwritten)


def _said_by_istio(refusal: refusals.Refusal) -> str:
    """Keep of a failure to reach the injector its last cause."""
    if not refusal.is_unreachable:
        return str(refusal)
    # Behind a certificate's fault the API server guesses at its reason.
    words = refusal.words.partition(" (possibly because of ")[0]
    _, name, *_ = refusal.author.split('"')
    return f"{name}: {words.rpartition(': ')[2]}"


def read(created: cluster.Object) -> Answer:
    """Tell what the injector made of a pod."""
    spec = cluster.at(created, "spec")
    inits, containers = cluster.parts(spec, "initContainers"), cluster.parts(spec, "containers")
    native = [each for each in inits if each.get("restartPolicy") == "Always"]
    for proxy in (*native, *containers):
        if proxy.get("name") == names.PROXY:
            break
    else:
        return Answer(injected=False, problem="the injector was not asked for the pod")
    is_native = proxy in native
    annotations = cluster.at(created, "metadata", "annotations")
    environment = {each.get("name"): each.get("value") for each in cluster.parts(proxy, "env")}
    config = _mapping(environment.get(_PROXY_CONFIG))
    excluded_ranges = annotations.get(names.EXCLUDED_OUTBOUND_RANGES, "").split(",")
    version = _VERSION_TAG.search(str(proxy.get("image", "")))
    return Answer(
        injected=True,
        native=is_native,
        held=is_native
        or (proxy is containers[0] and "postStart" in cluster.at(proxy, "lifecycle")),
        revision=str(_mapping(annotations.get(names.SIDECAR_STATUS)).get("revision") or ""),
        version=version[1] if version else "",
        cni=any(each.get("name") == _CNI_CHECK for each in inits),
        captures_outbound=_EVERYWHERE not in excluded_ranges,
        captures_names=booleans.parse(environment.get(_DNS_CAPTURE), default=False),
        holds=config.get(_HOLD) is True and _HOLD not in annotations.get(names.PROXY_CONFIG, ""),
        status_port=meshconfig.port(config.get("statusPort"), names.DEFAULT_STATUS_PORT),
        discovery_address=str(config.get("discoveryAddress") or _DISCOVERY_ADDRESS),
        excluded_outbound_ports=meshconfig.ports(_left_alone(inits, annotations)),
    )


def _mapping(text: Any) -> dict[str, Any]:
    """Read a JSON object; empty where it is none."""
    try:
        value = bounded.read_json(str(text or "{}"), longest=bounded.LONGEST_OBJECT)
    except bounded.DocumentError:
        return {}
    return cluster.at({"value": value}, "value")


def _left_alone(inits: list[Any], annotations: dict[str, Any]) -> str:
    """Find the outbound ports, with commas between them, that a pod's redirection leaves out.

    The CNI plugin is told by an annotation, istio-init by an argument.
    """
    for container in inits:
        arguments = cluster.items(container, "args")
        if container.get("name") == _REDIRECTS and _OUTBOUND_PORTS in arguments[:-1]:
            return str(arguments[arguments.index(_OUTBOUND_PORTS) + 1])
    return str(annotations.get(names.EXCLUDED_OUTBOUND_PORTS) or "")

"""Ask the injector by a pod that is never created: is it alive, and what does it do?"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import cluster
import errors

PROBE_LABEL = "istio-integrator.charmhub.io/mesh-probe"
NATIVE_ANNOTATION = "sidecar.istio.io/nativeSidecar"
PROXY_CONFIG_ANNOTATION = "proxy.istio.io/config"
STATUS_ANNOTATION = "sidecar.istio.io/status"
PROXY = "istio-proxy"

_CNI_CHECK = "istio-validation"
"""The init container that checks what Istio's CNI plugin did; without the plugin there is none."""

_DNS_CAPTURE = "ISTIO_META_DNS_CAPTURE"
"""In the proxy's environment; istio-init and the CNI plugin go by it as well."""
_LEFT_ALONE = "traffic.sidecar.istio.io/excludeOutboundIPRanges"
_EVERYWHERE = "0.0.0.0/0"
"""What Canonical's charms of Istio have every pod leave alone, by `injectedAnnotations`."""

_WEBHOOK_FAILURE = re.compile(r'failed calling webhook "([^"]+)": (.+)', re.DOTALL)
_VERSION_TAG = re.compile(r":(\d+\.\d+(?:\.\d+)?)")


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
    problem: str = ""
    """Why there is no sidecar."""


def pod(namespace: str, labels: dict[str, str], *, native: bool | None) -> cluster.Object:
    """Write the pod that is asked for; it would run under every pod security standard.

    Args:
        namespace: Where.
        labels: Beside the one that marks it.
        native: Which kind of sidecar it wants, None for the injector's own choice.
    """
    wish = {} if native is None else {NATIVE_ANNOTATION: json.dumps(native)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "istio-integrator-probe-",
            "namespace": namespace,
            "labels": {PROBE_LABEL: "true", **labels},
            "annotations": {
                **wish,
                PROXY_CONFIG_ANNOTATION: '{"holdApplicationUntilProxyStarts": true}',
            },
        },
        "spec": {
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65534,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "probe",
                    "image": "never-created.invalid/probe",
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
    api: cluster.Cluster, namespace: str, labels: dict[str, str], *, native: bool | None
) -> Answer:
    """Have a pod created without keeping it.

    Raises:
        ForbiddenError: The charm may not create pods.
    """
    asked = pod(namespace, labels, native=native)
    try:
        created = api.create(asked, dry_run=True)
    except errors.ForbiddenError:
        raise
    except errors.ApiError as error:
        return Answer(injected=False, problem=_reason(error.message))
    except errors.UnreachableError as error:
        # An injector that takes connections and never answers takes the API server's time too.
        return Answer(injected=False, problem=str(error))
    answer = read(created)
    wanted = asked["metadata"]["annotations"]
    given = cluster.at(created, "metadata", "annotations")
    overwritten = tuple(sorted(key for key in wanted if given.get(key) != wanted[key]))
    return dataclasses.replace(answer, overwritten=overwritten)


def _reason(message: str) -> str:
    """Keep of a webhook's failure its name and the last cause."""
    failure = _WEBHOOK_FAILURE.search(message)
    return f"{failure[1]}: {failure[2].rpartition(': ')[2]}" if failure else message


def read(created: cluster.Object) -> Answer:
    """Tell what the injector made of a pod."""
    spec = cluster.at(created, "spec")
    for container in cluster.items(spec, "initContainers"):
        if container["name"] == PROXY and container.get("restartPolicy") == "Always":
            return _injected(created, container, native=True, held=True)
    for index, container in enumerate(cluster.items(spec, "containers")):
        if container["name"] == PROXY:
            waits = "postStart" in cluster.at(container, "lifecycle")
            return _injected(created, container, native=False, held=index == 0 and waits)
    return Answer(injected=False, problem="the injector was not asked for the pod")


def _injected(created: cluster.Object, proxy: Any, *, native: bool, held: bool) -> Answer:
    annotations = cluster.at(created, "metadata", "annotations")
    try:
        status = {"status": json.loads(annotations.get(STATUS_ANNOTATION, "{}"))}
    except ValueError:
        status = {}
    version = _VERSION_TAG.search(proxy.get("image", ""))
    inits = cluster.items(cluster.at(created, "spec"), "initContainers")
    return Answer(
        injected=True,
        cni=any(each["name"] == _CNI_CHECK for each in inits),
        captures_outbound=_EVERYWHERE not in annotations.get(_LEFT_ALONE, "").split(","),
        captures_names=any(
            each["name"] == _DNS_CAPTURE and each.get("value") == "true"
            for each in cluster.items(proxy, "env")
        ),
        native=native,
        held=held,
        revision=str(cluster.at(status, "status").get("revision") or ""),
        version=version[1] if version else "",
    )

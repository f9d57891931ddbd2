"""Which pods each option affects, a line of docs/reference/configuration.md.

Where the contract has a field with the option's name, the field decides.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

_NEW = "new pods"
_CONVERGED = "those of the model. Running ones are replaced as `restart-pods` allows"
_REVISION = "those of the model. Running ones keep their proxy until `restart-stale`"
_JOBS = "pods that run to completion, also running ones"
_GATEWAY = "those of the model's own gateway"
_ROLLED = f"{_GATEWAY}, which are replaced one after the other"
_RULES = "those of the model with a sidecar. No pod restarts"

_ALSO = {
    "mesh-mode": (
        "those of the model. `ambient` replaces pods that have a sidecar, switching back those "
        "that lack one, and `none` replaces no pods"
    ),
    "included-pods": _CONVERGED,
    "excluded-pods": _CONVERGED,
    "revision": _REVISION,
    "istiod-namespace": _REVISION,
    "job-sidecars": "new pods that run to completion",
    "served-namespaces": "pods of profiles, of labelled namespaces and of the model",
    "proxy-shutdown": _JOBS,
    "delete-broken-pods": "pods that run to completion and have lost their proxy",
    "restart-pods": "pods of the model's Deployments, StatefulSets and DaemonSets",
    "restart-max-unavailable": "the same, and those that actions restart",
    "gateway-service": f"{_GATEWAY}, which end when you name a gateway",
    "gateway-replicas": f"{_GATEWAY}. No other pod restarts",
    "gateway-cpu": _ROLLED,
    "gateway-memory": _ROLLED,
    "authorization": _RULES,
    "pod-networks": "pods of training jobs in namespaces that deny plain text",
    "mtls": _RULES,
    "mtls-exceptions": _RULES,
    "log-level": "those of this application and of the webhook. No pod restarts",
}
"""The options of which no field decides."""
_OBJECTS = (
    *("gateway-service-annotations", "gateway-service-type", "routing", "hosts"),
    *("https-redirect", "tls-secret", "require-authentication", "tenant-policy"),
)


def pods(names: Iterable[str]) -> dict[str, str]:
    """Return the line about pods of each option; empty if it affects no pod.

    Raises:
        ValueError: An option has no line, or a line has no option.
    """
    from integrator_contract import pods, service  # noqa: PLC0415  (needs lib/ on the path)

    known = dict.fromkeys(_OBJECTS, "")
    known |= dict.fromkeys(_fields(pods.Settings), _NEW)
    known |= dict.fromkeys(_fields(service.Rules), _JOBS)
    known |= _ALSO
    if unknown := {*names} - {*known}:
        raise ValueError(f"docs/options.py does not know which pods {sorted(unknown)} affect")
    if gone := {*_ALSO, *_OBJECTS} - {*names}:
        raise ValueError(f"docs/options.py names options that do not exist: {sorted(gone)}")
    return {name: known[name] for name in names}


def _fields(settings: Any) -> set[str]:
    return {field.name.replace("_", "-") for field in dataclasses.fields(settings)}

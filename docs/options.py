"""Which options touch which pods: docs/reference/options-and-pods.md.

Where the code says it, it is read from there: what new pods get and what tunes the rules about a
proxy are fields of the contract with the options' names.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import tables
import yaml

_NEW = "new pods of the namespaces that are served, when they are created; running ones never"
_MEMBERS = "pods of the model: whether they should have a sidecar"
_CONVERGED = f"{_MEMBERS}; running ones that lack it are replaced, as `restart-pods` has it"
_JOBS = "pods that run to completion, also those that run: when their proxy is stopped"
_GATEWAY = "the pods of the model's own gateway workload"
_NONE = "none: objects of Istio and Kubernetes change, and no pod"

_ALSO = {
    "mesh-mode": (
        f"{_MEMBERS}; `ambient` has those with a sidecar replaced, and the way back those without;"
        " `none` replaces none"
    ),
    "included-pods": _CONVERGED,
    "excluded-pods": _CONVERGED,
    "revision": f"{_MEMBERS}; running ones keep their proxy until `restart-stale`",
    "istiod-namespace": f"{_MEMBERS}; running ones keep their proxy until `restart-stale`",
    "job-sidecars": "new pods that run to completion, when they are created; running ones never",
    "served-namespaces": (
        "pods of profile and labelled namespaces, and of the model: new ones, and running ones "
        "whose proxy is to be stopped"
    ),
    "proxy-shutdown": _JOBS,
    "delete-broken-pods": (
        "pods that run to completion and have lost their proxy before a container of them has "
        "succeeded: they are deleted, at most three of one owner, if that makes them anew"
    ),
    "restart-pods": (
        "running pods of Deployments, StatefulSets and DaemonSets of the model that lack their "
        "sidecar: they are evicted"
    ),
    "restart-max-unavailable": (
        "the same, and those that `restart-uninjected` and `restart-stale` are asked to replace: "
        "how many at once"
    ),
    "gateway-service": f"{_GATEWAY}: they go where it names another gateway",
    "gateway-replicas": f"{_GATEWAY}: their number; no other pod restarts",
    "gateway-cpu": f"{_GATEWAY}: one after the other is replaced",
    "gateway-memory": f"{_GATEWAY}: one after the other is replaced",
    "authorization": "the model's pods: their sidecars answer other callers; none restarts",
    "pod-networks": (
        "pods of training jobs in namespaces that deny plain text: running ones get other "
        "networks; new ones a label when they are created"
    ),
    "mtls": "the model's pods: their sidecars answer other callers; none restarts",
    "mtls-exceptions": "the model's pods: their sidecars answer other callers; none restarts",
    "log-level": "this application's and the webhook's, which read it as they run; none restarts",
}
"""What the code does not say by its names."""
_OBJECTS = (
    *("gateway-service-annotations", "gateway-service-type", "routing", "hosts"),
    *("https-redirect", "tls-secret", "require-authentication", "tenant-policy"),
)


def page(root: pathlib.Path) -> str:
    """Write the page.

    Raises:
        ValueError: There is an option of which nobody said what it touches.
    """
    from integrator_contract import pods, service  # noqa: PLC0415  (needs lib/ on the path)

    new, rules = _fields(pods.Settings), _fields(service.Rules)
    options: dict[str, Any] = yaml.safe_load((root / "config.yaml").read_text())["options"]
    rows: list[tuple[str, str]] = []
    for name in options:
        if name in _ALSO:
            touched = _ALSO[name]
        elif name in rules:
            touched = _JOBS
        elif name in new:
            touched = _NEW
        elif name in _OBJECTS:
            touched = _NONE
        else:
            raise ValueError(f"docs/options.py does not know which pods {name} touches")
        rows.append((f"[`{name}`](configuration.md#{name})", touched))
    gone = ({*_ALSO, *_OBJECTS}) - set(options)
    if gone:
        raise ValueError(f"docs/options.py names options that are gone: {sorted(gone)}")
    return (
        "# Options and the pods that they touch\n\n"
        "Before you change an option: which pods it is about, and whether any is replaced. No\n"
        "option replaces a notebook or a pod without an owner, and a Job's pod only\n"
        "`delete-broken-pods`, when its proxy is lost.\n\n"
        + tables.table(("option", "pods"), rows)
    )


def _fields(settings: Any) -> set[str]:
    return {field.name.replace("_", "-") for field in dataclasses.fields(settings)}

"""istiod outside of the cluster: a process in a network of its own, with a kubeconfig.

The cluster has what Istio's remote profile gives it, the injector's webhook configuration with a
URL and the rights of istiod's account, and no Deployment, Service or ConfigMap of istiod.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SYSTEM = "istio-system"
NETWORK = "istiod"
"""Name of its network namespace."""
LINK = "istiod0"
"""Name of the node's end of the link to it."""
DISCOVERY_PORT = 15012
INJECTOR_PORT = 15017

_FILES = {"istio": "etc/istio/config", "istio-sidecar-injector": "var/lib/istio/inject"}
"""Where istiod's pod mounts its ConfigMaps, below its working directory."""
_LEFT_OUT = frozenset(
    {
        "ConfigMap",
        "HorizontalPodAutoscaler",
        "PodDisruptionBudget",
        "ValidatingWebhookConfiguration",
    }
)


@dataclasses.dataclass(frozen=True)
class Process:
    """How istiod is run."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    files: Mapping[str, str]
    """Texts by their paths below its working directory."""
    account: str
    """The user that the API server takes it for."""

    @classmethod
    def read(cls, path: Path) -> "Process":
        """Read what `take_out` found."""
        return cls(**json.loads(path.read_text()))

    def write_files(self, directory: Path) -> None:
        """Write what a pod of it would mount."""
        for name, text in self.files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def take_out(
    objects: Sequence[dict[str, Any]], deployment: str, address: str
) -> tuple[list[dict[str, Any]], Process]:
    """Part an installation into what stays in the cluster and istiod itself.

    Args:
        objects: As istioctl renders them.
        deployment: Of istiod.
        address: Where it will be reached.
    """
    suffix = deployment.removeprefix("istiod")
    (pod,) = [
        one["spec"]["template"]["spec"]
        for one in objects
        if (one["kind"], one["metadata"]["name"]) == ("Deployment", deployment)
    ]
    (container,) = pod["containers"]
    files = {
        f"{place}/{key}": text
        for name, place in _FILES.items()
        for one in objects
        if (one["kind"], one["metadata"]["name"]) == ("ConfigMap", f"{name}{suffix}")
        for key, text in one["data"].items()
    }
    settings = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    environment = {
        **settings,
        "POD_NAME": f"{deployment}-outside",
        "POD_NAMESPACE": SYSTEM,
        # What its certificate is for.
        "ISTIOD_CUSTOM_HOST": address,
    }
    left = [_led_out(one, address) for one in objects if not _is_istiods(one, deployment)]
    account = f"system:serviceaccount:{SYSTEM}:{pod['serviceAccountName']}"
    return left, Process(container["args"], environment, files, account)


def _is_istiods(item: dict[str, Any], deployment: str) -> bool:
    is_named = item["metadata"]["name"] == deployment
    return item["kind"] in _LEFT_OUT or (item["kind"] in ("Deployment", "Service") and is_named)


def _led_out(item: dict[str, Any], address: str) -> dict[str, Any]:
    if item["kind"] != "MutatingWebhookConfiguration":
        return item
    hooks = [
        {
            **hook,
            "clientConfig": {
                # istiod itself adds its authority's certificate, and a new one in its place.
                "url": f"https://{address}:{INJECTOR_PORT}{hook['clientConfig']['service']['path']}"
            },
        }
        for hook in item["webhooks"]
    ]
    return {**item, "webhooks": hooks}


def network(address: str, gateway: str) -> list[tuple[str, ...]]:
    """Return the commands that make its network, a link away from the node.

    Args:
        address: Of istiod.
        gateway: Of the node on that link.
    """
    inside = ("ip", "-n", NETWORK)
    return [
        ("ip", "netns", "add", NETWORK),
        ("ip", "link", "add", LINK, "type", "veth", "peer", "name", "eth0", "netns", NETWORK),
        ("ip", "address", "add", f"{gateway}/30", "dev", LINK),
        ("ip", "link", "set", LINK, "up"),
        (*inside, "link", "set", "lo", "up"),
        (*inside, "address", "add", f"{address}/30", "dev", "eth0"),
        (*inside, "link", "set", "eth0", "up"),
        (*inside, "route", "add", "default", "via", gateway),
    ]

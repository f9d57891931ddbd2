"""istiod and a gateway workload, as `istioctl` renders them, with what our proxy needs.

PyPI's Envoy lacks the filters that Istio compiles into its own, so istiod is told not to send
them; everything else is an ordinary installation.
"""

import dataclasses
import hashlib
import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from testbed import components, errors, outside, paths, programs

SYSTEM = outside.SYSTEM
INGRESS = "istio-ingress"
GATEWAY = "istio-ingressgateway"
CNI = "istio-cni-node"
"""The DaemonSet that installs the CNI plugin."""

_LATE = frozenset({"Deployment", "DaemonSet"})
"""Kinds that start pods, for which the images must be there."""


def images(*, cni: bool) -> tuple[str, ...]:
    """Return the testbed's images that an installation runs."""
    return ("proxy", "pilot", *(["cni"] if cni else []))


class IstioError(errors.TestbedError):
    """Istio could not be rendered."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Installation:
    """What distinguishes one installation from another."""

    proxy_image: str
    pilot_image: str
    revision: str = ""
    classic_sidecars: bool = False
    compatibility: str = ""
    """The line of Istio, such as 1.26, whose switches it keeps; empty: those of its own."""
    cni_image: str = ""
    """Of the CNI plugin's installer; empty: pods have an init container instead."""
    outside: str = ""
    """The address of an istiod outside of the cluster; empty: it runs in a pod."""

    @property
    def deployment(self) -> str:
        """Name of istiod's Deployment."""
        return f"istiod-{self.revision}" if self.revision else "istiod"


def overlay(wanted: Installation) -> dict[str, Any]:
    """Return the IstioOperator document that istioctl renders."""
    environment = {"PILOT_ENABLE_ALPN_FILTER": "false", "PILOT_ENABLE_METADATA_EXCHANGE": "false"}
    if wanted.classic_sidecars:
        environment["ENABLE_NATIVE_SIDECARS"] = "false"
    # The node has the cores of a laptop; Istio's own requests would fill it with ten pods.
    small = {"requests": {"cpu": "10m", "memory": "40Mi"}}
    gateway: dict[str, Any] = {
        "name": GATEWAY,
        "namespace": INGRESS,
        "enabled": True,
        "k8s": {"resources": small},
    }
    host = wanted.outside or f"{wanted.deployment}.{SYSTEM}.svc"
    address = f"{host}:{outside.DISCOVERY_PORT}"
    if wanted.revision or wanted.outside:
        # Its ConfigMap of the mesh is looked for in the gateway's namespace, where there is none.
        proxy_config = json.dumps({"discoveryAddress": address})
        gateway["k8s"]["env"] = [{"name": "PROXY_CONFIG", "value": proxy_config}]
    spec: dict[str, Any] = {
        "profile": "default",
        "components": {
            "pilot": {"k8s": {"resources": small}},
            "ingressGateways": [gateway],
        },
        "values": {
            "global": {
                "imagePullPolicy": "IfNotPresent",
                "proxy": {"image": wanted.proxy_image, "resources": small},
                "proxy_init": {"image": wanted.proxy_image},
            },
            "pilot": {
                "image": wanted.pilot_image,
                "autoscaleEnabled": False,
                "env": environment,
            },
            "gateways": {GATEWAY: {"autoscaleEnabled": False}},
            "telemetry": {"enabled": False},
        },
    }
    if wanted.cni_image:
        spec["components"]["cni"] = {"enabled": True, "k8s": {"resources": small}}
        spec["values"]["cni"] = {
            "image": wanted.cni_image,
            "cniBinDir": components.CNI_PROGRAMS,
            "cniConfDir": components.CNI_NETWORKS,
        }
    if wanted.compatibility:
        spec["values"]["compatibilityVersion"] = wanted.compatibility
    if wanted.revision:
        spec["revision"] = wanted.revision
    if wanted.outside:
        spec["meshConfig"] = {"defaultConfig": {"discoveryAddress": address}}
        spec["values"]["global"]["caAddress"] = address
    return {"apiVersion": "install.istio.io/v1alpha1", "kind": "IstioOperator", "spec": spec}


@dataclasses.dataclass(frozen=True)
class Manifests:
    """Files of the objects, as JSON Lists."""

    definitions: Path
    """CustomResourceDefinitions, which outlive an uninstallation."""
    settings: Path
    """What starts no pod."""
    workloads: Path
    process: Path
    """How an istiod outside of the cluster is run; only there with one."""


def render(wanted: Installation) -> Manifests:
    """Return the objects to apply, rendered once per distinct installation.

    Raises:
        IstioError: when istioctl fails.
    """
    document = json.dumps(overlay(wanted), sort_keys=True)
    key = hashlib.sha256(f"{programs.key('istio')} {document}".encode()).hexdigest()[:16]
    folder = paths.cache() / "manifests" / f"istio-{key}"
    names = ("crds", "settings", "workloads", "process")
    found = Manifests(*(folder / f"{name}.json" for name in names))
    if not folder.is_dir():
        objects = _generate(document)
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".istio-", dir=folder.parent))
        if wanted.outside:
            objects, process = outside.take_out(objects, wanted.deployment, wanted.outside)
            (scratch / found.process.name).write_text(json.dumps(dataclasses.asdict(process)))
        places = (found.definitions, found.settings, found.workloads)
        for place, items in zip(places, split(objects), strict=True):
            text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
            (scratch / place.name).write_text(text)
        scratch.rename(folder)
    return found


def _generate(document: str) -> list[dict[str, Any]]:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as overlay_file:
        overlay_file.write(document)
        overlay_file.flush()
        run = subprocess.run(
            [
                programs.binary("istioctl"),
                "manifest",
                "generate",
                f"--manifests={programs.directory('istio') / 'share' / 'manifests'}",
                f"--filename={overlay_file.name}",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    if run.returncode:
        raise IstioError(f"istioctl manifest generate: {run.stderr.strip()}")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [one for one in yaml.load_all(run.stdout, Loader=loader) if one]


def split(
    objects: list[dict[str, Any]],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Sort objects into definitions, settings and workloads."""
    definitions = [one for one in objects if one["kind"] == "CustomResourceDefinition"]
    workloads = [one for one in objects if one["kind"] in _LATE]
    apart = ("CustomResourceDefinition", *_LATE)
    settings = [one for one in objects if one["kind"] not in apart]
    return definitions, settings, workloads


def namespaces() -> dict[str, Any]:
    """Return the namespaces of istiod and of the gateway."""
    items: list[Mapping[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in (SYSTEM, INGRESS)
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}

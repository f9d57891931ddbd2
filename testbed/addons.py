"""Objects that the testbed applies beside Istio: cluster DNS and Kubeflow's training operator."""

import json
import subprocess
from collections.abc import Sequence
from typing import Any

import yaml

from testbed import errors, programs
from testbed.addresses import Plan

TRAINING_OPERATOR = "training-operator"
"""Its namespace and Deployment. Upstream's `kubeflow` is left to the models under test."""


class AddonError(errors.TestbedError):
    """The objects of an addition could not be made."""


def as_list(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one List of the objects."""
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


def cluster_dns(plan: Plan) -> list[dict[str, Any]]:
    """Return the Service `kube-dns`, which leads to CoreDNS on the node, and CoreDNS's rights."""
    system = {"namespace": "kube-system"}
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]
    rules = [
        {
            "apiGroups": [""],
            "resources": ["services", "pods", "namespaces", "endpoints"],
            "verbs": ["list", "watch"],
        },
        {
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["list", "watch"],
        },
    ]
    name = "testbed:coredns"
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": rules,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": name,
            },
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "labels": {"k8s-app": "kube-dns"}, **system},
            "spec": {"clusterIP": str(plan.dns), "ports": ports},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "kube-dns-node",
                "labels": {"kubernetes.io/service-name": "kube-dns"},
                **system,
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [str(plan.node)], "conditions": {"ready": True}}],
            "ports": ports,
        },
    ]


def training_operator(
    image: str, waiting: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the training operator's settings, and its Deployment.

    Args:
        image: of the operator.
        waiting: image in which PyTorchJob's workers wait for their master, by `nslookup`.

    Raises:
        AddonError: when kustomize fails.
    """
    overlay = programs.directory("training-operator") / "share/manifests/overlays/standalone"
    run = subprocess.run(
        [programs.binary("kubectl"), "kustomize", overlay],
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise AddonError(f"kubectl kustomize: {run.stderr.strip()}")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    objects = [moved(one) for one in yaml.load_all(run.stdout, Loader=loader) if one]
    deployments = [one for one in objects if one["kind"] == "Deployment"]
    for deployment in deployments:
        for container in deployment["spec"]["template"]["spec"]["containers"]:
            container["image"] = image
            container["args"] = [f"--pytorch-init-container-image={waiting}"]
            container["readinessProbe"] |= {"initialDelaySeconds": 1, "periodSeconds": 1}
    return [one for one in objects if one["kind"] != "Deployment"], deployments


def moved(value: Any) -> Any:
    """Return a document of the operator with its namespace changed from upstream's."""
    if isinstance(value, list):
        return [moved(one) for one in value]
    if not isinstance(value, dict):
        return value
    result = {key: moved(one) for key, one in value.items()}
    if result.get("namespace") == "kubeflow":
        result["namespace"] = TRAINING_OPERATOR
    if result.get("kind") == "Namespace":
        result["metadata"]["name"] = TRAINING_OPERATOR
    return result


def dump(items: Sequence[dict[str, Any]]) -> str:
    """Return the objects as text for kubectl."""
    return json.dumps(as_list(items))

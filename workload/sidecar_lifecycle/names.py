"""The names that the charm, the workload and the people who read a cluster share."""

import hashlib

PREFIX = "istio-integrator.charmhub.io/"

PROXY = "istio-proxy"
"""The container that Istio's injector adds, whatever its image is."""

SIDECAR_STATUS = "sidecar.istio.io/status"
STATUS_PORT = "status.sidecar.istio.io/port"
TLS_MODE = "security.istio.io/tlsMode"
INJECT = "sidecar.istio.io/inject"
REVISION = "istio.io/rev"

WAIT_FOR_CONTAINERS = f"{PREFIX}wait-for-containers"
IGNORE_CONTAINERS = f"{PREFIX}ignore-containers"
PROXY_SHUTDOWN = f"{PREFIX}proxy-shutdown"
CONVERGENCE = f"{PREFIX}convergence"
APPLIED = f"{PREFIX}applied"
LIFECYCLE = f"{PREFIX}lifecycle"
OWNER = f"{PREFIX}owner"
COMPONENT = f"{PREFIX}component"

MANAGED_BY = "app.kubernetes.io/managed-by"
PART_OF = "app.kubernetes.io/part-of"
PROFILE = "kubeflow-profile"
CONTROLLER_MODEL = "controller.juju.is/id"
"""Juju labels the namespace of a controller model with it, other models only annotate it."""


def owner(model: str, application: str) -> str:
    """Return the value of the owner label, at most the 63 characters that a label may have."""
    value = f"{model}.{application}"
    if len(value) <= 63:
        return value
    return f"{value[:52].rstrip('-.')}-{hashlib.sha256(value.encode()).hexdigest()[:10]}"


def labels(model: str, application: str, component: str) -> dict[str, str]:
    """Return the labels that everything we create carries."""
    return {
        MANAGED_BY: "istio-integrator",
        OWNER: owner(model, application),
        COMPONENT: component,
    }

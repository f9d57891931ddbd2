"""The names that the charm, the workload and the people who read a cluster share."""

import enum
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


class EventReason(enum.StrEnum):
    """Why an Event on a pod was written."""

    PROXY_STOPPED = "ProxyStopped"
    """The payload was done, and the proxy was stopped. Names what still holds the pod, if any."""
    PROXY_STOP_FAILED = "ProxyStopFailed"
    """Stopping failed three times; it is tried on, with growing pauses. Says what is missing."""
    PROXY_LOST = "ProxyLost"
    """The proxy ended for good while the payload runs: it has no network through the mesh."""
    POD_NOT_REPLACED = "PodNotReplaced"
    """`replace-broken-pods` is on, and the application may not delete pods there."""
    NOTHING_TO_WAIT_FOR = "NothingToWaitFor"
    """The pod's annotations leave no container to wait for, so its proxy is left alone."""
    UNKNOWN_CONTAINER = "UnknownContainer"
    """The pod's annotations name a container that it does not have."""
    BAD_STATUS_PORT = "BadStatusPort"
    """The pod's annotation `status.sidecar.istio.io/port` is not a port."""
    SIDECAR_MISSING = "SidecarMissing"
    """The pod was evicted, since it should have a sidecar and had none."""
    PROXY_RENEWED = "ProxyRenewed"
    """The pod was evicted, since the action restart-stale asked for a newer proxy."""
    STILL_NO_SIDECAR = "StillNoSidecar"
    """A replacement again has no sidecar: its workload is left alone from now on."""
    INJECTOR_SKIPS = "InjectorSkips"
    """The injector does not inject such a pod: its workload is left alone. Says why."""


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

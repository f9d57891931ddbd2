"""Which pods Juju's controller can read. Pure.

It follows `Units` of internal/provider/kubernetes/application/application.go, the same in Juju 3.6
and 4.0. Juju takes the first container of a pod for the charm's, looks at that container's volumes
only, and fails for the whole application where it does not know one of them.
"""

from collections.abc import Iterable
from typing import Any

from .calls import CallError

CHARM_DATA = "charm-data"
KNOWN = ("projected", "configMap", "hostPath", "emptyDir", "persistentVolumeClaim")


def require_known(application: str, pods: Iterable[dict[str, Any]]) -> None:
    """Refuse to introduce any pod of an application while one of its pods can't be read.

    Raises:
        CallError: in the words of Juju's charm-init.
    """
    for pod in pods:
        spec = pod["spec"]
        volumes = {volume["name"]: volume for volume in spec.get("volumes") or ()}
        for mount in spec["containers"][0].get("volumeMounts") or ():
            name = mount["name"]
            if name == CHARM_DATA or name not in volumes or _is_known(volumes[name]):
                continue
            raise CallError(
                f"finding k8s units for {application}: finding filesystem info for {name}: "
                f"volume {name} not supported"
            )


def _is_known(volume: dict[str, Any]) -> bool:
    secret = (volume.get("secret") or {}).get("secretName", "")
    if "-token" in secret or secret.startswith("controller-"):
        return True
    return any(volume.get(source) is not None for source in KNOWN)

"""The pods of an application, as Juju composes them. Pure."""

import platform
from typing import Any

from .state import Application

Object = dict[str, Any]

CHARM_MEMORY = {"requests": {"memory": "64Mi"}, "limits": {"memory": "1024Mi"}}
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
CHARM_USERS = {"non-root": 170, "sudoer": 171}
"""User and group ids by metadata's `charm-user`."""

IDENTITIES = "/charm/etc/pebble/identities.yaml"
AGENT = "charm/bin/containeragent"
PROFILE = "containeragent/etc/profile.d/juju-introspection.sh"


def pod_spec(application: Application, image: str) -> Object:
    """The pods of an application: charm-init, the charm, and the workloads."""
    containers = application.metadata.get("containers") or {}
    names = ",".join(sorted(containers))
    user = CHARM_USERS.get(application.metadata.get("charm-user", "root"))
    declared = bool(user) or any("uid" in c or "gid" in c for c in containers.values())
    spec: Object = {
        "serviceAccountName": application.name,
        "automountServiceAccountToken": True,
        "terminationGracePeriodSeconds": 30,
        "nodeSelector": {"kubernetes.io/arch": ARCHITECTURES[platform.machine()]},
        "volumes": [{"name": "charm-data", "emptyDir": {}}],
        "initContainers": [_charm_init(application, image, names, user)],
        "containers": [
            _charm_container(image, names, user, declared=declared),
            *(
                _workload(
                    application,
                    name,
                    definition or {},
                    index,
                    declared=declared,
                    charm_user=user,
                )
                for index, (name, definition) in enumerate(sorted(containers.items()))
            ),
        ],
    }
    if declared:
        spec["securityContext"] = {"fsGroup": 170, "supplementalGroups": [170]}
    return spec


def _charm_init(application: Application, image: str, names: str, user: int | None) -> Object:
    identity: list[str] = []
    if user:
        identity = ["--pebble-identities-file", IDENTITIES, "--pebble-charm-identity", str(user)]
    return {
        "name": "charm-init",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "workingDir": "/var/lib/juju",
        "command": ["/opt/containeragent"],
        "args": [
            "init",
            "--containeragent-pebble-dir", "/containeragent/pebble",
            "--charm-modified-version", str(application.charm_modified_version),
            "--data-dir", "/var/lib/juju",
            "--bin-dir", "/charm/bin",
            "--profile-dir", "/containeragent/etc/profile.d",
            *identity,
        ],
        "env": [
            {"name": "JUJU_CONTAINER_NAMES", "value": names},
            _field("JUJU_K8S_POD_NAME", "metadata.name"),
            _field("JUJU_K8S_POD_UUID", "metadata.uid"),
        ],
        "envFrom": [{"secretRef": {"name": f"{application.name}-application-config"}}],
        "volumeMounts": [
            _mount("/var/lib/juju", "var/lib/juju"),
            _mount("/containeragent/pebble", "containeragent/pebble"),
            _mount("/charm/bin", "charm/bin"),
            _mount("/charm/containers", "charm/containers"),
            _mount("/containeragent/etc/profile.d", "containeragent/etc/profile.d"),
            *([_mount("/charm/etc/pebble", "charm/etc/pebble")] if user else []),
        ],
        "securityContext": {"runAsUser": user, "runAsGroup": user} if user else {},
    }  # fmt: skip


def _charm_container(image: str, names: str, user: int | None, *, declared: bool) -> Object:
    return {
        "name": "charm",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "workingDir": "/var/lib/juju",
        "command": ["/charm/bin/pebble"],
        "args": ["run", "--http", ":38812", "--verbose"],
        "env": [
            {"name": "JUJU_CONTAINER_NAMES", "value": names},
            {"name": "HTTP_PROBE_PORT", "value": "3856"},
        ],
        "resources": CHARM_MEMORY,
        "securityContext": _run_as(user, declared=declared),
        "volumeMounts": [
            _mount("/charm/bin", "charm/bin", read_only=True),
            _mount("/var/lib/juju", "var/lib/juju"),
            _mount("/charm/containers", "charm/containers"),
            _mount("/var/lib/pebble/default", "containeragent/pebble"),
            _mount("/var/log/juju", "containeragent/var/log/juju"),
            _mount("/usr/bin/juju-introspect", AGENT, read_only=True),
            _mount("/usr/bin/juju-exec", AGENT, read_only=True),
            _mount("/etc/profile.d/juju-introspection.sh", PROFILE, read_only=True),
        ],
        **_probes(38812),
    }


def _workload(
    application: Application,
    name: str,
    definition: Object,
    index: int,
    *,
    declared: bool,
    charm_user: int | None,
) -> Object:
    port = 38813 + index
    user = {
        key: definition[field]
        for key, field in (("runAsUser", "uid"), ("runAsGroup", "gid"))
        if field in definition
    }
    return {
        "name": name,
        "image": application.resources[definition["resource"]],
        "imagePullPolicy": "IfNotPresent",
        "command": ["/charm/bin/pebble"],
        "args": [
            *("run", "--create-dirs", "--hold", "--http", f":{port}", "--verbose"),
            *(("--identities", IDENTITIES) if charm_user else ()),
        ],
        "env": [
            {"name": "JUJU_CONTAINER_NAME", "value": name},
            {"name": "PEBBLE_SOCKET", "value": "/charm/container/pebble.socket"},
            {"name": "PEBBLE", "value": "/charm/container/pebble"},
            {"name": "PEBBLE_COPY_ONCE", "value": "/var/lib/pebble/default"},
        ],
        "securityContext": user if declared else {"runAsUser": 0, "runAsGroup": 0},
        "volumeMounts": [
            _mount("/charm/bin/pebble", "charm/bin/pebble", read_only=True),
            _mount("/charm/container", f"charm/containers/{name}"),
            *([_mount(IDENTITIES, IDENTITIES[1:], read_only=True)] if charm_user else []),
        ],
        **_probes(port),
    }


def _run_as(user: int | None, *, declared: bool) -> Object:
    if user:
        return {"runAsUser": user, "runAsGroup": user}
    return {} if declared else {"runAsUser": 0, "runAsGroup": 0}


def _probes(port: int) -> Object:
    def probe(level: str, **figures: int) -> Object:
        return {
            "httpGet": {"path": f"/v1/health?level={level}", "port": port},
            "timeoutSeconds": 1,
            "successThreshold": 1,
            **figures,
        }

    return {
        "startupProbe": probe("alive", periodSeconds=1, failureThreshold=30),
        "livenessProbe": probe("alive", periodSeconds=5, failureThreshold=3),
        "readinessProbe": probe("ready", periodSeconds=5, failureThreshold=1),
    }


def _field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _mount(path: str, inside: str, *, read_only: bool = False) -> Object:
    mount: Object = {"name": "charm-data", "mountPath": path, "subPath": inside}
    if read_only:
        mount["readOnly"] = True
    return mount

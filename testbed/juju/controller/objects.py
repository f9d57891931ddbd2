"""The Kubernetes objects of a model and its applications. Pure."""

from typing import Any

from .state import JUJU_VERSION, Application, Model

Object = dict[str, Any]

MANAGED = {"app.kubernetes.io/managed-by": "juju"}
CHARM_MEMORY = {"requests": {"memory": "64Mi"}, "limits": {"memory": "1024Mi"}}
UNTRUSTED_ROLE = (
    (["namespaces"], ["get", "list"]),
    (["pods", "services"], ["get", "list", "patch"]),
    (["pods/exec"], ["create"]),
)
EVERYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
CHARM_USERS = {"non-root": 170, "sudoer": 171}
"""User and group ids by metadata's `charm-user`."""

IDENTITIES = "/charm/etc/pebble/identities.yaml"
OPERATOR = "modeloperator"
OPERATOR_PORT = 17071


def model_labels(model: Model) -> dict[str, str]:
    """The labels by which Juju knows a model's objects."""
    return {"model.juju.is/name": model.name, "model.juju.is/id": model.uuid}


def application_labels(application: str) -> dict[str, str]:
    """Labels of an application's objects."""
    return {"app.kubernetes.io/name": application, **MANAGED}


def namespace(model: Model) -> Object:
    """The model's namespace."""
    annotations = {
        "model.juju.is/id": model.uuid,
        "controller.juju.is/id": model.controller_uuid,
    }
    meta = {"name": model.name, "labels": {**model_labels(model), **MANAGED}}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {**meta, "annotations": annotations},
    }


def rbac(
    model: str, name: str, labels: dict[str, str], *, cluster: list[Object], own: list[Object]
) -> list[Object]:
    """A ServiceAccount with a role in the namespace and one in the cluster."""
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": model}]
    cluster_name = f"{model}-{name}"
    api = "rbac.authorization.k8s.io"

    def thing(kind: str, called: str, **content: Any) -> Object:
        meta: Object = {"name": called, "labels": labels}
        if not kind.startswith("Cluster"):
            meta["namespace"] = model
        version = "v1" if kind == "ServiceAccount" else f"{api}/v1"
        return {"apiVersion": version, "kind": kind, "metadata": meta, **content}

    def reference(kind: str, called: str) -> Object:
        return {"apiGroup": api, "kind": kind, "name": called}

    return [
        thing("ServiceAccount", name, automountServiceAccountToken=False),
        thing("Role", name, rules=own),
        thing("RoleBinding", name, roleRef=reference("Role", name), subjects=subjects),
        thing("ClusterRole", cluster_name, rules=cluster),
        thing(
            "ClusterRoleBinding",
            cluster_name,
            roleRef=reference("ClusterRole", cluster_name),
            subjects=subjects,
        ),
    ]


def application_rbac(model: Model, application: Application) -> list[Object]:
    """The application's identity: everything with trust, little without."""
    own: list[Object] = [
        {"apiGroups": [""], "resources": resources, "verbs": verbs}
        for resources, verbs in UNTRUSTED_ROLE
    ]
    own[0]["resourceNames"] = [model.name]
    cluster: list[Object] = [
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list"]}
    ]
    if application.trust:
        own = cluster = EVERYTHING
    labels = {**application_labels(application.name), **model_labels(model)}
    return rbac(model.name, application.name, labels, cluster=cluster, own=own)


def model_operator(model: Model, image: str, controller: str, certificate: str) -> list[Object]:
    """The model operator, which serves Juju's labelling webhook."""
    target = {"operator.juju.is/name": OPERATOR, "operator.juju.is/target": "model"}
    labels = {**target, **MANAGED, "model.juju.is/disable-webhook": "true"}
    webhooks = {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["mutatingwebhookconfigurations"],
        "verbs": ["create", "delete", "get", "list", "update"],
    }
    namespaces = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list"]}
    accounts = {
        "apiGroups": [""],
        "resources": ["serviceaccounts"],
        "verbs": ["get", "list", "watch"],
    }
    environment = {
        "HTTP_PORT": str(OPERATOR_PORT),
        "SERVICE_NAME": OPERATOR,
        "SERVICE_NAMESPACE": model.name,
        "MODEL_NAME": model.name,
        "MODEL_UUID": model.uuid,
        "CONTROLLER": controller,
    }
    container = {
        "name": "juju-operator",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", "exec /opt/containeragent model"],
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "ports": [{"name": "api", "containerPort": OPERATOR_PORT, "protocol": "TCP"}],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/modeloperator"}],
    }
    meta = {"name": OPERATOR, "namespace": model.name, "labels": labels}
    pod = {
        "metadata": {"labels": labels},
        "spec": {
            "serviceAccountName": OPERATOR,
            "automountServiceAccountToken": True,
            "containers": [container],
            "volumes": [{"name": "config", "configMap": {"name": OPERATOR}}],
        },
    }
    ports = [{"name": "api", "port": OPERATOR_PORT, "targetPort": OPERATOR_PORT}]
    identity = rbac(
        model.name,
        OPERATOR,
        {**labels, **model_labels(model)},
        cluster=[namespaces, webhooks],
        own=[accounts],
    )
    return [
        *identity,
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": meta,
            "data": {"ca.crt": certificate, "password": model.password},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"selector": target, "ports": ports},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {"replicas": 1, "selector": {"matchLabels": target}, "template": pod},
        },
    ]


def application_objects(
    model: Model, application: Application, *, image: str, controller: str, certificate: str
) -> list[Object]:
    """Everything of an application but its scale, in the order of creation."""
    labels = application_labels(application.name)
    return [
        *application_rbac(model, application),
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": _meta(model, f"{application.name}-application-config", labels),
            "stringData": {
                "JUJU_K8S_APPLICATION": application.name,
                "JUJU_K8S_MODEL": model.name,
                "JUJU_K8S_APPLICATION_PASSWORD": application.password,
                "JUJU_K8S_CONTROLLER_ADDRESSES": controller,
                "JUJU_K8S_CONTROLLER_CA_CERT": certificate,
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _meta(model, f"{application.name}-endpoints", labels),
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": {"app.kubernetes.io/name": application.name},
            },
        },
        service(model, application),
        stateful_set(model, application, image),
    ]


def service(model: Model, application: Application) -> Object:
    """The application's Service, with the ports that its units opened."""
    opened = sorted({port for unit in application.units.values() for port in unit.ports})
    ports: list[Object] = [
        {
            "name": f"juju-{port.replace('/', '-')}",
            "port": int(port.split("/")[0]),
            "protocol": port.split("/")[1].upper(),
        }
        for port in opened
        if "/" in port
    ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _meta(model, application.name, application_labels(application.name)),
        "spec": {
            "type": "ClusterIP",
            "selector": {"app.kubernetes.io/name": application.name},
            "ports": ports or [{"name": "placeholder", "port": 65535, "protocol": "TCP"}],
        },
    }


def stateful_set(model: Model, application: Application, image: str) -> Object:
    """The StatefulSet of the units."""
    meta = _meta(model, application.name, application_labels(application.name))
    meta["annotations"] = {
        "controller.juju.is/id": model.controller_uuid,
        "model.juju.is/id": model.uuid,
        "juju.is/version": JUJU_VERSION,
        "app.juju.is/uuid": application.storage_id,
    }
    selector = {"app.kubernetes.io/name": application.name}
    alive = max((int(name.rpartition("/")[2]) + 1 for name in application.units), default=0)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": meta,
        "spec": {
            "replicas": alive,
            "podManagementPolicy": "Parallel",
            "serviceName": f"{application.name}-endpoints",
            "selector": {"matchLabels": selector},
            "template": {
                "metadata": {
                    "labels": selector,
                    "annotations": {
                        "controller.juju.is/id": model.controller_uuid,
                        "model.juju.is/id": model.uuid,
                        "juju.is/version": JUJU_VERSION,
                    },
                },
                "spec": _pod_spec(application, image),
            },
        },
    }


def _pod_spec(application: Application, image: str) -> Object:
    containers = application.metadata.get("containers") or {}
    names = ",".join(sorted(containers))
    user = CHARM_USERS.get(application.metadata.get("charm-user", "root"))
    declared = bool(user) or any("uid" in c or "gid" in c for c in containers.values())
    spec: Object = {
        "serviceAccountName": application.name,
        "automountServiceAccountToken": True,
        "terminationGracePeriodSeconds": 30,
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
            _mount("/charm/etc/pebble", "charm/etc/pebble"),
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
            *([_mount("/charm/etc/pebble", "charm/etc/pebble")] if charm_user else []),
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


def _meta(model: Model, name: str, labels: dict[str, str]) -> Object:
    return {"name": name, "namespace": model.name, "labels": labels}

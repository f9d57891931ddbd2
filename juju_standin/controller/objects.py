"""The Kubernetes objects of a model and its applications. Pure."""

from typing import Any

from . import pods
from .state import JUJU_VERSION, Application, Model

Object = dict[str, Any]

MANAGED = {"app.kubernetes.io/managed-by": "juju"}
UNTRUSTED_ROLE = (
    (["namespaces"], ["get", "list"]),
    (["pods", "services"], ["get", "list", "patch"]),
    (["pods/exec"], ["create"]),
)
EVERYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
OPERATOR = "modeloperator"
OPERATOR_PORT = 17071
CONTROLLER = "controller"
"""The application and the model of Juju's controller."""
PLACEHOLDER: Object = {"name": "placeholder", "port": 65535, "protocol": "TCP"}


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
    of: Model, name: str, labels: dict[str, str], *, cluster: list[Object], own: list[Object]
) -> list[Object]:
    """A ServiceAccount with a role in the namespace and one in the cluster.

    The webhook of the controller's own model labels what has no namespace.
    """
    model = of.name
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": model}]
    cluster_name = f"{model}-{name}"
    by_controller = {
        "app.juju.is/created-by": CONTROLLER,
        "model.juju.is/name": CONTROLLER,
        "model.juju.is/id": of.controller_uuid,
    }
    api = "rbac.authorization.k8s.io"

    def thing(kind: str, called: str, **content: Any) -> Object:
        meta: Object = {"name": called, "labels": labels}
        if kind.startswith("Cluster"):
            meta["labels"] = {**labels, **by_controller}
        else:
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
    return rbac(model, application.name, labels, cluster=cluster, own=own)


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
        model,
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
    """The application's Service, with the ports that its units opened beside the placeholder."""
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
            "ports": [PLACEHOLDER, *ports],
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
                "spec": pods.pod_spec(application, image),
            },
        },
    }


def _meta(model: Model, name: str, labels: dict[str, str]) -> Object:
    return {"name": name, "namespace": model.name, "labels": labels}

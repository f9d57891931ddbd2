"""A model with members of the mesh, as objects of the API server."""

MODEL = "kubeflow"
PROXY = {"name": "istio-proxy", "args": ["proxy", "sidecar"]}


def pod(name, *containers, inside=True, labels=None, notes=None, phase="Running"):
    """A pod of a StatefulSet that Juju would make."""
    proxies = [PROXY] if inside else []
    app = {"app.kubernetes.io/name": name}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-0",
            "namespace": MODEL,
            "labels": {**app, "apps.kubernetes.io/pod-index": "0"} if labels is None else labels,
            "annotations": notes or {},
        },
        "spec": {"containers": [{"name": "app"}, *containers], "initContainers": proxies},
        "status": {"phase": phase},
    }


def stateful_set(name, *containers, labels=None, notes=None):
    app = {"app.kubernetes.io/name": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": MODEL},
        "spec": {
            "selector": {"matchLabels": app},
            "template": {
                "metadata": {"labels": {**app, **(labels or {})}, "annotations": notes or {}},
                "spec": {"containers": [{"name": "app"}, *containers]},
            },
        },
    }


def service(name, port, target=None, **spec):
    entry = {"port": port, "targetPort": target or port, "name": "main"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": MODEL},
        "spec": {"selector": {"app.kubernetes.io/name": name}, "ports": [entry], **spec},
    }


def webhook(name, service, port=443, namespace=MODEL, kind="ValidatingWebhookConfiguration"):
    called = {"name": service, "namespace": namespace, "port": port}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": "a.b.c",
                "clientConfig": {"service": called},
                "namespaceSelector": {"matchLabels": {"nobody": "has-this"}},
                "objectSelector": {},
            }
        ],
    }


def definition(name, service, strategy="Webhook"):
    client = {"service": {"name": service, "namespace": MODEL, "path": "/convert"}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {"conversion": {"strategy": strategy, "webhook": {"clientConfig": client}}},
    }


def api_service(name, service):
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": name},
        "spec": {"service": {"name": service, "namespace": MODEL, "port": 443}},
    }


def destination_rule(host, mode="DISABLE", namespace=MODEL, port=0):
    tls = {"tls": {"mode": mode}}
    policy = {"portLevelSettings": [{"port": {"number": port}, **tls}]} if port else tls
    return {
        "apiVersion": "networking.istio.io/v1",
        "kind": "DestinationRule",
        "metadata": {"name": "theirs", "namespace": namespace},
        "spec": {"host": host, "trafficPolicy": policy},
    }


def profile(name):
    """The namespace of a user."""
    labels = {"app.kubernetes.io/part-of": "kubeflow-profile"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def peers(name, *, mode="", namespace=MODEL, selector=None, ports=None, **metadata):
    spec = {}
    if mode:
        spec["mtls"] = {"mode": mode}
    if selector:
        spec["selector"] = {"matchLabels": selector}
    if ports:
        spec["portLevelMtls"] = {str(port): {"mode": how} for port, how in ports.items()}
    return {
        "apiVersion": "security.istio.io/v1",
        "kind": "PeerAuthentication",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": spec,
    }


def probed(port, **more):
    """A container that the kubelet calls, where the injector left it alone."""
    ports = [{"containerPort": 8080, "name": "web"}]
    return {"name": "web", "readinessProbe": {"httpGet": {"port": port, **more}}, "ports": ports}


def member(name, *containers, **fields):
    """A workload with its pod in the mesh."""
    return [stateful_set(name, *containers), pod(name, *containers, **fields)]

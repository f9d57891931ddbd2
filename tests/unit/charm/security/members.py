"""A model with members of the mesh, as objects of the API server."""

from integrator_contract import names
from tests.unit.charm.objects import make

MODEL = "kf"
PROXY = {"name": "istio-proxy", "args": ["proxy", "sidecar"]}


def pod(name, *containers, inside=True, labels=None, notes=None, phase="Running"):
    """A pod of a StatefulSet that Juju would make."""
    proxies = [PROXY] if inside else []
    if labels is None:
        labels = {"app.kubernetes.io/name": name, "apps.kubernetes.io/pod-index": "0"}
    spec = {"containers": [{"name": "app"}, *containers], "initContainers": proxies}
    meta = {"labels": labels, "annotations": notes or {}}
    return make("Pod", f"{name}-0", spec=spec, status={"phase": phase}, **meta)


def stateful_set(name, *containers, labels=None, notes=None, **spec):
    app = {"app.kubernetes.io/name": name}
    metadata = {"labels": {**app, **(labels or {})}, "annotations": notes or {}}
    template = {
        "metadata": metadata,
        "spec": {"containers": [{"name": "app"}, *containers], **spec},
    }
    return make("StatefulSet", name, spec={"selector": {"matchLabels": app}, "template": template})


def service(name, port, target=None, **spec):
    entry = {"port": port, "targetPort": target or port, "name": "main"}
    # No caller of a port for UDP needs a certificate.
    datagrams = {"port": 53, "targetPort": 53, "name": "dns", "protocol": "UDP"}
    selector = {"app.kubernetes.io/name": name}
    return make("Service", name, spec={"selector": selector, "ports": [entry, datagrams], **spec})


def webhook(name, service, port=443, namespace=MODEL, kind="ValidatingWebhookConfiguration"):
    called = {"name": service, "namespace": namespace, "port": port}
    # The first one calls no Service.
    calls = {"b.b.c": {"url": "https://hooks.example.com"}, "a.b.c": {"service": called}}
    nobody = {"matchLabels": {"nobody": "has-this"}}
    # A real API server refuses a hook without sideEffects and admissionReviewVersions.
    about = {"objectSelector": {}, "namespaceSelector": nobody, "failurePolicy": "Ignore"}
    about |= {"sideEffects": "None", "admissionReviewVersions": ["v1"]}
    hooks = [{"name": each, "clientConfig": call, **about} for each, call in calls.items()]
    return make(kind, name, "", webhooks=hooks)


def definition(name, service, strategy="Webhook"):
    """A kind with a schema that nests as schemas do, which hooks do not keep."""
    schema = {}
    for _ in range(50):
        schema = {"properties": {"a": schema}}
    client = {"service": {"name": service, "namespace": MODEL, "path": "/convert"}}
    conversion = {"strategy": strategy, "webhook": {"clientConfig": client}}
    return make(
        "CustomResourceDefinition", name, "", spec={"conversion": conversion, "schema": schema}
    )


def api_service(name, service):
    called = {"name": service, "namespace": MODEL, "port": 443}
    return make("APIService", name, "", spec={"service": called})


def destination_rule(host, mode="DISABLE", namespace=MODEL, port=0, *, is_of_subset=False):
    """A rule, whose first port and first subset have clients send certificates."""
    tls, fine = {"tls": {"mode": mode}}, {"tls": {"mode": "ISTIO_MUTUAL"}}
    ports = [{"port": {"number": 1}, **fine}, {"port": {"number": port}, **tls}]
    policy = {"portLevelSettings": ports} if port else tls
    spec = {"host": host, "trafficPolicy": fine if is_of_subset else policy}
    if is_of_subset:
        subsets = (("a", fine), ("b", policy))
        spec["subsets"] = [{"name": name, "trafficPolicy": each} for name, each in subsets]
    return make("DestinationRule", "theirs", namespace, spec=spec)


def sidecar(*hosts, namespace=MODEL, **spec):
    """A Sidecar with egress hosts, all of the second listener."""
    egress = [{"hosts": []}, {"hosts": [*hosts]}]
    return make("Sidecar", "theirs", namespace, spec={"egress": egress, **spec})


def profile(name, **labels):
    """The namespace of a user, with labels of this charm."""
    labels = {f"{names.PREFIX}{key}": value for key, value in labels.items()}
    labels["app.kubernetes.io/part-of"] = "kubeflow-profile"
    return make("Namespace", name, "", labels=labels)


def peers(name, *, mode="", namespace=MODEL, selector=None, ports=None, **metadata):
    spec = {}
    if mode:
        spec["mtls"] = {"mode": mode}
    if selector:
        spec["selector"] = {"matchLabels": selector}
    if ports:
        spec["portLevelMtls"] = {str(port): {"mode": how} for port, how in ports.items()}
    return make("PeerAuthentication", name, namespace, spec=spec, **metadata)


def probed(port, **more):
    """A container that the kubelet calls, where the injector left it alone."""
    ports = [{"containerPort": 8080, "name": "web"}]
    return {"name": "web", "readinessProbe": {"httpGet": {"port": port, **more}}, "ports": ports}


def member(name, *containers, **fields):
    """A workload with its pod in the mesh."""
    return [stateful_set(name, *containers), pod(name, *containers, **fields)]

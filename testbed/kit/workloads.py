"""The objects that the demo and the end-to-end tests put into the cluster.

None of them knows of the charm: they are what a user would write.
"""

from collections.abc import Mapping, Sequence

from testbed import kubernetes

DIGITS_URL = "http://digits/digits.npz"

SLOW_PROXY = {"sidecar.istio.io/proxyCPU": "10m", "sidecar.istio.io/proxyCPULimit": "200m"}
"""With a fifth of a processor the proxy takes some seconds to start, as on a busy node."""

CLASSIC = {"sidecar.istio.io/nativeSidecar": "false"}
"""Where sidecars are native, a pod that asks for the classic kind."""

NO_SIDECAR = {"sidecar.istio.io/inject": "false"}

Labels = Mapping[str, str]


def namespace(name: str, labels: Labels | None = None) -> kubernetes.Object:
    """A namespace."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": dict(labels or {})},
    }


def manifest(
    version: str, kind: str, name: str, namespace: str, /, **spec: object
) -> kubernetes.Object:
    """An object with this spec."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def istio(kind: str, name: str, namespace: str, /, **spec: object) -> kubernetes.Object:
    """One of Istio's objects."""
    is_security = kind in ("AuthorizationPolicy", "PeerAuthentication")
    version = f"{'security' if is_security else 'networking'}.istio.io/v1"
    return manifest(version, kind, name, namespace, **spec)


def service(
    name: str, namespace: str, port: int, *, selector: Labels | None = None, **fields: object
) -> kubernetes.Object:
    """A Service with one port for HTTP, of the Deployment of its name unless it selects others."""
    ports = [{"name": "http", "port": port, **fields}]
    selected = dict(selector or {"app": name})
    return manifest("v1", "Service", name, namespace, selector=selected, ports=ports)


def tls_secret(name: str, namespace: str, certificate: str, key: str) -> kubernetes.Object:
    """A Secret with a certificate and its key."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": {"tls.crt": certificate, "tls.key": key},
    }


def budget(name: str, namespace: str, **limit: int) -> kubernetes.Object:
    """A PodDisruptionBudget for the pods of a Deployment."""
    selector = {"matchLabels": {"app": name}}
    kind = "PodDisruptionBudget"
    return manifest("policy/v1", kind, name, namespace, selector=selector, **limit)


def payload(script: str, *args: object) -> list[str]:
    """The command line of one of the application image's scripts."""
    return ["python3", f"/opt/payload/{script}", *map(str, args)]


def container(
    name: str, image: str, command: Sequence[str], **fields: object
) -> kubernetes.Object:
    """A container of the application image, with small requests."""
    return {
        "name": name,
        "image": image,
        "command": list(command),
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        **fields,
    }


def template(
    containers: Sequence[kubernetes.Object],
    *,
    restart_policy: str = "Always",
    labels: Labels | None = None,
    annotations: Labels | None = None,
) -> kubernetes.Object:
    """A pod template."""
    return {
        "metadata": {"labels": dict(labels or {}), "annotations": dict(annotations or {})},
        "spec": {
            "restartPolicy": restart_policy,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 5,
            "containers": list(containers),
        },
    }


def pod(name: str, namespace: str, body: kubernetes.Object) -> kubernetes.Object:
    """A bare pod from a template."""
    metadata = {**body["metadata"], "name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body["spec"]}


def job(
    name: str, namespace: str, body: kubernetes.Object, *, retries: int = 0
) -> kubernetes.Object:
    """A Job from a template."""
    return manifest("batch/v1", "Job", name, namespace, backoffLimit=retries, template=body)


def deployment(name: str, namespace: str, body: kubernetes.Object) -> kubernetes.Object:
    """A Deployment of one replica from a template whose labels name the app."""
    labels = {"app": name}
    metadata = {**body["metadata"], "labels": {**body["metadata"]["labels"], **labels}}
    made = manifest(
        "apps/v1",
        "Deployment",
        name,
        namespace,
        replicas=1,
        selector={"matchLabels": labels},
        template={**body, "metadata": metadata},
    )
    made["metadata"]["labels"] = labels
    return made


def server(image: str, command: Sequence[str], path: str = "/") -> kubernetes.Object:
    """A template with a container that listens at port 8080, and is ready when it answers."""
    probe = {"httpGet": {"path": path, "port": 8080}, "periodSeconds": 1}
    port = {"containerPort": 8080, "name": "http"}
    return template([container("server", image, command, ports=[port], readinessProbe=probe)])


def profile(name: str) -> list[kubernetes.Object]:
    """A profile with Kubeflow's policy and strict mutual TLS."""
    labels = {"app.kubernetes.io/part-of": "kubeflow-profile", "istio-injection": "enabled"}
    return [namespace(name, labels), profile_policy(name), strict(name)]


def strict(namespace: str) -> kubernetes.Object:
    """Strict mutual TLS in a namespace."""
    return istio("PeerAuthentication", "default", namespace, mtls={"mode": "STRICT"})


def profile_policy(namespace: str) -> kubernetes.Object:
    """The policy that Kubeflow's profile controller writes into a profile.

    As in getAuthorizationPolicy of profile_controller.go in kubeflow/dashboard.
    """
    gateway, kubeflow = "cluster.local/ns/istio-system/sa", "cluster.local/ns/kubeflow/sa"
    fronts = [f"{gateway}/istio-ingressgateway-service-account", f"{kubeflow}/ml-pipeline-ui"]
    notebooks = [f"{kubeflow}/notebook-controller-service-account"]
    paths = ["/healthz", "/metrics", "/wait-for-drain"]
    owner = {"key": "request.headers[kubeflow-userid]", "values": [f"{namespace}@example.com"]}
    rules = [
        {"from": [{"source": {"principals": fronts}}], "when": [owner]},
        {"when": [{"key": "source.namespace", "values": [namespace]}]},
        {"to": [{"operation": {"paths": paths}}]},
        {
            "from": [{"source": {"principals": notebooks}}],
            "to": [{"operation": {"methods": ["GET"], "paths": ["*/api/kernels"]}}],
        },
    ]
    name = "ns-owner-access-istio"
    return istio("AuthorizationPolicy", name, namespace, action="ALLOW", rules=rules)


def digits(namespace: str, image: str) -> list[kubernetes.Object]:
    """The server that training jobs download their data from."""
    body = server(image, payload("digits.py", "--port", 8080), "/healthz")
    served = service("digits", namespace, 80, targetPort=8080)
    return [deployment("digits", namespace, body), served]


def tfjob(
    name: str,
    namespace: str,
    image: str,
    *,
    workers: int = 2,
    annotations: Labels | None = None,
) -> kubernetes.Object:
    """A training job: a chief and workers, each tried again when it fails."""
    main = container(
        "tensorflow",
        image,
        payload("train.py", "--data", DIGITS_URL),
        ports=[{"containerPort": 2222, "name": "tfjob-port"}],
    )
    # One thread each: three replicas share the node's processors with everything else.
    main["env"] = [{"name": "OPENBLAS_NUM_THREADS", "value": "1"}]
    body = template([main], annotations=annotations)
    # The operator sets the pods' restart policy from the replicas' one.
    del body["spec"]["restartPolicy"]
    replica = {"restartPolicy": "OnFailure", "template": body}
    return manifest(
        "kubeflow.org/v1",
        "TFJob",
        name,
        namespace,
        runPolicy={"cleanPodPolicy": "None"},
        tfReplicaSpecs={
            "Chief": {**replica, "replicas": 1},
            "Worker": {**replica, "replicas": workers},
        },
    )


def first_request(
    name: str,
    namespace: str,
    image: str,
    *,
    url: str = "http://digits/healthz",
    labels: Labels | None = None,
    annotations: Labels | None = None,
) -> kubernetes.Object:
    """A Job whose first instruction is an HTTP request; it is not tried again."""
    main = container("main", image, payload("first_request.py", url))
    body = template([main], restart_policy="Never", labels=labels, annotations=annotations)
    return job(name, namespace, body)


def sleeper(
    name: str,
    namespace: str,
    image: str,
    *,
    seconds: float = 1,
    labels: Labels | None = None,
    annotations: Labels | None = None,
) -> kubernetes.Object:
    """A Job that needs no network and ends after a while."""
    main = container("main", image, ["python3", "-c", f"import time; time.sleep({seconds})"])
    body = template([main], restart_policy="Never", labels=labels, annotations=annotations)
    return job(name, namespace, body)

"""Objects of a cluster that several tests of the diagnosis look at."""

from istio_integrator.ingress import gateway
from istio_integrator.istio import installation

ALIVE = installation.Mesh(
    namespace="istio-system",
    revision="default",
    is_default=True,
    version="1.31.1",
    alive=True,
    probed=True,
)

TARGET = gateway.Target(
    namespace="istio-ingress",
    selector={"istio": "ingressgateway"},
    service="gw",
    http_port=80,
    https_port=443,
    ready=True,
    workload="gw",
)


def service(
    kind="ClusterIP", *addresses, ports=((80, 8080),), name="gw", namespace="istio-ingress"
):
    return {
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "type": kind,
            "clusterIP": "10.0.0.1",
            "ports": [
                {"port": port, "targetPort": target, "name": f"http-{port}"}
                for port, target in ports
            ],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": each} for each in addresses]}},
    }


def pod(name="web", *, proxy=True, **labels):
    containers = [{"name": "main"}, *([{"name": "istio-proxy"}] if proxy else [])]
    marks = {key.replace("_", "."): value for key, value in labels.items()}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "a", "labels": marks or {"app": name}},
        "spec": {"containers": containers},
    }


def obj(kind, namespace, name="x", labels=None, **spec):
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
    return {"kind": kind, "metadata": metadata, "spec": spec}

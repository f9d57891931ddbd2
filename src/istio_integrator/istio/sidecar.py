"""Meaning of a Sidecar's egress hosts."""

from istio_integrator.kube import cluster


def hides_service(spec: cluster.Object, host: str, *, namespace: str, from_namespace: str) -> bool:
    """Tell whether proxies with a Sidecar do not know a Service, and so call it in plain text.

    A Sidecar without egress hosts hides no Service. A host is `NAMESPACE/NAME` with `*`, and with
    `.` for the namespace of the proxy (istio.io, Sidecar, IstioEgressListener).

    Args:
        spec: The Sidecar's spec.
        host: The full name of the Service.
        namespace: The namespace of the Service.
        from_namespace: The namespace of the proxy.
    """
    entries = [
        str(each).partition("/")
        for listener in cluster.parts(spec, "egress")
        for each in cluster.items(listener, "hosts")
    ]
    places = {"*", namespace, "." if namespace == from_namespace else namespace}
    return bool(entries) and not any(
        place in places and (name == host or (name[:1] == "*" and host.endswith(name[1:])))
        for place, _, name in entries
    )

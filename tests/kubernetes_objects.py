"""Objects as tests write them into a real API server, in few words."""


def made(api_version, kind, name, namespace="", spec=None, **more):
    """An object of any kind; `metadata` has what it bears beside its name."""
    place = {"namespace": namespace} if namespace else {}
    metadata = {**more.pop("metadata", {}), "name": name, **place}
    found = {"apiVersion": api_version, "kind": kind, "metadata": metadata, **more}
    return found if spec is None else {**found, "spec": spec}


def namespace_of(name, **labels):
    """A namespace."""
    return made("v1", "Namespace", name, metadata={"labels": labels})


def endpoint_slice(service, namespace, address, *ports):
    """The EndpointSlice of a Service without a selector: ports at one address."""
    return made(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        service,
        namespace,
        metadata={"labels": {"kubernetes.io/service-name": service}},
        addressType="IPv4",
        endpoints=[{"addresses": [address], "conditions": {"ready": True}}],
        ports=list(ports),
    )


def _pod_spec(**fields):
    return {"containers": [{"name": "main", "image": "none"}], **fields}


def pod(name, namespace, metadata=None, **spec):
    """A pod; what nothing is said of has one container, which never runs."""
    return made("v1", "Pod", name, namespace, _pod_spec(**spec), metadata=metadata or {})


def workload(kind, name, namespace, labels, metadata=None, **pod_spec):
    """A Deployment or StatefulSet that wants no pod yet."""
    spec = {
        "replicas": 0,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": _pod_spec(**pod_spec)},
    }
    if kind == "StatefulSet":
        spec["serviceName"] = f"{name}-endpoints"
    return made("apps/v1", kind, name, namespace, spec, metadata=metadata or {})

"""What an installation of Istio with ambient mode has, as Istio's own charts write it."""


def daemon(name, selector, *, namespace="istio-system", wanted=2, ready=2):
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": selector}},
        "status": {"desiredNumberScheduled": wanted, "numberReady": ready},
    }


ZTUNNEL = daemon("ztunnel", {"app": "ztunnel"})
NODE_AGENT = daemon("istio-cni-node", {"k8s-app": "istio-cni-node"}, namespace="kube-system")


def istiod(*environment):
    container = {"name": "discovery", "env": list(environment)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "istiod", "namespace": "istio-system"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


SERVING = istiod({"name": "PILOT_ENABLE_AMBIENT", "value": "true"})


def install_ambient(fake):
    """Have an Istio with all that ambient mode takes."""
    for each in (ZTUNNEL, NODE_AGENT, SERVING):
        fake.add(each)

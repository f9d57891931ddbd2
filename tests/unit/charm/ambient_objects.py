"""Objects of an installation of Istio with ambient mode, as Istio's charts write them."""

from tests.unit.charm.objects import make


def daemon(name, selector, *, namespace="istio-system", wanted=2, ready=2):
    spec = {"selector": {"matchLabels": selector}}
    status = {"desiredNumberScheduled": wanted, "numberReady": ready}
    return make("DaemonSet", name, namespace, spec=spec, status=status)


ZTUNNEL = daemon("ztunnel", {"app": "ztunnel"})
NODE_AGENT = daemon("istio-cni-node", {"k8s-app": "istio-cni-node"}, namespace="kube-system")


def istiod(*environment):
    container = {"name": "discovery", "env": list(environment)}
    spec = {"template": {"spec": {"containers": [container]}}}
    return make("Deployment", "istiod", "istio-system", spec=spec)


SERVING = istiod({"name": "PILOT_ENABLE_AMBIENT", "value": "true"})


def into_ambient(fake, **labels):
    """Put the model into ambient mode."""
    install_ambient(fake)
    space = fake.find("Namespace", "kf")
    space["metadata"]["labels"] = {"istio.io/dataplane-mode": "ambient", **labels}


def install_ambient(fake):
    """Install the components of ambient mode."""
    for each in (ZTUNNEL, NODE_AGENT, SERVING):
        fake.add(each)

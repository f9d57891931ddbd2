"""A model in which the commands of how-to pages are typed, and what they name there."""

import contextlib
import json
import time

import yaml

from testbed.kit import workloads
from tests.e2e import ingress_world as world
from tests.e2e import pages
from tests.e2e.pods import has_proxy

APP = world.APP
METADATA = yaml.safe_load((pages.ROOT / "metadata.yaml").read_text())
INTERFACES = {
    endpoint: (side, entry["interface"])
    for side in ("provides", "requires")
    for endpoint, entry in METADATA[side].items()
}
OTHER_SIDE = {"provides": "requires", "requires": "provides"}
NAMED = "app.kubernetes.io/name"
CREATED_BY = "app.juju.is/created-by"
FOR_EVER = ["python3", "-c", "import threading; threading.Event().wait()"]


def deployment(name, namespace, image, command, **container):
    """A Deployment of one pod."""
    made = workloads.container(name, image, command, **container)
    return workloads.deployment(name, namespace, workloads.template([made]))


class Place(world.Place):
    """A model with the charm, and what pages name in it."""

    named = took = 0.0
    """Seconds from the installation to the status that says what was found, and to its end."""

    def labels(self, namespace):
        """Those of a namespace, without what Juju says there of who wrote last."""
        found = self.read("namespace", namespace)["metadata"].get("labels", {})
        return {key: value for key, value in found.items() if key != CREATED_BY}

    def made(self, name, namespace=None, image="none"):
        """A pod of an application as it would be created now."""
        argv = ("run", "asked", f"--image={image}", f"--labels={NAMED}={name}", "-o", "json")
        where = ("-n", namespace or self.juju.model, "--dry-run=server")
        return json.loads(self.kubectl(*argv, *where))

    def proxies(self, **labels):
        """Of each pod that stays, whether it has a sidecar."""
        wanted = ",".join(f"{key}={value}" for key, value in labels.items())
        found = self.list("pods", self.juju.model, wanted)
        return [has_proxy(pod) for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def state(self, container, pod, namespace=None):
        """How a container of a pod is: `running`, `terminated` or `waiting`."""
        found = self.read("pod", pod, namespace) or {"status": {}}
        statuses = found["status"].get("containerStatuses", ())
        return next(
            (word for one in statuses if one["name"] == container for word in one["state"]), ""
        )

    def complete(self, pod, namespace, timeout=60):
        """Wait until a pod has succeeded."""
        phase = ("--for=jsonpath={.status.phase}=Succeeded", f"--timeout={timeout}s")
        self.kubectl("wait", "-n", namespace, f"pod/{pod}", *phase)

    def said_to(self, application, endpoint):
        """What the charm tells an application by a relation."""
        unit = self.juju.show_unit(f"{APP}/0")
        return next(
            each["local-application-data"]
            for each in unit["relation-info"]
            if each["endpoint"] == endpoint
        )

    def script(self, blocks):
        """Have the applications that blocks relate."""
        for name, script in related(blocks, self.juju.model).items():
            self.juju.fake_app(name, script)

    def clear(self, before):
        """Take scripted applications away, and set the options back."""
        for name, each in self.juju.status()["applications"].items():
            if name != APP and each["charm"] == name:
                self.juju.remove_application(name)
        now = self.juju.config(APP)
        if changed := tuple(key for key in now if now[key] != before[key]):
            self.juju.config(APP, reset=changed)
        self.juju.wait(lambda found: set(found["applications"]) == {APP}, 400)
        self.settle()


def related(blocks, model):
    """The applications that blocks relate, each with what it says at its endpoints."""
    found = {}
    for words in pages.words(blocks):
        if words[:2] not in (["juju", "integrate"], ["juju", "remove-relation"]):
            continue
        ends = sorted(words[2:4], key=lambda end: not end.startswith(APP))
        ours, (name, _, theirs) = ends[0].partition(":")[2], ends[1].partition(":")
        side, interface = INTERFACES[ours]
        said = {"role": OTHER_SIDE[side], "interface": interface}
        found.setdefault(name, {})[theirs or ours] = {**said, **_said(name, ours, model)}
    return found


def _said(name, endpoint, model):
    consumer = {"mlflow-server": "mlflow"}.get(name, name)
    if endpoint == "ingress":
        return world.ingress_script(consumer)
    if endpoint == "ingress-auth":
        return world.auth_script()
    if endpoint == "forward-auth":
        return world.forward_script(model)
    if endpoint.startswith("istio-ingress-route"):
        prefix = world.CONSUMERS[consumer]["prefix"].rstrip("/") or "/"
        route = {
            "name": "web",
            "listener": {"port": 80, "protocol": "HTTP"},
            "backends": [{"service": consumer, "port": world.port_of(consumer)}],
            "matches": [{"path": {"type": "PathPrefix", "value": prefix}}],
        }
        config = json.dumps({"model": model, "http_routes": [route], "grpc_routes": []})
        return {"application": {"config": config}, "unit": {}}
    return {}


def applications(model, image):
    """Those that pages name: one that is called, a StatefulSet, and one who calls."""
    ready = {"tcpSocket": {"port": 8888}, "periodSeconds": 1}
    argv = workloads.payload("server.py", "--port", 8888)
    called = deployment("ml-pipeline", model, image, argv, readinessProbe=ready)
    caller = deployment("kfp-ui", model, image, FOR_EVER)
    owned = deployment("kfp-api", model, image, FOR_EVER)
    owned["kind"] = "StatefulSet"
    owned["spec"]["serviceName"] = "kfp-api"
    for each in (called, caller, owned):
        each["spec"]["template"]["metadata"]["labels"][NAMED] = each["metadata"]["name"]
    return [called, caller, owned, workloads.service("ml-pipeline", model, 8888)]


def worker(name, namespace, image, *beside, seconds=1):
    """A pod whose payload ends soon and whose classic proxy does not, with others beside it."""
    main = workloads.container("main", image, workloads.payload("sleep.py", seconds))
    others = [workloads.container(each, image, FOR_EVER) for each in beside]
    body = workloads.template(
        [main, *others], restart_policy="Never", annotations=workloads.CLASSIC
    )
    return workloads.pod(name, namespace, body)


(DEPLOY,) = pages.told("test_command_of_the_readme_brings_the_model_into_the_mesh")
"""README.md's command."""


@contextlib.contextmanager
def installed(node, model):
    """A model with applications, in which README.md's command was typed, and how long it took."""
    with Place(node, model) as place:
        place.apply(*applications(model, place.image))
        place.rolled_out("deployment/ml-pipeline", "deployment/kfp-ui", "statefulset/kfp-api")
        begin = time.monotonic()
        place.shell.run(DEPLOY)
        place.says("istio-system/istiod", 240)
        place.named = time.monotonic() - begin
        place.says("3/3 pods in mesh", 240)
        place.took = time.monotonic() - begin
        place.juju.wait_for(APP)
        yield place

"""A model in which things are broken, one after the other, and what leads to the answer."""

import contextlib
import json

import yaml

from juju_standin import client
from testbed import istio, paths
from testbed.kit import workloads
from tests import admission_policies, waiting
from tests.e2e import ingress_world as world
from tests.e2e import pages_world

APP = world.APP
SYMPTOMS = yaml.safe_load(
    (paths.SOURCE / "src/istio_integrator/diagnosis/symptoms.yaml").read_text()
)
CALLER = "caller"
PORT = world.port_of("kfp-ui")
ASK = """
import sys, urllib.error, urllib.request

try:
    print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""
WAIT_FOR_GREETING = """
import socket, sys

with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5) as connection:
    try:
        print("greeted", connection.recv(100))
    except OSError as error:
        print(type(error).__name__)
"""
CONNECT = """
import socket

socket.create_connection(("kubernetes.default.svc", 443), timeout=5)
"""
GREET = """
import socketserver

class Greeter(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(b"hello")
        self.request.recv(100)

socketserver.ThreadingTCPServer(("0.0.0.0", 5432), Greeter).serve_forever()
"""


class Place(pages_world.Place):
    """A model with the charm, its ingress and people who ask."""

    def diagnose(self, unit=f"{APP}/leader"):
        """The report as people read it."""
        try:
            outcome = self.juju.run(unit, "diagnose", {})
        except client.ActionFailedError as error:
            outcome = error.outcome
        return outcome["results"].get("report", outcome["message"])

    @contextlib.contextmanager
    def broken(self, *objects):
        """Have something broken for the time of the block, by objects or by what it does."""
        self.apply(*objects)
        try:
            yield
        finally:
            for each in objects:
                self.kubectl("delete", "-f", "-", "--wait=false", text=json.dumps(each))

    def leads(self, heading, line, *, timeout=90, unit=f"{APP}/leader"):
        """Type `diagnose` until a line has some words, and find what is said of the heading."""
        report = ""

        def found():
            nonlocal report
            report = self.diagnose(unit)
            return next((each for each in paragraphs(report) if line in each), "")

        paragraph = waiting.eventually(found, timeout)
        assert paragraph, report
        assert not paragraph.startswith("✓"), paragraph
        # A symptom is explained once in a report, below the first line that has it.
        symptom = SYMPTOMS[heading]
        assert f" {symptom['seen']}: {symptom['meaning']}\n" in report, report
        assert f" Remedy: {symptom['remedy']}\n" in report, report

    def visit(self, path="/pipeline/x", **headers):
        """The status and the text that somebody gets at the gateway, who is known by a cookie."""
        answer = self.browser().get(path, Cookie=world.echo.COOKIE, **headers)
        return f"{answer.status} {answer.text[:200]}".strip()

    def inside(self, program, *argv):
        """What a program of the caller's pod prints."""
        where = ("exec", "-n", self.juju.model, f"deployment/{CALLER}", "-c", CALLER, "--")
        return self.kubectl(*where, "python3", "-c", program, *map(str, argv)).strip()

    def sees(self, words, ask, timeout=90):
        """Wait until what somebody sees has words; the whole of it."""
        last = ""

        def seen():
            nonlocal last
            last = ask()
            return words in last

        assert waiting.eventually(seen, timeout), last
        return last

    def events(self, words, namespace=None):
        """The message of an Event that has words."""
        query = ("get", "events", "-n", namespace or self.juju.model, "-o", "json")
        found = [each["message"] for each in json.loads(self.kubectl(*query))["items"]]
        return next((each for each in found if words in each), "")


def paragraphs(report):
    """The findings of a report, each with the lines below it."""
    found = []
    for line in report.splitlines():
        if line.startswith(" ") and found:
            found[-1] += f"\n{line}"
        else:
            found.append(line)
    return found


@contextlib.contextmanager
def made(node, model):
    """A model that is reached from outside by people who are logged in, and all is well."""
    with Place(node, model) as place:
        place.deploy(node.charms.integrator)
        place.serve(["kubeflow-dashboard", world.AUTH, "kfp-ui"])
        place.apply(pages_world.deployment(CALLER, model, place.image, pages_world.FOR_EVER))
        place.rolled_out(f"deployment/{CALLER}")
        # Nobody gives LoadBalancers an address here.
        status = '{"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.10"}]}}}'
        where = ("-n", istio.INGRESS, istio.GATEWAY, "--subresource=status", "-p", status)
        place.kubectl("patch", "service", *where)
        place.integrate((world.AUTH, "kfp-ui"))
        yield place


def refusing(name, namespace, app):
    """A policy of another team that admits no pod of an application."""
    denied = f"object.metadata.?labels['app'].orValue('') != '{app}'"
    validation = {"expression": denied, "message": "not in this model"}
    return admission_policies.validating(name, namespace, validation)


def held(name, namespace, image):
    """A StatefulSet whose pods have somebody's finalizer, and so do not go."""
    found = pages_world.deployment(name, namespace, image, pages_world.FOR_EVER)
    found["kind"] = "StatefulSet"
    found["spec"]["template"]["metadata"]["finalizers"] = ["example.com/somebody-elses"]
    return found


def early(name, namespace, image):
    """A Deployment whose init container connects, before a classic proxy."""
    found = pages_world.deployment(name, namespace, image, pages_world.FOR_EVER)
    template = found["spec"]["template"]
    template["metadata"]["annotations"] = workloads.CLASSIC
    argv = ["python3", "-c", CONNECT]
    template["spec"]["initContainers"] = [workloads.container("fetch", image, argv)]
    return found


def freed(place, labels):
    """Take the finalizer from the pods that are left; whether there is none."""
    patch = '{"metadata": {"finalizers": null}}'
    for pod in place.kubectl("get", "pods", *labels, "-o", "name").split():
        place.node.testbed.kubectl("patch", "-n", place.juju.model, pod, "-p", patch, check=False)
    return not place.kubectl("get", "pods", *labels, "-o", "name")


def aged(place, seconds, labels):
    """Have what the workload remembers of replacements be from earlier, and look at it again."""
    where = ("-n", place.juju.model)
    maps = json.loads(place.kubectl("get", "configmaps", *where, "-o", "json"))["items"]
    (found,) = [each for each in maps if '"rounds"' in each.get("data", {}).get("state", "")]
    state = json.loads(found["data"]["state"])
    for each in state["rounds"].values():
        each["since"] -= seconds
    patch = json.dumps({"data": {"state": json.dumps(state)}})
    place.kubectl("patch", "configmap", *where, found["metadata"]["name"], "-p", patch)
    # It looks when a pod changes, and else when the time is up that it has just been robbed of.
    place.kubectl("annotate", "pods", *labels, "looked-at=again", "--overwrite")

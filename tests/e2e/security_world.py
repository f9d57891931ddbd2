"""Everybody who may call the applications of a model, and what they are answered."""

import json
import sys
from collections.abc import Callable
from concurrent import futures

from juju_standin import client
from tests import gateway_client, waiting
from tests.e2e import caller, ingress_world, pages
from tests.e2e.security_objects import (
    CHARMS,
    HOOKED,
    HTTP,
    IDENTITY,
    MODEL,
    NAME,
    PORTS,
    SCRAPERS,
    USERS,
)

APP = ingress_world.APP
CLAIM = [[IDENTITY, "bob@example.com"]]
Requests = list[tuple[str, list[list[str]]]]
Ask = Callable[[Requests], list[int]]


class World(ingress_world.Place):
    """The model on a node, and its callers."""

    def __init__(self, node):
        # What stands here for the applications that pages name.
        changes = {
            "minio:9000, mlmd": "store:8001, db",
            "--image=curlimages/curl": f"--image={node.charms.payload_image}",
            "exec notebook-0 ": "exec deploy/notebook ",
        }
        super().__init__(node, MODEL, changes)
        self.pods = {}
        """The pod of each application."""

    def declare(self, name):
        """Have a Service of Juju's say that it speaks HTTP."""
        port = {**HTTP, "port": PORTS[name]}
        patch = json.dumps({"spec": {"ports": [port]}})
        self.kubectl("patch", "service", "-n", MODEL, name, "-p", patch)

    def find_pods(self):
        """Look up where pods are, for callers that know no Service."""
        for pod in self.list("pods", MODEL):
            labels = pod["metadata"]["labels"]
            name = labels.get(NAME) or labels.get("app")
            if name in PORTS and pod["status"].get("podIP"):
                self.pods[name] = pod

    def exec(self, where, requests, namespace=MODEL):
        """Ask from inside of a pod, whose container comes after a blank."""
        pod, _, container = where.partition(" ")
        argv = ("exec", "-n", namespace, pod, "-c", container or "main", "--")
        told = self.kubectl(*argv, "python3", "-c", pages.CALLER, json.dumps(requests))
        return json.loads(told)

    def from_node(self, requests):
        """Ask as the kubelet and Juju's controller do, with the node's address."""
        argv = [sys.executable, "-c", pages.CALLER, json.dumps(requests)]
        return json.loads(self.node.testbed.exec(argv, capture_output=True, check=True).stdout)

    def by_service(self, target, headers):
        name = target.removesuffix("+claim")
        return f"http://{name}.{MODEL}.svc.cluster.local:{PORTS[name]}/x", headers

    def by_address(self, target, headers):
        name = target.removesuffix("+claim")
        address = self.pods[name]["status"]["podIP"]
        return f"http://{address}:{PORTS[name]}/x", headers

    def by_gateway(self, target, headers):
        name = target.removesuffix("+claim")
        return f"http://{self.address}/{name}", [["host", gateway_client.TENANT], *headers]

    def by_node_port(self, target, headers):
        port = self.read("service", f"{target}-node")["spec"]["ports"][0]["nodePort"]
        return f"http://{self.node.testbed.plan.node}:{port}/x", headers

    def locally(self, requests):
        return [caller.ask(*each) for each in requests]

    def api_server(self, target):
        """Have the API server call: a webhook of ours, Juju's, or a Service as a proxy."""
        testbed = self.node.testbed
        create = ("create", "configmap", "tried", "--dry-run=server", "-o", "json")
        if target == "hook":
            done = testbed.kubectl(*create, "-n", HOOKED, check=False)
            return 200 if done.returncode == 0 else 0
        if target == "modeloperator":
            uid = self.read("serviceaccount", "store")["metadata"]["uid"]
            who = f"--as=system:serviceaccount:{MODEL}:store", f"--as-uid={uid}"
            made = json.loads(self.kubectl(*create, "-n", MODEL, *who))
            labels = made["metadata"].get("labels", {})
            return 200 if labels.get("app.juju.is/created-by") == "store" else 0
        path = f"/api/v1/namespaces/{MODEL}/services/{target}:{PORTS[target]}/proxy/x"
        done = testbed.kubectl("get", "--raw", path, check=False)
        if done.returncode == 0:
            return 200
        return 403 if "Forbidden" in done.stderr or "RBAC" in done.stderr else 0

    def probes(self, target):
        """Ask what the kubelet does of a pod, from where it does; the worst answer."""
        pod = self.pods[target]
        containers = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
        address = pod["status"]["podIP"]
        asked = {
            (probe["httpGet"]["port"], probe["httpGet"].get("path", "/"))
            for container in containers
            for kind in ("livenessProbe", "readinessProbe", "startupProbe")
            if "httpGet" in (probe := container.get(kind, {}))
        }
        found = self.from_node(
            [(f"http://{address}:{port}{path}", []) for port, path in sorted(asked, key=str)]
        )
        assert found, "there is no probe to try"
        return next((status for status in found if status != 200), 200)

    def hooks_run(self):
        """Whether each application's agent runs a hook to its end."""

        def ran():
            log = self.juju.debug_log().splitlines()
            return {
                name: sum(f"unit-{name}-" in line and 'ran "config-changed" hook' in line
                          for line in log)
                for name in CHARMS
            }  # fmt: skip

        before = ran()
        for name in CHARMS:
            prefix = self.juju.config(name)["prefix"]
            self.juju.config(name, {"prefix": "/y/" if prefix == "/x/" else "/x/"})
        return waiting.eventually(
            lambda: all(count > before[name] for name, count in ran().items()), 60
        )

    def is_related(self, application, endpoint):
        unit = self.juju.show_unit(f"{application}/0")
        return any(each["endpoint"] == endpoint for each in unit["relation-info"])

    def previewed(self, options):
        """The lines of `preview-security` for some options."""
        given = {**options, "format": "json"}
        try:
            outcome = self.juju.run(f"{APP}/0", "preview-security", given)
        except client.ActionFailedError as error:
            outcome = error.outcome
        return json.loads(outcome["results"]["report"])

    def readiness(self):
        """Since when each pod of the model is ready, and how often its containers began anew."""
        return {
            pod["metadata"]["name"]: (
                [
                    (each["status"], each["lastTransitionTime"])
                    for each in pod["status"]["conditions"]
                    if each["type"] == "Ready"
                ],
                [each["restartCount"] for each in pod["status"]["containerStatuses"]],
            )
            for pod in self.list("pods", MODEL)
        }

    @property
    def callers(self):
        """Who asks how, each with the way to name a target to them."""
        return {
            "gateway": (self.locally, self.by_gateway),
            "kfp-ui": (lambda asked: self.exec("kfp-ui-0 server", asked), self.by_service),
            "db": (lambda asked: self.exec("db-0 server", asked), self.by_service),
            **{
                user: (
                    lambda asked, user=user: self.exec("deploy/notebook", asked, user),
                    self.by_service,
                )
                for user in USERS
            },
            "outsider": (lambda asked: self.exec("deploy/outsider", asked), self.by_service),
            "modeloperator": (
                lambda asked: self.exec("deploy/modeloperator juju-operator", asked),
                self.by_service,
            ),
            "scraper": (
                lambda asked: self.exec("deploy/scraper", asked, SCRAPERS),
                self.by_address,
            ),
            "controller": (self.from_node, self.by_address),
            "node-port": (self.locally, self.by_node_port),
        }

    def observe(self, cells):
        """Try each pair of caller and target; what came back."""
        found = {}
        todo: dict[str, list[str]] = {}
        for who, target in cells:
            todo.setdefault(who, []).append(target)

        def of(who, targets):
            if who == "api-server":
                return [self.api_server(target) for target in targets]
            if who == "kubelet":
                return [self.probes(target) for target in targets]
            ask, name = self.callers[who]
            requests = []
            for target in targets:
                if target == "store:15020":
                    address = self.pods["store"]["status"]["podIP"]
                    requests.append((f"http://{address}:15020/stats/prometheus", []))
                else:
                    requests.append(name(target, CLAIM if target.endswith("+claim") else []))
            return ask(requests)

        with futures.ThreadPoolExecutor(6) as pool:
            results = {who: pool.submit(of, who, targets) for who, targets in todo.items()}
            for who, targets in todo.items():
                answers = results[who].result()
                found |= {
                    (who, target): each for target, each in zip(targets, answers, strict=True)
                }
        return found

    def members(self, target, rate=50):
        """Ask from a member all the time; the dictionary has what came of it afterwards."""
        url, _ = self.by_service(target, [])
        return self.asking("kfp-ui-0", "server", url, rate)

"""Calls of a pod that the charm's EnvoyFilter applies to, by every way but that of its job."""

import asyncio
import contextlib
import json

import pytest

from integrator_contract import names
from juju_standin import client
from testbed.kit import juju, observer, training, workloads
from tests.e2e import training_world

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("integrated"), pytest.mark.timeout(600)]

USER = "k"
PROFILE = training_world.Setting(name=USER, is_strict=True, has_policy=True)
SHOP, OPEN, BARE = "k-2", "k-open", "mesh-2"
SPACES = {
    SHOP: {"istio-injection": "enabled"},
    OPEN: {"istio-injection": "enabled"},
    BARE: {"istio-injection": "disabled"},
}
"""Strict mutual TLS with sidecars, plain text with sidecars, and no sidecars."""
PORTS = {"shop": 7070, "open": 7072, "hidden": 7073}
UNDECLARED = 7071
"""A port that no Service declares."""
SERVER = """
import http.server, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = self.headers.get("x-forwarded-client-cert", "plain").encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
for port in range(7070, 7074):
    server = http.server.ThreadingHTTPServer(("", port), Handler)
    threading.Thread(target=server.serve_forever).start()
"""
CALLER = """
import json, sys, urllib.request
def ask(url):
    try:
        return urllib.request.urlopen(url, timeout=5).read().decode()
    except Exception:
        return "fails"
print(json.dumps([ask(each) for each in sys.argv[1:]]))
"""
CALLERS = ("opted-out", "labelled")
SAME, PLAIN, LOST, FAILS, GAINED = (
    dict(zip(CALLERS, each, strict=True))
    for each in (
        *(("identity", "identity"), ("plain", "plain"), ("plain", "fails"), ("fails", "fails")),
        ("fails", "plain"),
    )
)
TARGETS = {
    "ClusterIP": (f"shop.{SHOP}", 7070, SAME, SAME, SAME),
    "headless": (f"shop-pods.{SHOP}", 7070, SAME, SAME, SAME),
    "plain ClusterIP": (f"open.{OPEN}", 7072, SAME, PLAIN, FAILS),
    "plain headless": (f"open-pods.{OPEN}", 7072, SAME, LOST, FAILS),
    "not exported ClusterIP": (f"hidden.{OPEN}", 7073, PLAIN, PLAIN, FAILS),
    "not exported headless": (f"hidden-pods.{OPEN}", 7073, LOST, LOST, FAILS),
    "host outside": ("outside", UNDECLARED, PLAIN, PLAIN, FAILS),
    "pod without a sidecar": ("bare", UNDECLARED, LOST, LOST, FAILS),
    "pod of another namespace": ("open", UNDECLARED, LOST, LOST, FAILS),
    "pod of the same namespace": ("peer", UNDECLARED, GAINED, GAINED, GAINED),
}
"""A Service, or a Deployment whose pod is called by address; then what the callers get: without a
Sidecar object, with one that hides the namespace, and with one that has REGISTRY_ONLY as well."""
HIDING = {"egress": [{"hosts": ["./*", "istio-system/*", f"{SHOP}/*"]}]}
SIDECARS = (None, HIDING, {**HIDING, "outboundTrafficPolicy": {"mode": "REGISTRY_ONLY"}})
SERVERS = {
    **dict.fromkeys(("labelled", "peer"), (USER, {names.POD_TRAFFIC: names.MUTUAL_TLS})),
    "opted-out": (USER, training_world.UNCHANGED),
    "shop": (SHOP, {}),
    "open": (OPEN, {}),
    "bare": (BARE, {}),
    "outside": (BARE, {}),
}


def servers(image):
    """Deployments with a probe, of which two in the profile are the callers, and Services."""
    for name, (namespace, labels) in SERVERS.items():
        probe = {"httpGet": {"path": "/", "port": UNDECLARED}, "periodSeconds": 1}
        main = workloads.container("main", image, ["python3", "-c", SERVER], readinessProbe=probe)
        body = workloads.template([main], labels=labels)
        body["spec"]["hostNetwork"] = name == "outside"
        yield workloads.deployment(name, namespace, body)
    for name, port in PORTS.items():
        for end, spec in (("", {}), ("-pods", {"clusterIP": "None"})):
            namespace, app = (SHOP, "shop") if name == "shop" else (OPEN, "open")
            found = workloads.service(f"{name}{end}", namespace, port, selector={"app": app})
            found["spec"].update(spec)
            if name == "hidden":
                found["metadata"]["annotations"] = {"networking.istio.io/exportTo": "."}
            yield found


async def ready(api):
    """The addresses of the servers, once each of them is ready."""
    found = {}
    for namespace in (USER, *SPACES):
        for pod in await api.list("Pod", namespace):
            for each in pod["status"].get("conditions", ()):
                if (each["type"], each["status"]) == ("Ready", "True"):
                    found[pod["metadata"]["labels"]["app"]] = pod["status"]["podIP"]
    return found if len(found) == len(SERVERS) else None


async def diagnosed(on):
    """The names of what `diagnose` says of training."""
    ask = ("run", f"{juju.APPLICATION}/leader", "diagnose", {"format": "json"})
    try:
        outcome = await on.juju.do(*ask)
    except client.ActionFailedError as error:
        outcome = error.outcome
    rows = json.loads(outcome["results"]["report"])
    return [each["message"] for each in rows if each["check"] == "training"]


async def test_other_calls_of_a_labelled_pod_stay_as_they_are(on, node):
    await training.name_networks(on.juju, on.api)
    await training_world.prepare(on.api, PROFILE, on.model)
    spaces = (workloads.namespace(*each) for each in SPACES.items())
    await on.api.apply(*spaces, workloads.strict(SHOP))
    await on.api.apply(*servers(on.image))
    # The kubelet's probes of a labelled pod are answered, and commands run in it.
    addresses = await observer.eventually(lambda: ready(on.api), 180, "every server ready")
    urls = [f"http://{addresses.get(each, each)}:{port}/" for each, port, *_ in TARGETS.values()]

    def call(caller):
        where = ("exec", "-n", USER, f"deploy/{caller}", "-c", "main", "--")
        told = json.loads(node.testbed.kubectl(*where, "python3", "-c", CALLER, *urls).stdout)
        names = ["identity" if f"/ns/{USER}/sa/default" in each else each for each in told]
        return dict(zip(TARGETS, names, strict=True))

    for number, sidecar in enumerate(SIDECARS):
        if sidecar:
            await on.api.apply(workloads.istio("Sidecar", "default", USER, **sidecar))
        wanted = {
            caller: {name: each[2 + number][caller] for name, each in TARGETS.items()}
            for caller in CALLERS
        }
        answers = {}

        async def are_as_wanted(wanted=wanted, answers=answers):
            answers.update({each: await asyncio.to_thread(call, each) for each in CALLERS})
            return answers == wanted

        with contextlib.suppress(observer.NotObserved):
            await observer.eventually(are_as_wanted, 60, "the answers")
        assert answers == wanted, sidecar
    assert await diagnosed(on) == ["JOBS_CHANGED"]
    await on.juju.set(juju.APPLICATION, pod_networks="")
    for each in (USER, *SPACES):
        await on.api.delete("Namespace", each)

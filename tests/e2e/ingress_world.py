"""Applications to reach, one to ask, and somebody else's host on the same gateway."""

import contextlib
import json
import pathlib
import subprocess
import tempfile

import yaml
from cryptography import x509

from juju_standin import bootstrap
from testbed import certificates, istio
from testbed.kit import workloads
from tests import echo, gateway_client, signing, waiting
from tests.e2e import pages
from tests.gateway_client import HOST, TENANT

APP = "istio-integrator"
SHARED = f"{istio.INGRESS}/{istio.GATEWAY}"
NAMED = {"gateway-service": SHARED, "hosts": HOST}
"""The options of a model that the gateway of the node serves, which others use, too."""
AUTH = "oidc-gatekeeper"

# What Charmed Kubeflow's charms send: prefix and rewrite, by their Services' names.
CONSUMERS = {
    "kubeflow-dashboard": {"prefix": "/", "rewrite": "/"},
    AUTH: {"prefix": "/authservice", "rewrite": "/"},
    "dex-auth": {"prefix": "/dex", "rewrite": "/dex"},
    "jupyter-ui": {"prefix": "/jupyter/", "rewrite": "/"},
    "katib-ui": {"prefix": "/katib/"},
    "kfp-ui": {"prefix": "/pipeline", "rewrite": "/pipeline"},
    "envoy": {"prefix": "/ml_metadata", "rewrite": "/ml_metadata"},
    "kubeflow-volumes": {"prefix": "/volumes", "rewrite": "/"},
    "tensorboards-web-app": {"prefix": "/tensorboards", "rewrite": "/"},
    "mlflow": {"prefix": "/mlflow/", "rewrite": "/"},
}
AUTHORITY = "self-signed-certificates"
SIGNS = {"role": "provides", "interface": "tls-certificates"}
FIRST_PORT = 9000
AUTH_PORT = 8080


def port_of(consumer):
    """The port by which an answer shows which application gave it."""
    if consumer == AUTH:
        return AUTH_PORT
    return FIRST_PORT + list(CONSUMERS).index(consumer)


def servers(namespace, services, image):
    """A pod that is all the applications of a namespace, and their Services."""
    ports = sorted({*services.values()} - {AUTH_PORT})
    arguments = ["-c", pathlib.Path(echo.__file__).read_text(), *map(str, ports)]
    if AUTH_PORT in services.values():
        arguments.append(f"--authorization={AUTH_PORT}")
    probe = {"tcpSocket": {"port": ports[0]}, "periodSeconds": 1}
    command = ["python3", *arguments]
    container = workloads.container("servers", image, command, readinessProbe=probe)
    selector = {"app": "servers"}
    return [
        workloads.deployment("servers", namespace, workloads.template([container])),
        *(
            workloads.service(name, namespace, port, selector=selector)
            for name, port in services.items()
        ),
    ]


def lead(prefix, host, port):
    """An entry of a VirtualService that leads paths below a prefix to a Service."""
    destination = {"host": f"{host}.svc.cluster.local", "port": {"number": port}}
    return {"match": [{"uri": {"prefix": prefix}}], "route": [{"destination": destination}]}


def tenant(namespace, *http):
    """Somebody else on the gateway of the node, whose host leads elsewhere."""
    port = {"number": 80, "name": "http", "protocol": "HTTP"}
    server = {"port": port, "hosts": [TENANT]}
    selector, more = {"istio": "ingressgateway"}, {"gateways": ["web"], "hosts": [TENANT]}
    return [
        workloads.namespace(namespace),
        workloads.istio("Gateway", "web", namespace, selector=selector, servers=[server]),
        workloads.istio("VirtualService", "web", namespace, **more, http=list(http)),
    ]


def shop(image):
    """A tenant with an application of its own."""
    web = {"web": FIRST_PORT}
    return [*tenant("shop", lead("/", "web.shop", FIRST_PORT)), *servers("shop", web, image)]


def address_of(testbed, namespace=istio.INGRESS, service=istio.GATEWAY):
    """The address of a Service, by default that of the gateway of the node."""
    query = ("get", "service", "-n", namespace, service, "-o", "jsonpath={.spec.clusterIP}")
    return testbed.kubectl(*query).stdout


@contextlib.contextmanager
def shared(node, model):
    """Have a model beside a tenant whose host answers on the gateway; both go at the end."""
    place = Place(node, model)
    place.apply(*shop(place.image))
    place.address = address_of(node.testbed)
    visitor = place.browser()
    assert waiting.eventually(lambda: visitor.get(host=TENANT).status == 200, 60)
    with place:
        yield place
    place.kubectl("delete", "namespace", "shop", "--timeout=120s")


class Place:
    """A model on a node whose gateway is shared, in which pages' commands are run as they stand.

    The model is there while the block runs; `changes` is what else pages call otherwise.
    """

    watch = None

    def __init__(self, node, model, changes=None, settings=None):
        self.node = node
        self.juju = bootstrap.juju(node.testbed, model)
        self.image = node.charms.payload_image
        self.address = ""
        self.shell = pages.Shell(node, model, changes or {})
        self._settings = settings
        self._browsers = []

    def __enter__(self):
        self.juju.add_model(self._settings)
        self.address = address_of(self.node.testbed)
        return self

    def __exit__(self, failure, *_):
        self.close()
        # What failed while it was made is looked into afterwards.
        if failure is None:
            self.juju.destroy_model(force=True)

    def run(self, block, folder=pages.ROOT):
        """Run a block, of which no command fails, and let Juju come to rest; what it printed."""
        said = self.shell.run(f"set -eo pipefail\n{block}", folder)
        assert self.shell.code == 0, block
        self.settle()
        return said

    def settle(self):
        """Wait until no hook runs, and see that none has failed."""

        def is_idle():
            units = self.juju.status()["applications"].get(APP, {}).get("units", {}).values()
            return all(unit["juju-status"]["current"] == "idle" for unit in units)

        assert waiting.eventually(lambda: is_idle() and is_idle(), 400), self.juju.status()
        assert "hook failed" not in json.dumps(self.juju.status())

    def apply(self, *objects):
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self.node.testbed.apply(text)

    def read(self, kind, name, namespace=None):
        """An object, None where there is none."""
        query = ("get", kind, name, "-n", namespace or self.juju.model, "--ignore-not-found")
        text = self.kubectl(*query, "-o", "json")
        return json.loads(text) if text else None

    def list(self, kind, namespace, labels=""):
        """Objects of a namespace."""
        query = ("get", kind, "-n", namespace, "-l", labels, "-o", "json")
        return json.loads(self.kubectl(*query))["items"]

    def rolled_out(self, *names):
        """Wait until Deployments and others of the model are as they should be."""
        for each in names:
            where = ("-n", self.juju.model, "--timeout=120s")
            self.kubectl("rollout", "status", each, *where)

    def deploy(self, integrator, *, trust=True, **options):
        """Deploy the charm for our host; options have underscores."""
        given = {key.replace("_", "-"): value for key, value in options.items()}
        config = {**integrator.config, **NAMED, **given}
        resources = integrator.resources
        self.juju.deploy(integrator.path, APP, config=config, resources=resources, trust=trust)
        self.juju.wait_for(APP)

    def serve(self, consumers):
        """Have the applications answer."""
        services = {consumer: port_of(consumer) for consumer in consumers}
        self.apply(*servers(self.juju.model, services, self.image))
        self.rolled_out("deployment/servers")

    def ask(self, consumers):
        """Have applications that ask for their routes, one of which says who may come."""
        for consumer in consumers:
            script = {"ingress": ingress_script(consumer)}
            if consumer == "kubeflow-dashboard":
                script["ingress"] = ingress_script(consumer, namespace=self.juju.model)
            if consumer == AUTH:
                script["ingress-auth"] = auth_script()
            self.juju.fake_app(consumer, script)

    def relate(self, consumers):
        """Bring the ingress up in the order of a bundle: applications, then who is asked."""
        self.ask(consumers)
        for consumer in consumers:
            self.juju.integrate(f"{APP}:ingress", f"{consumer}:ingress")
        self.says("ingress is closed: authentication is missing")
        self.juju.integrate(f"{APP}:ingress-auth", f"{AUTH}:ingress-auth")
        self.says(f"{len(consumers)} routes served", 240)
        assert waiting.eventually(self.is_open)

    def integrate(self, consumers, gateway=SHARED):
        """Have applications reached at their routes through a gateway, after who is asked."""
        self.ask(consumers)
        self.juju.integrate(f"{APP}:ingress-auth", f"{AUTH}:ingress-auth")
        for consumer in consumers:
            self.juju.integrate(f"{APP}:ingress", f"{consumer}:ingress")
        self.says(f"{len(consumers)} routes served by {gateway}", 300)
        self.address = address_of(self.node.testbed, *gateway.split("/"))
        assert waiting.eventually(self.is_open, 120)

    def close(self):
        for browser in self._browsers:
            browser.close()

    def kubectl(self, *argv, text=None):
        return self.node.testbed.kubectl(*argv, text=text).stdout

    def message(self):
        unit = next(iter(self.juju.status()["applications"][APP]["units"].values()))
        status = unit["workload-status"]
        return f"{status['current']}: {status.get('message', '')}"

    def says(self, words, timeout=180):
        assert waiting.eventually(lambda: words in self.message(), timeout), self.message()

    def requested(self):
        """What the charm asks an authority for; empty while there is nothing."""
        unit = self.juju.show_unit(f"{APP}/0")
        bags = [each for each in unit["relation-info"] if each["endpoint"] == "certificates"]
        found = [
            bag["certificate_signing_requests"]
            for each in bags
            for bag in (each["local-unit"]["data"], each["local-application-data"])
            if "certificate_signing_requests" in bag
        ]
        return found[0] if found else ""

    def sign(self, life=signing.LIFE):
        """Answer the request for a certificate as an authority does; the number of it."""
        bag, number = signing.answer(waiting.eventually(self.requested, 60), life)
        self.juju.fake_app(AUTHORITY, {"certificates": {**SIGNS, "application": bag, "unit": {}}})
        return number

    def shown(self):
        """The certificate that a new visitor is shown; None while there is none."""
        with contextlib.suppress(OSError):
            return gateway_client.Client(self.address, tls=True).certificate()
        return None

    def shows(self, number, timeout=120):
        """Wait until new visitors are shown the certificate with this number."""

        def is_shown():
            found = self.shown()
            return found and found.serial_number == number

        return waiting.eventually(is_shown, timeout)

    def touch(self):
        """Have an event, as update-status is one every five minutes."""
        level = self.juju.config(APP)["log-level"]
        self.juju.config(APP, {"log-level": "debug" if level == "info" else "info"})

    def browser(self, **how):
        """A new connection, closed with the place."""
        self._browsers.append(gateway_client.Client(self.address, **how))
        return self._browsers[-1]

    def hammer(self, *, tls=False, **request):
        return gateway_client.Hammer(gateway_client.Client(self.address, tls=tls), **request)

    @contextlib.contextmanager
    def asking(self, pod, container, url, rate):
        """Ask from inside of a pod all the time; the dictionary has what came of it afterwards."""
        where = ("exec", "-i", "-n", self.juju.model, pod, "-c", container, "--")
        process = subprocess.Popen(
            ["kubectl", *where, "python3", "-c", pages.CALLER, url, str(rate)],
            env=self.node.testbed.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        told = {}
        try:
            assert process.stdout.readline() == "asking\n"
            yield told
            rest, _ = process.communicate("", timeout=30)
            told.update(json.loads(rest))
        finally:
            process.kill()
            process.communicate()

    def is_open(self):
        """Whether somebody who is logged in reaches an application."""
        return self.browser().get("/pipeline/x", Cookie=echo.COOKIE).status == 200


class Watch:
    """A tenant of the gateway, and intruders, who ask all the time whatever happens to us."""

    def __init__(self, place, *, has_tenants=True):
        # Somebody who never logs in, and says who they are.
        spoofed = {"kubeflow_userid": "admin@example.com"}
        pipeline = {"path": "/pipeline/apis", "pause": 0.05, **spoofed}
        self.tenants = [
            place.hammer(pause=0.1, host=TENANT, fresh=fresh)
            for fresh in (False, True)
            if has_tenants
        ]
        self.intruders = [
            place.hammer(**pipeline),
            place.hammer(fresh=True, **pipeline),
            place.hammer(path="/", pause=0.2, **spoofed),
            place.hammer(path="/pipeline/apis", pause=0.5, fresh=True, tls=True, **spoofed),
        ]

    @property
    def everybody(self):
        return (*self.tenants, *self.intruders)

    def go_on(self):
        """Let everybody ask some more."""
        gateway_client.go_on(self.everybody)

    @property
    def asked_in_vain(self):
        """Requests of intruders that were answered."""
        return sum(hammer.answered for hammer in self.intruders)

    def assert_that_all_is_well(self):
        """Nothing of ours was shown to an intruder, and no tenant was harmed."""
        for tenant in self.tenants:
            assert set(tenant.answers) == {200}, tenant.answers
        for intruder in self.intruders:
            assert 200 not in intruder.answers, intruder.answers

    def __enter__(self):
        for hammer in self.everybody:
            hammer.start()
        return self

    def __exit__(self, *_):
        for hammer in self.everybody:
            hammer.end()


def sdi(data):
    """Write data as serialized-data-interface does."""
    return {"_supported_versions": "- v1\n", "data": yaml.safe_dump(data)}


def ingress_script(consumer, **changes):
    """What a consumer's charm sends."""
    data = {"service": consumer, "port": port_of(consumer), **CONSUMERS[consumer], **changes}
    return {"role": "requires", "interface": "ingress", "application": sdi(data), "unit": {}}


def forward_script(model, service=AUTH, port=AUTH_PORT):
    """What oauth2-proxy's charm sends."""
    address = f"http://{service}.{model}.svc.cluster.local:{port}"
    headers = json.dumps(["kubeflow-userid"])
    bag = {"decisions_address": address, "app_names": "[]", "headers": headers}
    return {"role": "provides", "interface": "forward_auth", "application": bag, "unit": {}}


def auth_script(service=AUTH, port=AUTH_PORT):
    """What oidc-gatekeeper's charm sends."""
    data = {
        "service": service,
        "port": port,
        "allowed-request-headers": ["cookie", "X-Auth-Token"],
        "allowed-response-headers": ["kubeflow-userid"],
    }
    return {"role": "requires", "interface": "ingress-auth", "application": sdi(data), "unit": {}}


def notebook(model):
    """A route as notebooks have them: in a profile's namespace, bound to a model's Gateway."""
    gateways, http = [f"{model}/kubeflow-gateway"], [lead("/notebook/", "web.shop", FIRST_PORT)]
    fields = {"gateways": gateways, "hosts": ["*"], "http": http}
    return workloads.istio("VirtualService", "notebook", "shop", **fields)


def tls_secret(namespace, name):
    """A Secret with a new certificate for our host, and the certificate's number."""
    with tempfile.TemporaryDirectory() as folder:
        pair = certificates.Authority(pathlib.Path(folder)).server("gateway", [HOST], [])
        certificate, key = pair.certificate.read_text(), pair.key.read_text()
    number = x509.load_pem_x509_certificate(certificate.encode()).serial_number
    return workloads.tls_secret(name, namespace, certificate, key), number

"""Applications to reach, one to ask, and somebody else's host on the same gateway."""

import contextlib
import dataclasses
import json
import pathlib
import subprocess
import tempfile

import yaml
from cryptography import x509

from testbed import certificates, istio
from testbed.juju import bootstrap, client
from tests import echo, gateway_client, waiting
from tests.e2e import caller
from tests.gateway_client import HOST, TENANT

APP = "istio-integrator"
SHARED = f"{istio.INGRESS}/{istio.GATEWAY}"
NAMED = {"gateway-service": SHARED, "hosts": HOST}
"""The options of a model that the gateway of the node serves, which others use, too."""
AUTH = "oidc-gatekeeper"
CALLER = pathlib.Path(caller.__file__).read_text()

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
# A path, who is to answer it, and what they are to be asked for.
PATHS = [
    ("/", "kubeflow-dashboard", "/"),
    ("/some/page?a=b", "kubeflow-dashboard", "/some/page?a=b"),
    ("/_/pipeline/", "kubeflow-dashboard", "/_/pipeline/"),
    ("/authservice/x", AUTH, "/x"),
    ("/dex/auth", "dex-auth", "/dex/auth"),
    ("/jupyter/api", "jupyter-ui", "/api"),
    ("/jupyter/", "jupyter-ui", "/"),
    ("/katib/x", "katib-ui", "/katib/x"),
    ("/pipeline/apis/v1", "kfp-ui", "/pipeline/apis/v1"),
    ("/ml_metadata/x", "envoy", "/ml_metadata/x"),
    ("/volumes/api", "kubeflow-volumes", "/api"),
    ("/volumes", "kubeflow-volumes", "/"),
    ("/tensorboards/api?ns=a", "tensorboards-web-app", "/api?ns=a"),
    ("/tensorboards", "tensorboards-web-app", "/"),
    ("/mlflow/static/x.js", "mlflow", "/static/x.js"),
]
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
    container = {
        "name": "servers",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", *arguments],
        "readinessProbe": {"tcpSocket": {"port": ports[0]}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "5m", "memory": "20Mi"}},
    }
    labels = {"app": "servers"}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "servers", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    found = [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": labels, "ports": [{"name": "http", "port": port}]},
        }
        for name, port in services.items()
    ]
    return yaml.safe_dump_all([deployment, *found])


TENANT = f"""
apiVersion: v1
kind: Namespace
metadata: {{name: shop}}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: web, namespace: shop}}
spec:
  selector: {{istio: ingressgateway}}
  servers:
  - port: {{number: 80, name: http, protocol: HTTP}}
    hosts: [{TENANT}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: web, namespace: shop}}
spec:
  gateways: [shop/web]
  hosts: [{TENANT}]
  http:
  - route:
    - destination: {{host: web.shop.svc.cluster.local, port: {{number: {FIRST_PORT}}}}}
"""


def address_of(testbed, namespace=istio.INGRESS, service=istio.GATEWAY):
    """The address of a Service, by default that of the gateway of the node."""
    query = ("get", "service", "-n", namespace, service, "-o", "jsonpath={.spec.clusterIP}")
    return testbed.kubectl(*query).stdout


@contextlib.contextmanager
def shared(node, model):
    """Have a model beside a tenant whose host answers on the gateway; both go at the end."""
    testbed = node.testbed
    juju = bootstrap.juju(testbed, model)
    testbed.apply(TENANT)
    testbed.apply(servers("shop", {"web": FIRST_PORT}, node.charms.payload_image))
    place = Place(node, juju, address_of(testbed))
    tenant = place.browser()
    assert waiting.eventually(lambda: tenant.get(host=gateway_client.TENANT).status == 200, 60)
    juju.add_model()
    yield place
    place.close()
    juju.destroy_model(force=True)
    testbed.kubectl("delete", "namespace", "shop", "--timeout=120s")


@dataclasses.dataclass
class Place:
    """A model with the charm on a node whose gateway is shared."""

    node: object
    juju: client.Juju
    address: str
    browsers: list = dataclasses.field(default_factory=list)
    watch: "Watch | None" = None

    def deploy(self, integrator, **options):
        """Deploy the charm for our host; options have underscores."""
        given = {key.replace("_", "-"): value for key, value in options.items()}
        config = {**integrator.config, **NAMED, **given}
        resources = integrator.resources
        self.juju.deploy(integrator.path, APP, config=config, resources=resources, trust=True)
        self.juju.wait_for(APP)

    def serve(self, consumers):
        """Have the applications answer."""
        services = {consumer: port_of(consumer) for consumer in consumers}
        model = self.juju.model
        self.node.testbed.apply(servers(model, services, self.node.charms.payload_image))
        self.kubectl("rollout", "status", "-n", model, "deployment/servers", "--timeout=120s")

    def relate(self, consumers):
        """Bring the ingress up in the order of a bundle: applications, then who is asked."""
        namespace = {"namespace": self.juju.model}
        for consumer in consumers:
            changes = namespace if consumer == "kubeflow-dashboard" else {}
            script = {"ingress": ingress_script(consumer, **changes)}
            if consumer == AUTH:
                script["ingress-auth"] = auth_script()
            self.juju.fake_app(consumer, script)
        for consumer in consumers:
            self.juju.integrate(f"{APP}:ingress", f"{consumer}:ingress")
        self.says("ingress is closed: integrate ingress-auth")
        self.juju.integrate(f"{APP}:ingress-auth", f"{AUTH}:ingress-auth")
        # An older revision says "routes by", without having seen them.
        self.says(f"{len(consumers)} routes ", 240)
        assert waiting.eventually(self.is_open)

    def close(self):
        for browser in self.browsers:
            browser.close()

    def kubectl(self, *argv, text=None):
        return self.node.testbed.kubectl(*argv, text=text).stdout

    def message(self):
        unit = next(iter(self.juju.status()["applications"][APP]["units"].values()))
        status = unit["workload-status"]
        return f"{status['current']}: {status.get('message', '')}"

    def says(self, words, timeout=180):
        assert waiting.eventually(lambda: words in self.message(), timeout), self.message()

    def integrate(self, consumers):
        """Have applications ask for their routes, one of which says who may come."""
        for consumer in consumers:
            script = {"ingress": ingress_script(consumer)}
            if consumer == AUTH:
                script["ingress-auth"] = auth_script()
            self.juju.fake_app(consumer, script)
        self.juju.integrate(f"{APP}:ingress-auth", f"{AUTH}:ingress-auth")
        for consumer in consumers:
            self.juju.integrate(f"{APP}:ingress", f"{consumer}:ingress")

    def touch(self):
        """Have an event, as update-status is one every five minutes."""
        level = self.juju.config(APP)["log-level"]
        self.juju.config(APP, {"log-level": "debug" if level == "info" else "info"})

    def browser(self, **how):
        """A new connection, closed with the place."""
        self.browsers.append(gateway_client.Client(self.address, **how))
        return self.browsers[-1]

    def hammer(self, *, tls=False, **request):
        return gateway_client.Hammer(gateway_client.Client(self.address, tls=tls), **request)

    @contextlib.contextmanager
    def asking(self, pod, container, url, rate):
        """Ask from inside of a pod all the time; the dictionary has what came of it afterwards."""
        where = ("exec", "-i", "-n", self.juju.model, pod, "-c", container, "--")
        process = subprocess.Popen(
            ["kubectl", *where, "python3", "-c", CALLER, url, str(rate)],
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
            place.hammer(pause=0.1, host=gateway_client.TENANT, fresh=fresh)
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

    def go_on(self, requests=5):
        """Let everybody ask some more."""
        before = [hammer.count for hammer in self.everybody]

        def have_asked():
            counts = zip(self.everybody, before, strict=True)
            return all(hammer.count >= count + requests for hammer, count in counts)

        assert waiting.eventually(have_asked, 60)

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


def auth_script():
    """What oidc-gatekeeper's charm sends."""
    data = {
        "service": AUTH,
        "port": AUTH_PORT,
        "allowed-request-headers": ["cookie", "X-Auth-Token"],
        "allowed-response-headers": ["kubeflow-userid"],
    }
    return {"role": "requires", "interface": "ingress-auth", "application": sdi(data), "unit": {}}


def notebook(model):
    """A route as notebooks have them: in a profile's namespace, bound to a model's Gateway."""
    port = {"number": FIRST_PORT}
    destination = {"host": "web.shop.svc.cluster.local", "port": port}
    return {
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": "notebook", "namespace": "shop"},
        "spec": {
            "gateways": [f"{model}/kubeflow-gateway"],
            "hosts": ["*"],
            "http": [
                {
                    "match": [{"uri": {"prefix": "/notebook/"}}],
                    "route": [{"destination": destination}],
                }
            ],
        },
    }


def tls_secret(namespace, name):
    """A Secret with a new certificate for our host."""
    with tempfile.TemporaryDirectory() as folder:
        pair = certificates.Authority(pathlib.Path(folder)).server("gateway", [HOST], [])
        certificate, key = pair.certificate.read_text(), pair.key.read_text()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": {"tls.crt": certificate, "tls.key": key},
    }
    number = x509.load_pem_x509_certificate(certificate.encode()).serial_number
    return yaml.safe_dump(secret), number

"""What is in a model whose callers matter, and around it."""

import base64

from testbed import certificates
from testbed.kit import workloads
from tests.e2e import ingress_world
from tests.kubernetes_objects import made

MODEL = "secured"
NAME = "app.kubernetes.io/name"
SHOP = "secured-shop"
SCRAPERS = "secured-monitoring"
HOOKED = "secured-hooked"
USERS = ("alice", "bob")
EDITOR = "default-editor"
PORTS = {"store": 8001, "kfp-ui": 8002, "db": 8003, "kfp-api": 8888, "probed": 8004}
"""Each Service with its port, which is that of its pods, too."""
CHARMS = ("store", "kfp-ui", "db", "kfp-api")
HTTP = {"appProtocol": "http"}
"""Said by Services, as no caller says it here: the testbed's Envoy lacks the filter for it."""
NODE_PORTS = ("store", "db")
IDENTITY = "kubeflow-userid"
HOOK_PORT = 8443
HOOK = """
import http.server, json, ssl
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        said = {"uid": asked["request"]["uid"], "allowed": True}
        body = json.dumps({**asked, "request": None, "response": said}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain("/tls/tls.crt", "/tls/tls.key")
server = http.server.ThreadingHTTPServer(("", 8443), Handler)
server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
server.serve_forever()
"""
"""A webhook that lets everything pass; where it isn't reached, nothing passes."""


def everything(image, folder):
    """Everything of the world that no charm makes."""
    authority = certificates.Authority(folder)
    pair = authority.server("hook", [f"hook.{MODEL}.svc"], [])
    bundle = base64.b64encode(authority.pair.certificate.read_bytes()).decode()
    sleep = workloads.container("main", image, workloads.payload("sleep.py", 1_000_000))
    profile = {"app.kubernetes.io/part-of": "kubeflow-profile", "istio-injection": "enabled"}
    return [
        *(workloads.namespace(user, profile) for user in USERS),
        *(made("v1", "ServiceAccount", EDITOR, user) for user in USERS),
        workloads.namespace(SCRAPERS),
        workloads.namespace(HOOKED, {"hooked": "yes"}),
        *(_deployment("notebook", user, sleep, account=EDITOR) for user in USERS),
        _deployment("scraper", SCRAPERS, sleep),
        _deployment("outsider", MODEL, sleep, labels=workloads.NO_SIDECAR),
        *_probed(image),
        *_hook(image, pair, bundle),
        *ingress_world.tenant(
            SHOP,
            *(
                ingress_world.lead(f"/{name}", f"{name}.{MODEL}", port)
                for name, port in PORTS.items()
            ),
        ),
        _unclaimed(),
    ]


def _deployment(name, namespace, container, *, labels=None, annotations=None, account=""):
    body = workloads.template([container], labels=labels, annotations=annotations)
    if account:
        body["spec"]["serviceAccountName"] = account
    return workloads.deployment(name, namespace, body)


def _unclaimed():
    """What kfp-api's charm writes beside its relations."""
    target = {"group": "", "kind": "Service", "name": "kfp-api"}
    rule = {"when": [{"key": f"request.headers[{IDENTITY}]", "notValues": ["*"]}]}
    spec = {"targetRefs": [target], "rules": [rule]}
    return workloads.istio("AuthorizationPolicy", "kfp-api-unclaimed", MODEL, **spec)


def _probed(image):
    """An application whose probe comes from the kubelet itself."""
    port = PORTS["probed"]
    probe = {"httpGet": {"path": "/healthz", "port": port}, "periodSeconds": 1}
    server = workloads.container(
        "main", image, workloads.payload("server.py", "--port", port), readinessProbe=probe
    )
    kept = {"sidecar.istio.io/rewriteAppHTTPProbers": "false"}
    return [
        _deployment("probed", MODEL, server, annotations=kept),
        workloads.service("probed", MODEL, port, **HTTP),
    ]


def _hook(image, pair, bundle):
    """A webhook in the model for ConfigMaps of a namespace."""
    secret = workloads.tls_secret(
        "hook", MODEL, pair.certificate.read_text(), pair.key.read_text()
    )
    server = workloads.container("main", image, ["python3", "-c", HOOK])
    server["volumeMounts"] = [{"name": "tls", "mountPath": "/tls"}]
    deployment = _deployment("hook", MODEL, server)
    volume = {"name": "tls", "secret": {"secretName": "hook"}}
    deployment["spec"]["template"]["spec"]["volumes"] = [volume]
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["configmaps"],
        "operations": ["CREATE"],
    }
    called = {"name": "hook", "namespace": MODEL, "path": "/", "port": 443}
    webhook = {
        "name": "hook.secured.test",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "namespaceSelector": {"matchLabels": {"hooked": "yes"}},
        "rules": [rule],
        "clientConfig": {"caBundle": bundle, "service": called},
    }
    kind = "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"
    configuration = made(*kind, HOOKED, webhooks=[webhook])
    # Without a name, so that istiod and Envoy find the protocol out.
    ports = [{"port": 443, "targetPort": HOOK_PORT}]
    service = workloads.manifest(
        "v1", "Service", "hook", MODEL, selector={"app": "hook"}, ports=ports
    )
    return [secret, deployment, service, configuration]


def node_ports():
    """Services that lead past the gateway."""
    found = []
    for name in NODE_PORTS:
        selector = {NAME: name}
        service = workloads.service(f"{name}-node", MODEL, PORTS[name], selector=selector, **HTTP)
        service["spec"]["type"] = "NodePort"
        found.append(service)
    return found


def pipelines():
    """The name by which profiles know the pipelines' API."""
    selector = {NAME: "kfp-api"}
    return workloads.service("ml-pipeline", MODEL, PORTS["kfp-api"], selector=selector, **HTTP)

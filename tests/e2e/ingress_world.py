"""Applications to reach, one to ask, and somebody else's host on the same gateway."""

import contextlib
import dataclasses
import datetime
import http.client
import json
import socket
import ssl
import threading
import time

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOST = "kubeflow.example.com"
TENANT_HOST = "shop.example.com"
COOKIE = "session=good"
USER = "user@example.com"

# What Charmed Kubeflow's charms send: prefix and rewrite, by their Services' names.
CONSUMERS = {
    "kubeflow-dashboard": {"prefix": "/", "rewrite": "/"},
    "oidc-gatekeeper": {"prefix": "/authservice", "rewrite": "/"},
    "dex-auth": {"prefix": "/dex", "rewrite": "/dex"},
    "jupyter-ui": {"prefix": "/jupyter/", "rewrite": "/"},
    "katib-ui": {"prefix": "/katib/"},
    "kfp-ui": {"prefix": "/pipeline", "rewrite": "/pipeline"},
    "kubeflow-volumes": {"prefix": "/volumes", "rewrite": "/"},
}
FIRST_PORT = 9000
AUTH_PORT = 8080

# Every port echoes what it was asked; the authorization service's also decides.
SERVER = """
import http.server, json, sys, threading

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        port = self.server.server_port
        status, extra = 200, {}
        if port == 8080 and self.path.startswith("/callback"):
            status, extra = 302, {"Location": "/", "Set-Cookie": "session=good; Path=/"}
        elif port == 8080 and self.path.startswith("/logout"):
            status, extra = 302, {"Location": "/", "Set-Cookie": "session=; Path=/; Max-Age=0"}
        elif port == 8080 and not self.path.startswith(("/dex", "/authservice")):
            if "session=good" in self.headers.get("Cookie", ""):
                extra = {"kubeflow-userid": "user@example.com"}
            else:
                status, extra = 302, {"Location": "/dex/auth"}
        asked = {"port": port, "path": self.path, "headers": dict(self.headers)}
        body = json.dumps(asked).encode()
        self.send_response(status)
        for name, value in extra.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PUT = do_GET

    def log_message(self, *args):
        pass

for port in map(int, sys.argv[1:]):
    server = http.server.ThreadingHTTPServer(("0.0.0.0", port), Handler)
    threading.Thread(target=server.serve_forever).start()
"""


def port_of(consumer):
    """The port by which an answer shows which application gave it."""
    if consumer == "oidc-gatekeeper":
        return AUTH_PORT
    return FIRST_PORT + list(CONSUMERS).index(consumer)


def servers(namespace, services, image):
    """A pod that is all the applications of a namespace, and their Services."""
    ports = sorted(set(services.values()))
    arguments = ["-u", "-c", SERVER, *map(str, ports)]
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
    hosts: [{TENANT_HOST}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: web, namespace: shop}}
spec:
  gateways: [shop/web]
  hosts: [{TENANT_HOST}]
  http:
  - route:
    - destination: {{host: web.shop.svc.cluster.local, port: {{number: {FIRST_PORT}}}}}
"""


def sdi(data):
    """Write data as serialized-data-interface does."""
    return {"_supported_versions": "- v1\n", "data": yaml.safe_dump(data)}


def ingress_script(consumer):
    """What a consumer's charm sends."""
    data = {"service": consumer, "port": port_of(consumer), **CONSUMERS[consumer]}
    return {"role": "requires", "interface": "ingress", "application": sdi(data), "unit": {}}


def auth_script():
    """What oidc-gatekeeper's charm sends."""
    data = {
        "service": "oidc-gatekeeper",
        "port": AUTH_PORT,
        "allowed-request-headers": ["cookie", "X-Auth-Token"],
        "allowed-response-headers": ["kubeflow-userid"],
    }
    return {"role": "requires", "interface": "ingress-auth", "application": sdi(data), "unit": {}}


@dataclasses.dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict
    text: str

    @property
    def echo(self):
        """What the application that answered was asked."""
        return json.loads(self.text)


class Browser:
    """Asks a gateway over one connection, which it opens again when the gateway closes it."""

    def __init__(self, address, *, tls=False):
        self.address = address
        self._tls = tls
        self._connection = None

    def _connect(self):
        connection = http.client.HTTPConnection(self.address, 443 if self._tls else 80, timeout=15)
        if self._tls:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            connection.connect()
            connection.sock = context.wrap_socket(connection.sock, server_hostname=HOST)
        return connection

    def serial(self):
        """The serial number of the certificate that a new connection is shown."""
        connection = self._connect()
        try:
            shown = connection.sock.getpeercert(binary_form=True)
            return x509.load_der_x509_certificate(shown).serial_number
        finally:
            connection.close()

    def close(self):
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, path="/", host=HOST, **headers):
        """Ask; an error of the connection is raised unless it was an idle one that had ended."""
        given = {"Host": host, **{key.replace("_", "-"): value for key, value in headers.items()}}
        for last in (False, True):
            reused = self._connection is not None
            if self._connection is None:
                self._connection = self._connect()
            try:
                self._connection.request("GET", path, headers=given)
                response = self._connection.getresponse()
                text = response.read().decode()
            except (OSError, http.client.HTTPException):
                self.close()
                if last or not reused:
                    raise
                continue
            if response.will_close:
                self.close()
            return Answer(response.status, dict(response.getheaders()), text)
        raise AssertionError


class Hammer(threading.Thread):
    """Asks the same all the time and counts the answers."""

    def __init__(self, address, pause, *, tls=False, **request):
        super().__init__(daemon=True)
        self.answers = {}
        self._browser = Browser(address, tls=tls)
        self._pause = pause
        self._request = request
        self._ended = threading.Event()

    def run(self):
        """Ask until it is ended."""
        while not self._ended.wait(self._pause):
            try:
                what = self._browser.get(**self._request).status
            except OSError as error:
                what = repr(error)
            self.answers[what] = self.answers.get(what, 0) + 1
        self._browser.close()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self.join()


def eventually(check, timeout=30):
    """Wait until a check holds, which may fail to connect; its last value comes back."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            value = check()
        except OSError:
            value = None
        if value or time.monotonic() > deadline:
            return value
        time.sleep(0.2)


def raw(address, request):
    """Send bytes as they are; what comes back until the gateway closes, or for two seconds."""
    with socket.create_connection((address, 80), timeout=2) as connection:
        connection.sendall(request.encode())
        found = b""
        with contextlib.suppress(TimeoutError):
            while chunk := connection.recv(65536):
                found += chunk
        return found


def tls_secret(namespace, name):
    """A Secret with a new certificate for our host."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(
            issuer_name=subject,
            subject_name=subject,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - datetime.timedelta(hours=1),
            not_valid_after=now + datetime.timedelta(days=1),
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": {
            "tls.crt": certificate.public_bytes(serialization.Encoding.PEM).decode(),
            "tls.key": private.decode(),
        },
    }
    return yaml.safe_dump(secret), certificate.serial_number

"""A small model to diagnose: a caller, an application, who authenticates and their provider."""

import json

import yaml

CALLER, SERVERS = "caller", "servers"
NO_ISSUER = "/tmp/no-issuer"
"""A file that takes the provider away."""
PORTS = {"oidc-gatekeeper": 8080, "dex": 5556, "kfp-ui": 9000}

# Who is not logged in is sent to the provider, as oidc-authservice does it.
SERVER = """
import http.server, json, pathlib, sys, threading

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        port, issuer = self.server.server_port, sys.argv[1]
        status, headers, body = 200, {}, {}
        if port == 8080:
            status, headers = 302, {"Location": f"{issuer}/auth?client_id=x"}
        if port == 5556:
            there = self.path == "/dex/.well-known/openid-configuration"
            if not there or pathlib.Path(sys.argv[2]).exists():
                status = 404
            body = {"issuer": issuer, "authorization_endpoint": f"{issuer}/auth"}
        text = json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass

for port in map(int, sys.argv[3:]):
    server = http.server.ThreadingHTTPServer(("0.0.0.0", port), Handler)
    threading.Thread(target=server.serve_forever).start()
"""


def deployment(name, namespace, image, command, **container):
    """A Deployment of one pod."""
    labels = {"app": name}
    found = {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "resources": {"requests": {"cpu": "5m", "memory": "20Mi"}},
        **container,
    }
    spec = {"terminationGracePeriodSeconds": 1, "containers": [found]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def objects(namespace, image):
    """Everything of the model that is not the charm's."""
    issuer = f"http://dex.{namespace}.svc.cluster.local:5556/dex"
    ports = list(map(str, PORTS.values()))
    argv = ["python3", "-c", SERVER, issuer, NO_ISSUER, *ports]
    ready = {"tcpSocket": {"port": 9000}, "periodSeconds": 1}
    wait = ["python3", "-c", "import threading; threading.Event().wait()"]
    services = [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": {"app": SERVERS}, "ports": [{"name": "http", "port": port}]},
        }
        for name, port in PORTS.items()
    ]
    pods = [
        deployment(SERVERS, namespace, image, argv, readinessProbe=ready),
        deployment(CALLER, namespace, image, wait),
    ]
    return yaml.safe_dump_all([*pods, *services])


def sdi(role, interface, **data):
    """A scripted application that says something as serialized-data-interface does."""
    bag = {"_supported_versions": "- v1\n", "data": yaml.safe_dump(data)}
    return {"role": role, "interface": interface, "application": bag, "unit": {}}


def ingress():
    """What kfp-ui's charm sends."""
    return sdi("requires", "ingress", service="kfp-ui", port=9000, prefix="/pipeline")


def authentication():
    """What oidc-gatekeeper's charm sends."""
    headers = {
        "allowed-request-headers": ["cookie"],
        "allowed-response-headers": ["kubeflow-userid"],
    }
    return sdi("requires", "ingress-auth", service="oidc-gatekeeper", port=8080, **headers)


def istio(kind, name, namespace, **spec):
    """One of Istio's objects."""
    group = "security" if kind in ("AuthorizationPolicy", "PeerAuthentication") else "networking"
    version = "v1alpha3" if kind == "EnvoyFilter" else "v1"
    return json.dumps(
        {
            "apiVersion": f"{group}.istio.io/{version}",
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        }
    )

"""Parts of models to diagnose: an application, who authenticates, and objects of Istio."""

import json

# Who is not logged in is sent to a provider that is away, as oidc-authservice does it.
SERVER = """
import http.server, sys, threading

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        port, issuer = self.server.server_port, sys.argv[1]
        status, headers = 200, {}
        if port == 8080:
            status, headers = 302, {"Location": f"{issuer}/auth?client_id=x"}
        if port == 5556:
            status = 404
        text = b"{}"
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass

for port in map(int, sys.argv[2:]):
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

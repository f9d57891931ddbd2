"""`model`: the model operator, which labels what charms create, as Juju's webhook does."""

import argparse
import base64
import http.client
import http.server
import json
import logging
import os
import signal
import ssl
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

CONFIGURATION = Path("/etc/modeloperator")
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
UNLABELLED_KINDS = ("SelfSubjectAccessReview", "SubjectAccessReview", "LocalSubjectAccessReview")
CREATED_BY = "app.juju.is/created-by"
RETRY = 3.0


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Define the command."""
    parser = commands.add_parser("model", help="run the model operator")
    parser.set_defaults(run=run)


def run(_arguments: argparse.Namespace) -> int:
    """Register the webhook and serve it."""
    # As the container's first process it would not end by SIGTERM without a handler.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    environment = os.environ
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority = (CONFIGURATION / "ca.crt").read_text()
    certificate = _until_done(lambda: _certificate(authority, environment))
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(certificate["certificate"] + certificate["key"])
        file.flush()
        tls.load_cert_chain(file.name)
    applications = Applications(Kubernetes(), environment["SERVICE_NAMESPACE"])
    port = int(environment["HTTP_PORT"])
    handler = _handler(applications, model_labels(environment))
    server = http.server.ThreadingHTTPServer(("", port), handler)
    server.daemon_threads = True
    server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    configuration = webhook_configuration(environment, authority, port)
    _until_done(lambda: _register(Kubernetes(), configuration))
    logger.info("serving the model's admission webhook on port %s", port)
    while True:
        time.sleep(3600)


def model_labels(environment: Any) -> dict[str, str]:
    """The labels by which Juju knows a model's objects."""
    return {
        "model.juju.is/name": environment["MODEL_NAME"],
        "model.juju.is/id": environment["MODEL_UUID"],
    }


def webhook_configuration(environment: Any, authority: str, port: int) -> dict[str, Any]:
    """The configuration as Juju registers it."""
    labels = model_labels(environment)
    unlabelled = {"key": "model.juju.is/disable-webhook", "operator": "DoesNotExist"}
    webhook = {
        "name": "admission.juju.is",
        "admissionReviewVersions": ["v1beta1"],
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "namespaceSelector": {"matchLabels": labels},
        "objectSelector": {"matchExpressions": [unlabelled]},
        "rules": [
            {
                "apiGroups": ["*"],
                "apiVersions": ["*"],
                "resources": ["*"],
                "operations": ["CREATE", "UPDATE"],
                "scope": "*",
            }
        ],
        "clientConfig": {
            "caBundle": base64.b64encode(authority.encode()).decode(),
            "service": {
                "name": environment["SERVICE_NAME"],
                "namespace": environment["SERVICE_NAMESPACE"],
                "path": f"/k8s/admission/{environment['MODEL_UUID']}",
                "port": port,
            },
        },
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {
            "name": f"juju-model-admission-{environment['SERVICE_NAMESPACE']}",
            "labels": labels,
        },
        "webhooks": [webhook],
    }


def review(request: dict[str, Any], application: str, model: dict[str, str]) -> dict[str, Any]:
    """Answer an AdmissionReview request: label what an application's account made. Pure.

    Args:
        request: What the API server asks.
        application: Whose account made the object; empty for another account.
        model: The model's labels, which the object gets, too.
    """
    response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    thing = request.get("object")
    if not application or not thing or request["kind"]["kind"] in UNLABELLED_KINDS:
        return response
    labels = thing.get("metadata", {}).get("labels")
    patch: list[dict[str, Any]] = []
    if labels is None:
        patch.append({"op": "add", "path": "/metadata/labels", "value": {}})
    for key, value in {CREATED_BY: application, **model}.items():
        verb = "replace" if key in (labels or {}) else "add"
        path = f"/metadata/labels/{key.replace('/', '~1')}"
        patch.append({"op": verb, "path": path, "value": value})
    encoded = base64.b64encode(json.dumps(patch).encode()).decode()
    return {**response, "patchType": "JSONPatch", "patch": encoded}


class Kubernetes:
    """The apiserver, with the pod's own account."""

    def __init__(self) -> None:
        self._host = os.environ["KUBERNETES_SERVICE_HOST"]
        self._port = int(os.environ["KUBERNETES_SERVICE_PORT"])
        self._tls = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        """Send a request; the answer's status and content."""
        connection = http.client.HTTPSConnection(
            self._host, self._port, context=self._tls, timeout=10
        )
        headers = {
            "Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}",
            "Content-Type": "application/json",
        }
        try:
            connection.request(method, path, json.dumps(body) if body else None, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()


class Applications:
    """Which application a user's UID belongs to: that of its ServiceAccount."""

    def __init__(self, kubernetes: Kubernetes, namespace: str) -> None:
        self._kubernetes = kubernetes
        self._path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self._user_prefix = f"system:serviceaccount:{namespace}:"
        self._known: dict[str, str] = {}
        self._lock = threading.Lock()

    def find(self, user: dict[str, Any]) -> str:
        """The application of a user, or nothing."""
        uid = user.get("uid", "")
        if not uid or not user.get("username", "").startswith(self._user_prefix):
            return ""
        with self._lock:
            if uid not in self._known:
                self._refresh()
            return self._known.get(uid, "")

    def _refresh(self) -> None:
        code, answer = self._kubernetes.request("GET", self._path)
        if code != http.HTTPStatus.OK:
            raise OSError(f"list of ServiceAccounts: {code} {answer.get('message')}")
        self._known = {
            item["metadata"]["uid"]: item["metadata"]
            .get("labels", {})
            .get("app.kubernetes.io/name", "")
            for item in answer["items"]
        }


def _handler(
    applications: Applications, model: dict[str, str]
) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            request = body["request"]
            response = review(request, applications.find(request.get("userInfo", {})), model)
            answer = json.dumps(
                {
                    "apiVersion": body["apiVersion"],
                    "kind": "AdmissionReview",
                    "response": response,
                }
            ).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Stay silent: every change in the model comes through here."""

    return Handler


def _certificate(authority: str, environment: Any) -> dict[str, str]:
    host, port = environment["CONTROLLER"].rsplit(":", 1)
    tls = ssl.create_default_context(cadata=authority)
    connection = http.client.HTTPSConnection(host, int(port), context=tls, timeout=10)
    password = (CONFIGURATION / "password").read_text()
    body = {"model": environment["MODEL_NAME"], "password": password}
    try:
        connection.request("POST", "/operator", json.dumps(body))
        answer = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    if "error" in answer:
        raise OSError(answer["error"])
    return answer["result"]


def _register(kubernetes: Kubernetes, configuration: dict[str, Any]) -> None:
    base = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    name = configuration["metadata"]["name"]
    code, current = kubernetes.request("GET", f"{base}/{name}")
    if code == http.HTTPStatus.OK:
        version = current["metadata"]["resourceVersion"]
        configuration["metadata"]["resourceVersion"] = version
        code, answer = kubernetes.request("PUT", f"{base}/{name}", configuration)
    else:
        code, answer = kubernetes.request("POST", base, configuration)
    if code >= http.HTTPStatus.BAD_REQUEST:
        raise OSError(f"{name}: {code} {answer.get('message')}")


def _until_done(work: Any) -> Any:
    while True:
        try:
            return work()
        except (OSError, ValueError, http.client.HTTPException) as error:
            logger.warning("trying again: %s", error)
            time.sleep(RETRY)

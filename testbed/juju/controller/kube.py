"""A small Kubernetes client on plain objects."""

import base64
import json
import ssl
import tempfile
from pathlib import Path
from typing import Any

import aiohttp
import yaml

Object = dict[str, Any]

MANAGER = "juju"
"""Field manager of what the controller applies."""

RBAC = "apis/rbac.authorization.k8s.io/v1"
REGISTRATION = "apis/admissionregistration.k8s.io/v1"
KINDS: dict[str, tuple[str, str, bool]] = {
    "Namespace": ("api/v1", "namespaces", False),
    "Pod": ("api/v1", "pods", True),
    "Service": ("api/v1", "services", True),
    "Secret": ("api/v1", "secrets", True),
    "ConfigMap": ("api/v1", "configmaps", True),
    "ServiceAccount": ("api/v1", "serviceaccounts", True),
    "Role": (RBAC, "roles", True),
    "RoleBinding": (RBAC, "rolebindings", True),
    "ClusterRole": (RBAC, "clusterroles", False),
    "ClusterRoleBinding": (RBAC, "clusterrolebindings", False),
    "StatefulSet": ("apis/apps/v1", "statefulsets", True),
    "Deployment": ("apis/apps/v1", "deployments", True),
    "DaemonSet": ("apis/apps/v1", "daemonsets", True),
    "Ingress": ("apis/networking.k8s.io/v1", "ingresses", True),
    "StorageClass": ("apis/storage.k8s.io/v1", "storageclasses", False),
    "CustomResourceDefinition": (
        "apis/apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        False,
    ),
    "MutatingWebhookConfiguration": (REGISTRATION, "mutatingwebhookconfigurations", False),
    "ValidatingWebhookConfiguration": (REGISTRATION, "validatingwebhookconfigurations", False),
}
"""Kind → group and version, plural, whether it lives in a namespace."""


class KubeError(Exception):
    """The apiserver refused."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Kube:
    """Create, apply, read and delete objects, with the rights of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        raw = yaml.safe_load(kubeconfig.read_text())
        cluster, user = raw["clusters"][0]["cluster"], raw["users"][0]["user"]
        self._server: str = cluster["server"]
        self._headers: dict[str, str] = {}
        if "token" in user:
            self._headers["Authorization"] = f"Bearer {user['token']}"
        self._tls = _tls(cluster, user, kubeconfig.parent)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session:
            await self._session.close()

    async def create(self, wanted: Object) -> bool:
        """Create an object; say whether it was not there before."""
        url = _url(wanted["kind"], namespace=wanted["metadata"].get("namespace"))
        try:
            await self._request("POST", url, wanted)
        except KubeError as error:
            if error.code != 409:
                raise
            return False
        return True

    async def apply(self, wanted: Object) -> Object:
        """Apply on the server's side; others' fields stay."""
        meta = wanted["metadata"]
        url = _url(wanted["kind"], meta["name"], meta.get("namespace"))
        return await self._request(
            "PATCH",
            f"{url}?fieldManager={MANAGER}&force=true",
            wanted,
            content_type="application/apply-patch+yaml",
        )

    async def get(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """Read an object, or None."""
        try:
            return await self._request("GET", _url(kind, name, namespace))
        except KubeError as error:
            if error.code != 404:
                raise
            return None

    async def list(
        self, kind: str, namespace: str | None = None, labels: str = ""
    ) -> list[Object]:
        """List the objects of a kind that match a selector."""
        url = _url(kind, namespace=namespace)
        answer = await self._request("GET", f"{url}?labelSelector={labels}")
        return answer["items"]

    async def delete(self, kind: str, name: str, namespace: str | None = None) -> None:
        """Delete an object that may be gone already."""
        try:
            await self._request(
                "DELETE", _url(kind, name, namespace), {"propagationPolicy": "Background"}
            )
        except KubeError as error:
            if error.code != 404:
                raise

    async def merge(self, kind: str, name: str, patch: Object) -> None:
        """Merge-patch a cluster-scoped object."""
        await self._request(
            "PATCH", _url(kind, name), patch, content_type="application/merge-patch+json"
        )

    async def version(self) -> str:
        """The apiserver's version."""
        answer = await self._request("GET", "version")
        return answer["gitVersion"].removeprefix("v")

    async def _request(
        self,
        method: str,
        url: str,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._tls)
            timeout = aiohttp.ClientTimeout(total=30)
            self._session = aiohttp.ClientSession(
                connector=connector, headers=self._headers, timeout=timeout
            )
        async with self._session.request(
            method,
            f"{self._server}/{url}",
            data=None if body is None else json.dumps(body),
            headers={"Content-Type": content_type},
        ) as response:
            text = await response.text()
            if response.status >= 400:
                raise KubeError(response.status, _message(text))
            return json.loads(text)


def _url(kind: str, name: str | None = None, namespace: str | None = None) -> str:
    prefix, plural, is_namespaced = KINDS[kind]
    parts = [prefix]
    if is_namespaced and namespace:
        parts += ["namespaces", namespace]
    parts.append(plural)
    return "/".join([*parts, name] if name else parts)


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text[:300]


def _tls(cluster: Object, user: Object, folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=_pem(cluster, "certificate-authority", folder))
    certificate = _pem(user, "client-certificate", folder)
    if certificate:
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(certificate + "\n" + (_pem(user, "client-key", folder) or ""))
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _pem(source: Object, key: str, folder: Path) -> str | None:
    if f"{key}-data" in source:
        return base64.b64decode(source[f"{key}-data"]).decode()
    return (folder / source[key]).read_text() if key in source else None

"""An API server as functional tests act on it: with plain objects, each request until its answer.

A kind is named as kubectl names it: `Service`, or `Gateway.networking.istio.io` where groups
share the name.
"""

import dataclasses
import json
from typing import Any, Self

import httpx2
from lightkube.config import client_adapter
from lightkube.config.kubeconfig import SingleConfig

from testbed import kubernetes

ApiError = kubernetes.ApiError


class Api:
    """A client of one user; each method raises ApiError if the API server rejects a request."""

    def __init__(self, config: SingleConfig, headers: dict[str, str] | None = None) -> None:
        self.config = config
        parameters = client_adapter.ConnectionParams(timeout=httpx2.Timeout(60), trust_env=False)
        self._http = client_adapter.Client(config, parameters)
        self._http.headers.update(headers or {})
        self._served: list[kubernetes.Resource] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def resources(self, *, refresh: bool = False) -> list[kubernetes.Resource]:
        """List the resources that the API server serves."""
        if refresh or not self._served:
            accept = {"Accept": kubernetes.DISCOVERY}
            documents = (self._http.get(path, headers=accept).json() for path in ("/api", "/apis"))
            self._served = [each for one in documents for each in kubernetes.parse_discovery(one)]
        return self._served

    def get(self, kind: str, name: str, namespace: str = "") -> kubernetes.Object | None:
        """Read an object; None if there is none, or its kind is not served."""
        try:
            return self._ask("GET", self._resource(kind).path(namespace, name))
        except LookupError:
            return None
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def list(self, kind: str, namespace: str = "", labels: str = "") -> list[kubernetes.Object]:
        """Read the objects that a selector fits, of every namespace if none is given."""
        resource = self._resource(kind)
        answer = self._ask("GET", resource.path(namespace), params={"labelSelector": labels})
        version = f"{resource.group}/{resource.version}".lstrip("/")
        return [{"apiVersion": version, "kind": resource.kind, **each} for each in answer["items"]]

    def create(self, obj: kubernetes.Object, *, dry_run: bool = False) -> kubernetes.Object:
        """Create an object; it comes back as admission left it."""
        params = {"dryRun": "All"} if dry_run else {}
        place = obj["metadata"].get("namespace", "")
        return self._ask("POST", self._of(obj).path(place), obj, params=params)

    def apply(self, obj: kubernetes.Object) -> kubernetes.Object:
        """Apply an object server-side with force, and return it."""
        params = {"fieldManager": "tests", "force": "true"}
        return self._ask("PATCH", self._path(obj), obj, "apply-patch+yaml", params)

    def merge_patch(self, obj: kubernetes.Object, patch: kubernetes.Object) -> kubernetes.Object:
        """Merge a patch into an object."""
        return self._ask("PATCH", self._path(obj), patch, "merge-patch+json")

    def patch_status(self, obj: kubernetes.Object, status: Any) -> kubernetes.Object:
        """Write what a controller or kubelet says of an object."""
        path = f"{self._path(obj)}/status"
        return self._ask("PATCH", path, {"status": status}, "merge-patch+json")

    def delete(self, obj: kubernetes.Object) -> None:
        """Delete an object in the background, if it is there."""
        try:
            self._ask("DELETE", self._path(obj), {"propagationPolicy": "Background"})
        except ApiError as error:
            if error.code != 404:
                raise

    def _resource(self, kind: str) -> kubernetes.Resource:
        for refresh in (False, True):
            if found := kubernetes.find_resource(self.resources(refresh=refresh), kind):
                return found
        raise LookupError(f"the API server serves no {kind}")

    def _of(self, obj: kubernetes.Object) -> kubernetes.Resource:
        group, _, version = obj["apiVersion"].rpartition("/")
        return dataclasses.replace(self._resource(f"{obj['kind']}.{group}"), version=version)

    def _path(self, obj: kubernetes.Object) -> str:
        metadata = obj["metadata"]
        return self._of(obj).path(metadata.get("namespace", ""), metadata["name"])

    def _ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        content: str = "json",
        params: dict[str, str] | None = None,
    ) -> Any:
        headers = {"Content-Type": f"application/{content}"}
        text = None if body is None else json.dumps(body)
        answer = self._http.request(method, path, content=text, params=params, headers=headers)
        if answer.is_error:
            raise ApiError(method, path, answer.status_code, answer.json()["message"])
        return answer.json()

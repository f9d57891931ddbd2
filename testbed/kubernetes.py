"""A small asynchronous client for the apiserver that takes and returns plain JSON objects.

The stand-in for Juju, the demo and the end-to-end tests act on a cluster from outside, on kinds of
every group; typed resources would only hide what is really there.
"""

import asyncio
import base64
import contextlib
import dataclasses
import json
import pathlib
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Self

import aiohttp
import tenacity
import yaml

Object = dict[str, Any]

DISCOVERY = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
)
# What a server answers that is starting, busy, or still preparing a kind it has just been taught
# ("storage is (re)initializing"); client-go, too, asks again.
_MOMENTARY = frozenset({429, 500, 502, 503, 504})


class ApiError(Exception):
    """The apiserver refused a request."""

    def __init__(self, method: str, path: str, code: int, message: str) -> None:
        super().__init__(f"{method} {path}: {code} {message}")
        self.method = method
        self.code = code
        self.message = message


def _is_momentary(error: BaseException) -> bool:
    if isinstance(error, ApiError):
        return (error.method, error.code) == ("GET", 429)
    return isinstance(error, aiohttp.ClientConnectionError)


@dataclasses.dataclass(frozen=True, order=True)
class Resource:
    """One kind that the apiserver serves."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    verbs: frozenset[str] = dataclasses.field(compare=False)

    @property
    def base(self) -> str:
        """The path of its group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "") -> str:
        """The path of one object, or of all of them when the name is empty."""
        parts = [self.base]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.plural, *([name] if name else [])])


def parse_discovery(document: Mapping[str, Any]) -> list[Resource]:
    """Read an aggregated discovery document; each kind in its preferred version only."""
    found: dict[tuple[str, str], Resource] = {}
    for group in document.get("items", []):
        group_name = group["metadata"].get("name", "")
        for version in group.get("versions", []):
            for item in version.get("resources", []):
                kind = (item.get("responseKind") or {}).get("kind", "")
                resource = Resource(
                    group=group_name,
                    version=version["version"],
                    kind=kind,
                    plural=item["resource"],
                    namespaced=item["scope"] == "Namespaced",
                    verbs=frozenset(item.get("verbs", [])),
                )
                found.setdefault((group_name, item["resource"]), resource)
    return sorted(found.values())


def find_resource(served: Iterable[Resource], kind: str) -> Resource | None:
    """Find a kind by its name, or by name and group, such as `Gateway.networking.istio.io`."""
    name, has_group, group = kind.partition(".")
    found = (one for one in served if one.kind == name and (not has_group or one.group == group))
    return next(found, None)


class Api:
    """The apiserver of one kubeconfig file."""

    def __init__(
        self, server: str, tls: ssl.SSLContext, *, field_manager: str = "testbed"
    ) -> None:
        self.server = server
        self._field_manager = field_manager
        self._session = aiohttp.ClientSession(
            server,
            connector=aiohttp.TCPConnector(ssl=tls, limit=0),
            timeout=aiohttp.ClientTimeout(total=60, connect=10),
        )
        self._resources: list[Resource] = []

    @classmethod
    def from_kubeconfig(cls, path: pathlib.Path, **options: str) -> Self:
        """Connect with the file's current context, which carries client certificates."""
        config = yaml.safe_load(path.read_text())
        contexts = {item["name"]: item["context"] for item in config["contexts"]}
        context = contexts[config["current-context"]]
        cluster = next(
            item["cluster"] for item in config["clusters"] if item["name"] == context["cluster"]
        )
        user = next(item["user"] for item in config["users"] if item["name"] == context["user"])
        return cls(cluster["server"], _tls(cluster, user, path.parent), **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()
        # Aborted connections let go of their sockets in the loop's next turns.
        for _ in range(3):
            await asyncio.sleep(0)

    @tenacity.retry(
        retry=tenacity.retry_if_exception(_is_momentary),
        stop=tenacity.stop_after_attempt(6),
        wait=tenacity.wait_exponential(multiplier=0.3),
        reraise=True,
    )
    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> str:
        """Send one request and return the answer's text.

        Tried again are connections that fail and, as client-go does, reads for which the server
        has no time; an eviction that is refused has the same code, and that answer is wanted.
        """
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": content_type, "Accept": accept}
        async with self._session.request(
            method, path, data=data, params=params, headers=headers
        ) as answer:
            text = await answer.text(errors="replace")
        if answer.status >= 400:
            raise ApiError(method, path, answer.status, _message(text))
        return text

    async def resources(self, *, refresh: bool = False) -> list[Resource]:
        """Ask what the apiserver serves."""
        if refresh or not self._resources:
            documents = await asyncio.gather(
                self.request("GET", "/api", accept=DISCOVERY),
                self.request("GET", "/apis", accept=DISCOVERY),
            )
            self._resources = [
                resource for text in documents for resource in parse_discovery(json.loads(text))
            ]
        return self._resources

    async def resource(self, kind: str) -> Resource:
        """Find a kind as `find_resource` does."""
        for refresh in (False, True):
            if found := find_resource(await self.resources(refresh=refresh), kind):
                return found
        raise LookupError(f"the apiserver serves no {kind}")

    async def get(self, kind: str, name: str, namespace: str = "") -> Object:
        """Read one object."""
        resource = await self.resource(kind)
        return json.loads(await self.request("GET", resource.path(namespace, name)))

    async def find(self, kind: str, name: str, namespace: str = "") -> Object | None:
        """Read one object, None when there is none."""
        with contextlib.suppress(LookupError):
            try:
                return await self.get(kind, name, namespace)
            except ApiError as error:
                if error.code != 404:
                    raise
        return None

    async def list(self, kind: str, namespace: str = "", labels: str = "") -> list[Object]:
        """Read all objects of a kind, of every namespace when none is given."""
        resource = await self.resource(kind)
        params = {"labelSelector": labels} if labels else None
        text = await self.request("GET", resource.path(namespace), params=params)
        return json.loads(text).get("items") or []

    async def apply(self, *objects: Object) -> None:
        """Apply objects in their order, server-side."""
        for item in objects:
            await self.request(
                "PATCH",
                await self._path(item),
                body=item,
                params={"fieldManager": self._field_manager, "force": "true"},
                content_type="application/apply-patch+yaml",
            )

    async def create(self, item: Object, *, dry_run: bool = False) -> Object:
        """Create an object and return it as admission left it."""
        resource = await self._resource_of(item)
        path = resource.path(item["metadata"].get("namespace", ""))
        params = {"dryRun": "All"} if dry_run else None
        return json.loads(await self.request("POST", path, body=item, params=params))

    async def patch(self, kind: str, name: str, namespace: str, body: Object) -> Object:
        """Merge-patch an object."""
        resource = await self.resource(kind)
        text = await self.request(
            "PATCH",
            resource.path(namespace, name),
            body=body,
            content_type="application/merge-patch+json",
        )
        return json.loads(text)

    async def delete(
        self, kind: str, name: str, namespace: str = "", *, grace: int | None = None
    ) -> None:
        """Delete an object in the background; one that is gone already is fine.

        Args:
            kind: its kind.
            name: its name.
            namespace: where it is.
            grace: seconds that a pod has to end; with 0 it ends as on a node that dies.
        """
        resource = await self.resource(kind)
        body: Object = {"propagationPolicy": "Background"}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        try:
            await self.request("DELETE", resource.path(namespace, name), body=body)
        except ApiError as error:
            if error.code != 404:
                raise

    async def log(
        self, namespace: str, pod: str, container: str, *, previous: bool = False
    ) -> str:
        """Read a container's log."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        params = {"container": container, "previous": str(previous).lower()}
        return await self.request("GET", path, params=params, accept="*/*")

    async def follow(self, path: str) -> AsyncIterator[tuple[str, Object]]:
        """List and watch for ever: ADDED, MODIFIED, DELETED, and BOOKMARK after the first list.

        A watch that ends is started again where it was; one that is too old lists again, and then
        what vanished in between is not reported. A server that can't answer now is asked again.
        """
        version = ""
        while True:
            try:
                if not version:
                    answer = json.loads(await self.request("GET", path))
                    version = answer["metadata"]["resourceVersion"]
                    kind = answer["kind"].removesuffix("List")
                    for item in answer.get("items") or []:
                        yield "ADDED", {"kind": kind, **item}
                    yield "BOOKMARK", answer
                async for event, item in self._watch(path, version):
                    if event == "ERROR":
                        version = ""
                        break
                    version = item["metadata"]["resourceVersion"]
                    if event != "BOOKMARK":
                        yield event, item
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(0.5)
            except ApiError as error:
                if error.code == 410:
                    version = ""
                elif error.code in _MOMENTARY:
                    await asyncio.sleep(0.5)
                else:
                    raise

    async def _watch(self, path: str, version: str) -> AsyncIterator[tuple[str, Object]]:
        params = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true"}
        timeout = aiohttp.ClientTimeout(total=None, connect=10)
        async with self._session.get(path, params=params, timeout=timeout) as answer:
            if answer.status >= 400:
                raise ApiError("GET", path, answer.status, _message(await answer.text()))
            pending = b""
            try:
                async for chunk in answer.content.iter_any():
                    *lines, pending = (pending + chunk).split(b"\n")
                    for line in lines:
                        event = json.loads(line)
                        yield event["type"], event["object"]
            finally:
                # A watch has no end to wait for: closing it politely would outlive the loop.
                if answer.connection and answer.connection.transport:
                    answer.connection.transport.abort()

    async def _resource_of(self, item: Object) -> Resource:
        group = item["apiVersion"].rpartition("/")[0]
        return await self.resource(f"{item['kind']}.{group}")

    async def _path(self, item: Object) -> str:
        resource = await self._resource_of(item)
        metadata = item["metadata"]
        return resource.path(metadata.get("namespace", ""), metadata["name"])


def _message(text: str) -> str:
    with contextlib.suppress(ValueError, AttributeError):
        return json.loads(text).get("message", text)[:500]
    return text[:500]


def _tls(cluster: Object, user: Object, folder: pathlib.Path) -> ssl.SSLContext:
    authority = _material(cluster, "certificate-authority", folder)
    context = ssl.create_default_context(cadata=authority)
    # The ssl module reads a client's certificate from a file only.
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(_material(user, "client-certificate", folder))
        file.write("\n" + _material(user, "client-key", folder))
        file.flush()
        context.load_cert_chain(file.name)
    return context


def _material(section: Object, key: str, folder: pathlib.Path) -> str:
    if data := section.get(f"{key}-data"):
        return base64.b64decode(data).decode()
    return (folder / section[key]).read_text()

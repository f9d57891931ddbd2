"""The charm's only way to the Kubernetes API: plain objects in, plain objects or errors out.

Objects stay plain mappings, so that fields unknown to this version of the client library are
neither lost on reading nor dropped on writing.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypedDict, TypeVar, cast

import lightkube
import lightkube.generic_resource
import lightkube.types
import msgspec

from integrator_contract import bounded
from istio_integrator.kube import errors, fences

logger = logging.getLogger(__name__)

Object = dict[str, Any]
_Labels = frozenset[tuple[str, str | None]]
_T = TypeVar("_T")

FIELD_MANAGER = "istio-integrator"
TOO_DEEP = f"it nests more than {bounded.DEEPEST} lists or mappings"
_AROUND_ITEMS = 2
"""Levels of a List above its objects."""
_PAGE = 20
"""Objects per page when all of a kind are scanned: each may have 1.5 MB."""


class Kind(NamedTuple):
    """A kind of object and its spelling in API paths."""

    api_version: str
    name: str
    plural: str
    namespaced: bool


KINDS: dict[tuple[str, str], Kind] = {}
"""Every kind that the charm knows, by its API version and name."""


def _register_kinds(api_version: str, namespaced: bool, *names: str) -> list[Kind]:
    found = [Kind(api_version, name, _pluralize(name), namespaced) for name in names]
    KINDS.update({(api_version, each.name): each for each in found})
    return found


def _pluralize(name: str) -> str:
    lower = name.lower()
    if lower.endswith("icy"):
        return f"{lower[:-1]}ies"
    return f"{lower}es" if lower.endswith("s") else f"{lower}s"


def find_kind(api_version: str, name: str) -> Kind:
    """Look up a kind that the charm knows."""
    return KINDS[api_version, name]


_ADMISSION = "admissionregistration.k8s.io/v1"
_GATEWAY_API = "gateway.networking.k8s.io/v1"
_SECURITY = "security.istio.io/v1"

NAMESPACE, NODE = _register_kinds("v1", False, "Namespace", "Node")
CONFIG_MAP, POD, SECRET, SERVICE = _register_kinds(
    "v1", True, "ConfigMap", "Pod", "Secret", "Service"
)
_, EVENT = _register_kinds("v1", True, "ServiceAccount", "Event")
DEPLOYMENT, DAEMON_SET, STATEFUL_SET = _register_kinds(
    "apps/v1", True, "Deployment", "DaemonSet", "StatefulSet"
)
_register_kinds("policy/v1", True, "PodDisruptionBudget")
_, INGRESS = _register_kinds("networking.k8s.io/v1", True, "NetworkPolicy", "Ingress")
(ENDPOINT_SLICE,) = _register_kinds("discovery.k8s.io/v1", True, "EndpointSlice")
MUTATING_WEBHOOK, VALIDATING_WEBHOOK = _register_kinds(
    _ADMISSION, False, "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
)
VALIDATING_POLICY, _ = _register_kinds(
    _ADMISSION, False, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
)
(CUSTOM_RESOURCE_DEFINITION,) = _register_kinds(
    "apiextensions.k8s.io/v1", False, "CustomResourceDefinition"
)
(API_SERVICE,) = _register_kinds("apiregistration.k8s.io/v1", False, "APIService")
_register_kinds("rbac.authorization.k8s.io/v1", True, "Role", "RoleBinding")
CLUSTER_ROLE, _ = _register_kinds(
    "rbac.authorization.k8s.io/v1", False, "ClusterRole", "ClusterRoleBinding"
)
GATEWAY, VIRTUAL_SERVICE, DESTINATION_RULE, SIDECAR = _register_kinds(
    "networking.istio.io/v1", True, "Gateway", "VirtualService", "DestinationRule", "Sidecar"
)
(ENVOY_FILTER,) = _register_kinds("networking.istio.io/v1alpha3", True, "EnvoyFilter")
(GATEWAY_CLASS,) = _register_kinds(_GATEWAY_API, False, "GatewayClass")
KUBERNETES_GATEWAY, HTTP_ROUTE, GRPC_ROUTE = _register_kinds(
    _GATEWAY_API, True, "Gateway", "HTTPRoute", "GRPCRoute"
)
"""`KUBERNETES_GATEWAY` is of the Gateway API, `GATEWAY` is Istio's own."""
AUTHORIZATION_POLICY, PEER_AUTHENTICATION, REQUEST_AUTHENTICATION = _register_kinds(
    _SECURITY, True, "AuthorizationPolicy", "PeerAuthentication", "RequestAuthentication"
)
(SERVICE_CIDR,) = _register_kinds("networking.k8s.io/v1", False, "ServiceCIDR")
(CALICO_POOL,) = _register_kinds("crd.projectcalico.org/v1", False, "IPPool")
(CILIUM_NODE,) = _register_kinds("cilium.io/v2", False, "CiliumNode")
(WASM_PLUGIN,) = _register_kinds("extensions.istio.io/v1alpha1", True, "WasmPlugin")
_register_kinds("authorization.k8s.io/v1", False, "SelfSubjectAccessReview")


@functools.cache
def _make_resource(kind: Kind) -> Any:
    group, _, version = kind.api_version.rpartition("/")
    base = (
        lightkube.generic_resource.GenericNamespacedResource
        if kind.namespaced
        else lightkube.generic_resource.GenericGlobalResource
    )
    create_api_info = cast("Any", lightkube.generic_resource).create_api_info
    info = create_api_info(group, version, kind.name, kind.plural)
    return type(kind.name, (base,), {"_api_info": info})


def at(obj: Object | None, *path: str) -> Object:
    """Return the mapping at a path; empty if it is absent or null."""
    value: Any = obj
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return cast("Object", value) if isinstance(value, dict) else {}


def items(obj: Object, key: str) -> list[Any]:
    """Return the list of a key; empty if it is absent, null or another type."""
    found = obj.get(key)
    return cast("list[Any]", found) if isinstance(found, list) else []


def parts(obj: Object, key: str) -> list[Object]:
    """Return the mappings in the list of a key."""
    return [each for each in items(obj, key) if isinstance(each, dict)]


def reference(obj: Object) -> str:
    """Name an object for messages: `ConfigMap a-namespace/a-name`."""
    metadata = at(obj, "metadata")
    namespace = metadata.get("namespace")
    name = metadata.get("name") or metadata.get("generateName", "")
    return f"{obj.get('kind', 'object')} {f'{namespace}/' if namespace else ''}{name}"


def namespaced_name(obj: Object) -> str:
    """Name an object as options and Gateways do: `a-namespace/a-name`."""
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def rank_by_age(obj: Object) -> tuple[str, str, str]:
    """Return by what objects are sorted from the oldest to the youngest, as istiod sorts them.

    Times are in whole seconds. Of two objects of one second the first name counts as older
    (`configCompareByCreationTime` in istio's pilot/pkg/model/config.go).
    """
    metadata = obj["metadata"]
    return metadata["creationTimestamp"], metadata["name"], metadata["namespace"]


def read_each(objects: Iterable[Object], reader: Callable[[Object], Iterable[_T]]) -> list[_T]:
    """Read any number of values from each object; skip an object that fails."""
    found: list[_T] = []
    for obj in objects:
        with fences.isolate(reference(obj)):
            found += reader(obj)
    return found


class Cluster:
    """Reads and writes objects, and turns the API server's errors into the charm's errors.

    Each object and list is kept during a hook. A write drops the objects of its kind, and a
    conflict with another writer drops all. Absent objects are not kept, since the next step would
    create them. Neither are dry runs.
    """

    def __init__(self, client: lightkube.Client) -> None:
        # The library's annotations leave plain mappings partially unknown.
        self.client: Any = client
        self.missing: set[str] = set()
        """Messages of the API server about missing optional rights."""
        self._lists: dict[tuple[Kind, str, _Labels], list[Object]] = {}
        self._objects: dict[tuple[Kind, str, str], Object] = {}
        self._typed: dict[tuple[object, ...], Any] = {}

    @contextlib.contextmanager
    def skip_if_forbidden(self) -> Generator[None]:
        """Skip a step for which the charm lacks an optional right."""
        try:
            yield
        except errors.ForbiddenError as error:
            if error.message not in self.missing:
                logger.info("Left out: %s", error)
            self.missing.add(error.message)

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object | None:
        """Read one object; None if it or its kind does not exist."""
        key = (kind, namespace or "", name)
        if key not in self._objects and kind == NAMESPACE:
            # Every hook needs all namespaces.
            self.list_if_allowed(kind)
        if key not in self._objects and (found := self._get(kind, name, namespace)):
            self._objects[key] = found
        return self._objects.get(key)

    def _get(self, kind: Kind, name: str, namespace: str | None) -> Object | None:
        where = f"{kind.name} {f'{namespace}/' if namespace else ''}{name}"
        try:
            with errors.translate_errors(f"get {kind.name}", where):
                found = self.client.get(_make_resource(kind), name, namespace=namespace)
        except errors.ApiError as error:
            if error.code == 404:
                return None
            raise
        obj = _add_kind(kind, found)
        if said := find_defect(obj):
            raise errors.UnreachableError(f"{reference(obj)} can't be read: {said}")
        return obj

    def get_if_allowed(self, kind: Kind, name: str, namespace: str | None = None) -> Object | None:
        """Read as `get` does; None also if the right to read the object is missing."""
        with self.skip_if_forbidden():
            return self.get(kind, name, namespace)
        return None

    def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        labels: Mapping[str, str | None] | None = None,
    ) -> list[Object]:
        """List the objects of a kind in one namespace or all; empty if the kind does not exist.

        In `labels` the value None matches any value. An object that can't be read is skipped. The
        spec of a CustomResourceDefinition has only its conversion, since the schemas of a cluster
        take megabytes.
        """
        selected: _Labels = frozenset((labels or {}).items())
        for (listed, place, wider), known in self._lists.items():
            if listed == kind and place in ("", namespace) and wider <= selected:
                return [each for each in known if _is_selected(each, namespace, selected)]
        found = [*self._read_pages(kind, namespace, labels=labels)]
        self._lists[kind, namespace or "", selected] = found
        # A list has less of each CustomResourceDefinition than `get`.
        for each in found if kind != CUSTOM_RESOURCE_DEFINITION else ():
            metadata = each["metadata"]
            self._objects[kind, metadata.get("namespace", ""), metadata["name"]] = each
        return found

    def list_if_allowed(self, kind: Kind, namespace: str | None = None) -> list[Object]:
        """List as `list` does; empty if the right to list the kind is missing."""
        with self.skip_if_forbidden():
            return self.list(kind, namespace)
        return []

    def decode(self, objects: Iterable[Object], kind: type[_T]) -> list[_T]:
        """Read objects of one kind into a type; each version of an object is decoded once."""

        def read(obj: Object) -> list[_T]:
            metadata = obj["metadata"]
            version = (kind, reference(obj), metadata.get("uid"), metadata.get("resourceVersion"))
            if version not in self._typed:
                self._typed[version] = msgspec.convert(obj, kind)
            return [self._typed[version]]

        return read_each(objects, read)

    def list_events(self, reason: str, namespace: str | None = None) -> list[Object]:
        """List the Events with a reason, of one namespace or of all."""
        return [*self._read_pages(EVENT, namespace, fields=f"reason={reason}")]

    def stream(self, kind: Kind) -> Iterator[Object]:
        """Read the objects of a kind everywhere as `list` does, in pages that are not cached."""
        return self._read_pages(kind, limit=_PAGE)

    def _read_pages(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str | None] | None = None,
        fields: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Object]:
        selector = ",".join(
            key if value is None else f"{key}={value}" for key, value in (labels or {}).items()
        )
        params: dict[str, Any] = {
            "labelSelector": selector or None,
            "fieldSelector": fields,
            "limit": limit,
        }
        place = namespace or "*" if kind.namespaced else None
        while True:
            try:
                with errors.translate_errors(f"list {kind.name}"):
                    following, found = _read_page(kind, self._request_list(kind, place, params))
            except errors.ApiError as error:
                # Some kinds, such as access reviews, can be created but not listed.
                if error.code in (404, 405):
                    return
                raise
            for each in found:
                if said := find_defect(each):
                    fences.note_skipped(reference(each), said)
                else:
                    yield each
            if not following:
                return
            params["continue"] = following

    def _request_list(self, kind: Kind, namespace: str | None, params: Mapping[str, Any]) -> bytes:
        """Return the raw answer of a list request."""
        generic = self.client._client  # noqa: SLF001 - the only way to the answer as it came
        asked = generic.prepare_request(
            "list", _make_resource(kind), namespace=namespace, params=dict(params)
        )
        answer = generic.send(generic.build_adapter_request(asked))
        generic.raise_for_status(answer)
        return answer.content

    def serves(self, kind: Kind, namespace: str | None = None) -> bool:
        """Tell whether the API server serves a kind; this needs the right to list it there."""
        place = namespace or "*" if kind.namespaced else None
        try:
            with errors.translate_errors(f"list {kind.name}"):
                self._request_list(kind, place, {"limit": 1})
        except errors.ApiError as error:
            if error.code == 404:
                return False
            raise
        return True

    def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        """Create an object; with `dry_run` return the object that would be created."""
        kind = KINDS[obj["apiVersion"], obj["kind"]]
        resource = _make_resource(kind)
        namespace = obj["metadata"].get("namespace")
        with self._drop_stale_answers("create", obj, dry_run=dry_run):
            created = self.client.create(
                resource(obj), namespace=namespace, field_manager=FIELD_MANAGER, dry_run=dry_run
            )
        return _add_kind(kind, created)

    def apply(self, obj: Object, *, dry_run: bool = False) -> Object:
        """Apply an object of this application (server-side apply)."""
        return self._patch(obj, obj, lightkube.types.PatchType.APPLY, dry_run=dry_run)

    def merge_patch(self, obj: Object, patch: Object) -> Object:
        """Merge a patch into an object of any owner.

        With `metadata.resourceVersion` in the patch, a concurrent change raises ConflictError.
        """
        return self._patch(obj, patch, lightkube.types.PatchType.MERGE)

    def delete(self, obj: Object) -> None:
        """Delete an object, if it exists."""
        kind = KINDS[obj["apiVersion"], obj["kind"]]
        metadata = obj["metadata"]
        try:
            with self._drop_stale_answers("delete", obj):
                self.client.delete(
                    _make_resource(kind),
                    metadata["name"],
                    namespace=metadata.get("namespace"),
                    cascade=lightkube.types.CascadeType.BACKGROUND,
                )
        except errors.ApiError as error:
            if error.code != 404 or isinstance(error, errors.RefusedError):
                raise

    def _patch(
        self, obj: Object, patch: Object, how: lightkube.types.PatchType, **options: bool
    ) -> Object:
        kind = KINDS[obj["apiVersion"], obj["kind"]]
        metadata = obj["metadata"]
        with self._drop_stale_answers("patch", obj, **options):
            patched = self.client.patch(
                _make_resource(kind),
                metadata["name"],
                patch,
                namespace=metadata.get("namespace"),
                patch_type=how,
                field_manager=FIELD_MANAGER,
                force=how is lightkube.types.PatchType.APPLY,
                **options,
            )
        return _add_kind(kind, patched)

    @contextlib.contextmanager
    def _drop_stale_answers(
        self, verb: str, obj: Object, *, dry_run: bool = False
    ) -> Generator[None]:
        """Drop what a write makes stale, even after a failure: answers get lost."""
        try:
            with errors.translate_errors(f"{verb} {obj['kind']}", reference(obj)):
                yield
        except errors.ConflictError:
            if not dry_run:
                self._lists.clear()
                self._objects.clear()
            raise
        finally:
            if not dry_run:
                written = KINDS[obj["apiVersion"], obj["kind"]]
                self._lists = {k: v for k, v in self._lists.items() if k[0] != written}
                self._objects = {k: v for k, v in self._objects.items() if k[0] != written}


def _is_selected(obj: Object, namespace: str | None, selected: _Labels) -> bool:
    metadata = obj["metadata"]
    if namespace is not None and metadata.get("namespace") != namespace:
        return False
    present = at(metadata, "labels")
    return all(key in present and value in (None, present[key]) for key, value in selected)


def connect() -> Cluster:
    """Connect as the pod's ServiceAccount, never by a kubeconfig: hooks have no HOME.

    Raises:
        UnreachableError: The pod's token is missing or unreadable.
    """
    try:
        return Cluster(lightkube.Client(lightkube.KubeConfig.from_service_account()))
    except (lightkube.ConfigError, KeyError, OSError) as error:
        raise errors.UnreachableError(f"no access to the Kubernetes API: {error}") from error


def _add_kind(kind: Kind, obj: Any) -> Object:
    return {**obj, "apiVersion": kind.api_version, "kind": kind.name}


class _Page(TypedDict, total=False):
    items: list[msgspec.Raw] | None
    metadata: dict[str, Any]


def _read_page(kind: Kind, answer: bytes) -> tuple[str, list[Object]]:
    """Decode one page of a list; the continue token is empty for the last page."""
    try:
        page = msgspec.json.decode(answer, type=_Page)
        found = [_decode_object(kind, each) for each in page.get("items") or ()]
    except RecursionError:
        # The cut answer can be decoded. An object that was cut still nests too deep.
        return _read_page(kind, bounded.cut_depth(answer, bounded.DEEPEST + _AROUND_ITEMS + 1))
    return page.get("metadata", {}).get("continue", ""), found


def _decode_object(kind: Kind, text: msgspec.Raw) -> Object:
    found = _add_kind(kind, msgspec.json.decode(text))
    if kind == CUSTOM_RESOURCE_DEFINITION:
        found["spec"] = {"conversion": at(found, "spec", "conversion")}
    return found


def find_defect(obj: Object) -> str:
    """Return why an answer cannot be read as an object; empty if it can.

    API servers validate the metadata of every kind; other fields may have no schema.
    """
    if not isinstance(at(obj, "metadata").get("name"), str):
        return "it has no name"
    return "" if bounded.is_shallow(obj) else TOO_DEEP

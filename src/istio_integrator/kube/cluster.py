"""The charm's only way to the Kubernetes API: plain objects in, plain objects or errors out.

Objects stay plain mappings, so that a field which this version of the client library does not
know is neither lost on reading nor dropped on writing.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import lightkube
import lightkube.generic_resource
import lightkube.types
import msgspec

from integrator_contract import bounded
from istio_integrator.kube import errors, failures, fences, listing

Object = dict[str, Any]

FIELD_MANAGER = "istio-integrator"
_AROUND_ITEMS = 2
"""Levels of a list around each of its objects."""
_PAGE = 20
"""Objects of one answer, where all of a kind are only looked through: each may have 1.5 MB."""


class Kind(NamedTuple):
    """A kind of object and how the API server spells it in addresses."""

    api_version: str
    name: str
    plural: str
    namespaced: bool


def _kinds(api_version: str, namespaced: bool, **names: str) -> list[Kind]:
    return [Kind(api_version, name, plural, namespaced) for name, plural in names.items()]


_ADMISSION = "admissionregistration.k8s.io/v1"
_RBAC = "rbac.authorization.k8s.io/v1"
_GATEWAY_API = "gateway.networking.k8s.io/v1"

KINDS: dict[tuple[str, str], Kind] = {
    (kind.api_version, kind.name): kind
    for kind in (
        *_kinds("v1", False, Namespace="namespaces", Node="nodes"),
        *_kinds(
            "v1",
            True,
            ConfigMap="configmaps",
            Pod="pods",
            Secret="secrets",  # noqa: S106
            Service="services",
            ServiceAccount="serviceaccounts",
            Event="events",
        ),
        *_kinds(
            "apps/v1",
            True,
            Deployment="deployments",
            DaemonSet="daemonsets",
            StatefulSet="statefulsets",
        ),
        *_kinds("policy/v1", True, PodDisruptionBudget="poddisruptionbudgets"),
        *_kinds("networking.k8s.io/v1", True, NetworkPolicy="networkpolicies"),
        # Earlier revisions made one.
        *_kinds("coordination.k8s.io/v1", True, Lease="leases"),
        *_kinds("discovery.k8s.io/v1", True, EndpointSlice="endpointslices"),
        *_kinds(
            _ADMISSION,
            False,
            MutatingWebhookConfiguration="mutatingwebhookconfigurations",
            ValidatingWebhookConfiguration="validatingwebhookconfigurations",
            MutatingAdmissionPolicy="mutatingadmissionpolicies",
            MutatingAdmissionPolicyBinding="mutatingadmissionpolicybindings",
            ValidatingAdmissionPolicy="validatingadmissionpolicies",
            ValidatingAdmissionPolicyBinding="validatingadmissionpolicybindings",
        ),
        *_kinds(
            "admissionregistration.k8s.io/v1beta1",
            False,
            MutatingAdmissionPolicy="mutatingadmissionpolicies",
            MutatingAdmissionPolicyBinding="mutatingadmissionpolicybindings",
        ),
        *_kinds(
            "apiextensions.k8s.io/v1", False, CustomResourceDefinition="customresourcedefinitions"
        ),
        *_kinds("apiregistration.k8s.io/v1", False, APIService="apiservices"),
        *_kinds(_RBAC, True, Role="roles", RoleBinding="rolebindings"),
        *_kinds(
            _RBAC, False, ClusterRole="clusterroles", ClusterRoleBinding="clusterrolebindings"
        ),
        *_kinds(
            "networking.istio.io/v1",
            True,
            Gateway="gateways",
            VirtualService="virtualservices",
            DestinationRule="destinationrules",
            Sidecar="sidecars",
        ),
        *_kinds("networking.istio.io/v1alpha3", True, EnvoyFilter="envoyfilters"),
        *_kinds(_GATEWAY_API, False, GatewayClass="gatewayclasses"),
        *_kinds(
            _GATEWAY_API,
            True,
            Gateway="gateways",
            HTTPRoute="httproutes",
            GRPCRoute="grpcroutes",
        ),
        *_kinds(
            "security.istio.io/v1",
            True,
            AuthorizationPolicy="authorizationpolicies",
            PeerAuthentication="peerauthentications",
            RequestAuthentication="requestauthentications",
        ),
        *_kinds("extensions.istio.io/v1alpha1", True, WasmPlugin="wasmplugins"),
        *_kinds(
            "authorization.k8s.io/v1", False, SelfSubjectAccessReview="selfsubjectaccessreviews"
        ),
    )
}


def kind(api_version: str, name: str) -> Kind:
    """Look up a kind that the charm knows."""
    return KINDS[api_version, name]


NAMESPACE = kind("v1", "Namespace")
NODE = kind("v1", "Node")
CONFIG_MAP = kind("v1", "ConfigMap")
POD = kind("v1", "Pod")
SECRET = kind("v1", "Secret")
SERVICE = kind("v1", "Service")
DEPLOYMENT = kind("apps/v1", "Deployment")
DAEMON_SET = kind("apps/v1", "DaemonSet")
STATEFUL_SET = kind("apps/v1", "StatefulSet")
GATEWAY = kind("networking.istio.io/v1", "Gateway")
ENVOY_FILTER = kind("networking.istio.io/v1alpha3", "EnvoyFilter")
KUBERNETES_GATEWAY = kind(_GATEWAY_API, "Gateway")
"""Of the Gateway API; `GATEWAY` is Istio's own."""
GATEWAY_CLASS = kind(_GATEWAY_API, "GatewayClass")
HTTP_ROUTE = kind(_GATEWAY_API, "HTTPRoute")
GRPC_ROUTE = kind(_GATEWAY_API, "GRPCRoute")
ENDPOINT_SLICE = kind("discovery.k8s.io/v1", "EndpointSlice")
MUTATING_WEBHOOK = kind(_ADMISSION, "MutatingWebhookConfiguration")
VALIDATING_WEBHOOK = kind(_ADMISSION, "ValidatingWebhookConfiguration")
VALIDATING_POLICY = kind(_ADMISSION, "ValidatingAdmissionPolicy")
CUSTOM_RESOURCE_DEFINITION = kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
API_SERVICE = kind("apiregistration.k8s.io/v1", "APIService")
VIRTUAL_SERVICE = kind("networking.istio.io/v1", "VirtualService")
DESTINATION_RULE = kind("networking.istio.io/v1", "DestinationRule")
SIDECAR = kind("networking.istio.io/v1", "Sidecar")
AUTHORIZATION_POLICY = kind("security.istio.io/v1", "AuthorizationPolicy")
PEER_AUTHENTICATION = kind("security.istio.io/v1", "PeerAuthentication")
REQUEST_AUTHENTICATION = kind("security.istio.io/v1", "RequestAuthentication")
WASM_PLUGIN = kind("extensions.istio.io/v1alpha1", "WasmPlugin")


@functools.cache
def _resource(kind: Kind) -> Any:
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
    """Follow a path to a mapping; what is absent or null is an empty one."""
    value: Any = obj
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return cast("Object", value) if isinstance(value, dict) else {}


def items(obj: Object, key: str) -> list[Any]:
    """Read a list; what is none, as what is absent or null, is empty."""
    found = obj.get(key)
    return cast("list[Any]", found) if isinstance(found, list) else []


def parts(obj: Object, key: str) -> list[Object]:
    """Read a list of mappings; whatever else is in it is left out."""
    return [each for each in items(obj, key) if isinstance(each, dict)]


def is_ready(pod: Object) -> bool:
    """Tell whether a pod serves."""
    conditions = parts(at(pod, "status"), "conditions")
    return any((each.get("type"), each.get("status")) == ("Ready", "True") for each in conditions)


def reference(obj: Object) -> str:
    """Name an object for people: `ConfigMap a-namespace/a-name`."""
    metadata = at(obj, "metadata")
    namespace = metadata.get("namespace")
    name = metadata.get("name") or metadata.get("generateName", "")
    return f"{obj.get('kind', 'object')} {f'{namespace}/' if namespace else ''}{name}"


class Cluster:
    """Reads and writes objects, and turns what the API server refuses into the charm's errors."""

    def __init__(self, client: lightkube.Client) -> None:
        # The library's annotations leave plain mappings partially unknown.
        self.client: Any = client

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object | None:
        """Read one object; None where it, or its kind, does not exist."""
        try:
            with failures.mapped(f"get {kind.name}"):
                found = self.client.get(_resource(kind), name, namespace=namespace)
        except errors.ApiError as error:
            if error.code == 404:
                return None
            raise
        except errors.GarbledError as error:
            where = f"{namespace}/" if namespace else ""
            raise errors.GarbledError(f"{kind.name} {where}{name}: {error}") from error
        return _sound(kind, found)

    def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        labels: Mapping[str, str | None] | None = None,
    ) -> list[Object]:
        """Read the objects of a kind; nothing where the kind does not exist.

        An object that can't be read is passed over. Of a CustomResourceDefinition there is no more
        than `listing.definitions` says.

        Args:
            kind: The kind.
            namespace: Where to look, None for everywhere.
            labels: Labels that each object must have, None for any value.
        """
        everywhere = "*" if kind.namespaced else None
        try:
            with failures.mapped(f"list {kind.name}"):
                found = self._listed(kind, namespace or everywhere, labels)
                return list(_all_sound(kind, found))
        except errors.ApiError as error:
            # Questions, such as reviews of access, can be asked and not listed.
            if error.code in (404, 405):
                return []
            raise
        except errors.TooDeepError:
            # Cut, it can be decoded, and the object that nests too much still does.
            with failures.mapped(f"list {kind.name}"):
                answer = self._answer(kind, namespace or everywhere, labels)
                text = bounded.shallow(answer, bounded.DEEPEST + _AROUND_ITEMS + 1)
                return list(_all_sound(kind, msgspec.json.decode(text).get("items") or ()))

    def events(self, reason: str) -> Iterable[Object]:
        """Read the Events of all namespaces that have a reason."""
        event = kind("v1", "Event")
        with failures.mapped("list Event"):
            found = self.client.list(_resource(event), namespace="*", fields={"reason": reason})
            return _all_sound(event, [*found])

    def _listed(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str | None] | None
    ) -> Iterable[Any]:
        if kind == CUSTOM_RESOURCE_DEFINITION:
            return listing.definitions(self._answer(kind, namespace, labels))
        return self.client.list(_resource(kind), namespace=namespace, labels=labels)

    def _answer(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str | None] | None
    ) -> bytes:
        """Ask for a list, and return it as it came."""
        generic = self.client._client  # noqa: SLF001 - the only way to the answer as it came
        selector = ",".join(
            key if value is None else f"{key}={value}" for key, value in (labels or {}).items()
        )
        asked = generic.prepare_request(
            "list",
            _resource(kind),
            namespace=namespace,
            params={"labelSelector": selector or None},
        )
        answer = generic.send(generic.build_adapter_request(asked))
        generic.raise_for_status(answer)
        return answer.content

    def each(self, kind: Kind) -> Iterator[Object]:
        """Read the objects of a kind everywhere, in pages that are not kept.

        An object that can't be read is passed over. Nothing comes where the kind does not exist.
        """
        try:
            with failures.mapped(f"list {kind.name}"):
                found = self.client.list(_resource(kind), namespace="*", chunk_size=_PAGE)
                yield from _all_sound(kind, found)
        except errors.ApiError as error:
            if error.code != 404:
                raise

    def serves(self, kind: Kind, namespace: str | None = None) -> bool:
        """Tell whether the API server knows a kind, which takes the right to list it.

        Args:
            kind: The kind.
            namespace: Where to ask for one of a namespace, None for everywhere.
        """
        place = namespace or "*" if kind.namespaced else None
        try:
            with failures.mapped(f"list {kind.name}"):
                next(iter(self.client.list(_resource(kind), namespace=place, chunk_size=1)), None)
        except errors.ApiError as error:
            if error.code == 404:
                return False
            raise
        except errors.TooDeepError:
            pass
        return True

    def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        """Create an object, or with `dry_run` learn what would be created."""
        kind = KINDS[obj["apiVersion"], obj["kind"]]
        resource = _resource(kind)
        namespace = obj["metadata"].get("namespace")
        with failures.mapped(f"create {kind.name}", reference(obj)):
            created = self.client.create(
                resource(obj), namespace=namespace, field_manager=FIELD_MANAGER, dry_run=dry_run
            )
        return _plain(kind, created)

    def apply(self, obj: Object, *, force: bool = True) -> Object:
        """Server-side apply what is ours; without `force` a field of others is a Conflict."""
        return self._patch(obj, obj, lightkube.types.PatchType.APPLY, force=force)

    def merge_patch(self, obj: Object, patch: Object) -> Object:
        """Merge a patch into an object, which may be somebody else's.

        The patch may carry `metadata.resourceVersion`: a change in between is then a Conflict.
        """
        return self._patch(obj, patch, lightkube.types.PatchType.MERGE)

    def delete(self, obj: Object) -> None:
        """Delete an object; one that is not there is as good as deleted."""
        kind = KINDS[obj["apiVersion"], obj["kind"]]
        metadata = obj["metadata"]
        try:
            with failures.mapped(f"delete {kind.name}", reference(obj)):
                self.client.delete(
                    _resource(kind),
                    metadata["name"],
                    namespace=metadata.get("namespace"),
                    cascade=lightkube.types.CascadeType.BACKGROUND,
                )
        except errors.RefusedError:
            raise
        except errors.ApiError as error:
            if error.code != 404:
                raise

    def _patch(
        self, obj: Object, patch: Object, how: lightkube.types.PatchType, *, force: bool = False
    ) -> Object:
        kind = KINDS[obj["apiVersion"], obj["kind"]]
        metadata = obj["metadata"]
        with failures.mapped(f"patch {kind.name}", reference(obj)):
            patched = self.client.patch(
                _resource(kind),
                metadata["name"],
                patch,
                namespace=metadata.get("namespace"),
                patch_type=how,
                field_manager=FIELD_MANAGER,
                force=force,
            )
        return _plain(kind, patched)


def connect() -> Cluster:
    """Connect as the pod's ServiceAccount; hooks have no HOME, so no file of a user is looked at.

    Raises:
        UnreachableError: The pod has no token, or it can't be read.
    """
    try:
        return Cluster(lightkube.Client(lightkube.KubeConfig.from_service_account()))
    except (lightkube.ConfigError, KeyError, OSError) as error:
        raise errors.UnreachableError(f"no access to the Kubernetes API: {error}") from error


def _plain(kind: Kind, obj: Any) -> Object:
    return {**obj, "apiVersion": kind.api_version, "kind": kind.name}


def _sound(kind: Kind, obj: Any) -> Object:
    """Return an object as it was answered.

    Raises:
        GarbledError: It is none.
    """
    found = _plain(kind, obj)
    if said := listing.problem(found, is_namespaced=kind.namespaced):
        raise errors.GarbledError(f"{reference(found)} can't be read: {said}")
    return found


def _all_sound(kind: Kind, found: Iterable[Any]) -> Iterable[Object]:
    for each in found:
        obj = _plain(kind, each)
        if said := listing.problem(obj, is_namespaced=kind.namespaced):
            fences.note(reference(obj), said)
        else:
            yield obj

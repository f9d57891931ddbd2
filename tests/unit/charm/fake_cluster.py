"""A small API server that keeps objects, and the injectors of an Istio in it.

It answers the requests that lightkube really sends, so tests assert what the cluster holds
afterwards. It is no Kubernetes: there are no controllers, defaults or schemas.
"""

from __future__ import annotations

import copy
import datetime
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import lightkube
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import Cluster as ClusterConfig
from lightkube.config.models import Context, User

import cluster as charm_cluster

_ADDRESS = re.compile(
    r"/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+/[^/]+))"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]+))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?"
)
Key = tuple[str, str, str, str]


class StatusError(Exception):
    """An answer that is not an object."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.message = message


class FakeCluster:
    """Keeps objects by kind, namespace and name."""

    def __init__(self) -> None:
        self.objects: dict[Key, dict[str, Any]] = {}
        self.writes: list[str] = []
        self.asked: set[tuple[str, str]] = set()
        self.forbidden: set[tuple[str, ...]] = set()
        self.absent: set[str] = set()
        self.broken: dict[tuple[str, str], int] = {}
        self.timeouts: set[tuple[str, str]] = set()
        self.unreachable = False
        self.interference: list[Any] = []
        self.policies_work = True
        self.now = lambda: datetime.datetime.now(datetime.UTC)
        self._applied: dict[Key, dict[str, Any]] = {}
        self._version = 100

    def client(self) -> lightkube.Client:
        config = SingleConfig(
            context_name="fake",
            context=Context(cluster="fake", namespace="default"),
            cluster=ClusterConfig(server="https://fake.invalid", insecure=True),
            user=User(),
        )
        return lightkube.Client(config=config, transport=httpx2.MockTransport(self._answer))

    def api(self) -> charm_cluster.Cluster:
        return charm_cluster.Cluster(self.client())

    def add(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Have somebody else create an object."""
        kind = charm_cluster.KINDS[obj["apiVersion"], obj["kind"]]
        metadata = obj["metadata"]
        key = (kind.api_version, kind.plural, metadata.get("namespace", ""), metadata["name"])
        return self._store(key, copy.deepcopy(obj))

    def namespace(self, name: str, **labels: str) -> dict[str, Any]:
        marks = {key.replace("__", "-"): value for key, value in labels.items()}
        return self.add(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": {"model.juju.is/name": name, **marks}},
            }
        )

    def application(self, name: str = "istio-integrator", model: str = "kubeflow") -> None:
        """Have Juju deploy an application: what it runs its units in, and its ClusterRole."""
        marks = {"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "juju"}
        self.add(
            {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "metadata": {"name": name, "namespace": model, "labels": marks},
            }
        )
        self.add(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "metadata": {"name": f"{model}-{name}", "labels": marks},
                "rules": [],
            }
        )

    def node(self, name: str = "node", kubelet: str = "v1.36.3") -> None:
        info = {"nodeInfo": {"kubeletVersion": kubelet}}
        self.add({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": info})

    def find(self, kind: str, name: str, namespace: str = "") -> dict[str, Any] | None:
        for obj in self.objects.values():
            metadata = obj["metadata"]
            if (obj["kind"], metadata["name"], metadata.get("namespace", "")) == (
                kind,
                name,
                namespace,
            ):
                return obj
        return None

    def labels(self, namespace: str) -> dict[str, str]:
        found = self.find("Namespace", namespace)
        assert found
        return found["metadata"].get("labels", {})

    def delete(self, kind: str, name: str, namespace: str = "") -> None:
        for key, obj in list(self.objects.items()):
            metadata = obj["metadata"]
            if obj["kind"] == kind and key[2:] == (namespace, metadata["name"]) == (
                namespace,
                name,
            ):
                del self.objects[key]

    def _store(self, key: Key, obj: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        metadata = obj["metadata"]
        metadata.setdefault("uid", f"uid-{self._version}")
        # What is created later is younger, also within one second.
        now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=self._version)
        metadata.setdefault("creationTimestamp", now.strftime("%Y-%m-%dT%H:%M:%SZ"))
        metadata["resourceVersion"] = str(self._version)
        self.objects[key] = obj
        return obj

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        if self.unreachable:
            raise httpx2.ConnectError("connection refused")
        try:
            return httpx2.Response(200, json=self._handle(request), request=request)
        except StatusError as status:
            if status.code == 404 and not status.message:
                return httpx2.Response(404, text="404 page not found", request=request)
            body = {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "code": status.code,
                "message": status.message,
            }
            return httpx2.Response(status.code, json=body, request=request)

    def _handle(self, request: httpx2.Request) -> dict[str, Any]:
        match = _ADDRESS.fullmatch(request.url.path)
        assert match, request.url.path
        api_version = match["core"] or match["group"]
        if api_version in self.absent:
            raise StatusError(404, "")
        key = (api_version, match["plural"], match["namespace"] or "", match["name"] or "")
        verb = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}.get(
            request.method, "get" if match["name"] else "list"
        )
        self._check(verb, key)
        content = json.loads(request.content) if request.content else {}
        if verb == "list":
            return self._list(key, request.url.params.get("labelSelector", ""))
        if verb == "create":
            return self._create(key, content, dry_run="dryRun" in request.url.params)
        if key not in self.objects and verb != "patch":
            raise StatusError(404, f'{key[1]} "{key[3]}" not found')
        if verb == "delete":
            self.writes.append(f"delete {key[1]} {key[3]}")
            return self.objects.pop(key)
        if verb == "patch":
            return self._patch(key, content, request.headers["Content-Type"])
        return self.objects[key]

    def _allows(self, asked: dict[str, str]) -> bool:
        if asked["verb"] == "*":
            return not self.forbidden
        resource = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
        denied = {
            ("*", "*"),
            (asked["verb"], resource),
            (asked["verb"], resource, asked["namespace"]),
        }
        return not denied & self.forbidden

    def _check(self, verb: str, key: Key) -> None:
        plural = key[1]
        self.asked.add((verb, plural))
        if (verb, plural) in self.timeouts:
            raise httpx2.ReadTimeout("The read operation timed out")
        if plural == "selfsubjectaccessreviews":
            # Everybody may ask what they may do.
            return
        elsewhere = (verb, plural, key[2]) in self.forbidden
        if elsewhere or (verb, plural) in self.forbidden or ("*", "*") in self.forbidden:
            raise StatusError(
                403,
                f'{plural} is forbidden: User "system:serviceaccount:kubeflow:istio-integrator" '
                f'cannot {verb} resource "{plural}" in API group ""',
            )
        if plural == "selfsubjectaccessreviews" and verb != "create":
            raise StatusError(405, "the server does not allow this method on the resource")
        if (verb, plural) in self.broken:
            raise StatusError(self.broken[verb, plural], "the server says no")

    def _list(self, key: Key, selector: str) -> dict[str, Any]:
        parts = [part.partition("=") for part in selector.split(",") if part]
        wanted = {key: value for key, equals, value in parts if equals}
        there = {key for key, equals, _ in parts if not equals}
        items = [
            obj
            for found, obj in self.objects.items()
            if found[:2] == key[:2]
            and key[2] in ("", found[2])
            and wanted.items() <= obj["metadata"].get("labels", {}).items()
            and there <= obj["metadata"].get("labels", {}).keys()
        ]
        return {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}

    def _create(self, key: Key, obj: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
        metadata = obj["metadata"]
        if key[1] == "selfsubjectaccessreviews":
            return {**obj, "status": {"allowed": self._allows(obj["spec"]["resourceAttributes"])}}
        if key[1] == "pods":
            metadata["creationTimestamp"] = self.now().strftime("%Y-%m-%dT%H:%M:%SZ")
            self._mutate(obj)
            self._inject(key[2], obj)
        name = metadata.get("name") or metadata["generateName"] + "x7k2p"
        key = (*key[:3], name)
        if key in self.objects:
            raise StatusError(409, f'{key[1]} "{name}" already exists')
        metadata["name"] = name
        if dry_run:
            return obj
        self.writes.append(f"create {key[1]} {name}")
        return self._store(key, obj)

    def _patch(self, key: Key, content: dict[str, Any], content_type: str) -> dict[str, Any]:
        while self.interference:
            self.interference.pop(0)()
        live = self.objects.get(key)
        version = content.get("metadata", {}).get("resourceVersion")
        if live and version and version != live["metadata"]["resourceVersion"]:
            raise StatusError(409, "the object has been modified")
        self.writes.append(f"patch {key[1]} {key[3]}")
        if content_type == "application/merge-patch+json":
            if live is None:
                raise StatusError(404, f'{key[1]} "{key[3]}" not found')
            return self._store(key, _merged(live, content))
        assert content_type == "application/apply-patch+yaml", content_type
        base = _without(live or {"metadata": {}}, self._applied.get(key, {}), content)
        self._applied[key] = copy.deepcopy(content)
        return self._store(key, _merged(base, content))

    def _mutate(self, pod: dict[str, Any]) -> None:
        """Do what a policy does to a probe: show that it is at work, keep istiod out of it."""
        if pod["metadata"].get("labels", {}).get("istio-integrator.charmhub.io/probe") != "policy":
            return
        for key, policy in self.objects.items():
            if key[1] == "mutatingadmissionpolicies" and self.policies_work:
                revision = re.search(r"\b[0-9a-f]{16}\b", json.dumps(policy["spec"]))
                assert revision
                annotations = pod["metadata"].setdefault("annotations", {})
                annotations["istio-integrator.charmhub.io/settings"] = revision[0]
                pod["metadata"]["labels"]["sidecar.istio.io/inject"] = "false"

    def _inject(self, namespace: str, pod: dict[str, Any]) -> None:
        """Do what the injectors' webhook configurations and the istiods behind them do."""
        namespace_labels = self.labels(namespace)
        pod_labels = pod["metadata"].get("labels", {})
        for (_, plural, _, _), obj in sorted(self.objects.items()):
            if plural != "mutatingwebhookconfigurations":
                continue
            for hook in obj["webhooks"]:
                if _selects(hook["namespaceSelector"], namespace_labels) and _selects(
                    hook["objectSelector"], pod_labels
                ):
                    self._call(hook, pod)
                    return

    def _call(self, hook: dict[str, Any], pod: dict[str, Any]) -> None:
        service = hook["clientConfig"].get("service", {})
        istiod = self.find("Service", service.get("name", ""), service.get("namespace", ""))
        behaviour = (istiod or {}).get("behaviour", {"alive": "url" in hook["clientConfig"]})
        if not behaviour["alive"]:
            raise StatusError(
                500,
                f'Internal error: failed calling webhook "{hook["name"]}": failed to call '
                f"webhook: Post https://{service['name']}: connection refused",
            )
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations["sidecar.istio.io/status"] = json.dumps(
            {"revision": behaviour.get("revision", "default")}
        )
        annotations |= behaviour.get("injected_annotations", {})
        if behaviour.get("cni"):
            pod["spec"].setdefault("initContainers", []).append({"name": "istio-validation"})
        proxy = {"name": "istio-proxy", "image": behaviour.get("image", "proxyv2:1.31.1")}
        metadata = behaviour.get("proxy_metadata", {})
        proxy["env"] = [{"name": key, "value": value} for key, value in metadata.items()]
        default = json.dumps(behaviour.get("native_by_default", False))
        asked = annotations.get("sidecar.istio.io/nativeSidecar", default) == "true"
        if asked and behaviour.get("native", True):
            inits = pod["spec"].get("initContainers", [])
            pod["spec"]["initContainers"] = [*inits, {**proxy, "restartPolicy": "Always"}]
            return
        if "holdApplicationUntilProxyStarts" in annotations.get("proxy.istio.io/config", ""):
            proxy["lifecycle"] = {"postStart": {"exec": {"command": ["pilot-agent", "wait"]}}}
        pod["spec"]["containers"].insert(0, proxy)


def _merged(live: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(live) if isinstance(live, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged


def _without(live: Any, applied: Any, wanted: Any) -> Any:
    """Take away what the same manager applied before and does not want any more."""
    if not isinstance(live, dict) or not isinstance(applied, dict):
        return live
    return {
        key: _without(value, applied.get(key), (wanted or {}).get(key))
        for key, value in live.items()
        if key not in applied or key in (wanted or {})
    }


def _selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    for expression in selector.get("matchExpressions", ()):
        value = labels.get(expression["key"])
        held = {
            "In": value in expression.get("values", ()),
            "NotIn": value not in expression.get("values", ()),
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }[expression["operator"]]
        if not held:
            return False
    return True


def install_istio(
    cluster: FakeCluster,
    *,
    revision: str = "",
    tags: Iterator[str] | tuple[str, ...] = (),
    namespace: str = "istio-system",
    mesh_config: str = "",
    environment: dict[str, str] | None = None,
    **behaviour: Any,
) -> None:
    """Install what Istio's own charts render for a revision; `behaviour` is the istiod's."""
    suffix = f"-{revision}" if revision else ""
    if not cluster.find("Namespace", namespace):
        cluster.namespace(namespace)
    cluster.add(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": f"istiod{suffix}", "namespace": namespace},
            "behaviour": {"alive": True, "revision": revision or "default", **behaviour},
        }
    )
    cluster.add(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"istio{suffix}", "namespace": namespace},
            "data": {"mesh": mesh_config or f"rootNamespace: {namespace}\n"},
        }
    )
    env = [{"name": key, "value": value} for key, value in (environment or {}).items()]
    template = {"spec": {"containers": [{"name": "discovery", "env": env}]}}
    cluster.add(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": f"istiod{suffix}", "namespace": namespace},
            "spec": {"template": template},
        }
    )
    place = "" if namespace == "istio-system" else f"-{namespace}"
    cluster.add(_configuration(f"istio-sidecar-injector{suffix}{place}", revision, "", namespace))
    for tag in tags:
        cluster.add(_configuration(f"istio-revision-tag-{tag}{place}", revision, tag, namespace))


def set_istiod(cluster: FakeCluster, name: str = "istiod", **behaviour: Any) -> None:
    """Change how an istiod behaves."""
    service = cluster.find("Service", name, "istio-system")
    assert service
    service["behaviour"].update(behaviour)


def uninstall_istio(cluster: FakeCluster, *, revision: str = "") -> None:
    suffix = f"-{revision}" if revision else ""
    cluster.delete("Service", f"istiod{suffix}", "istio-system")
    cluster.delete("ConfigMap", f"istio{suffix}", "istio-system")
    cluster.delete("MutatingWebhookConfiguration", f"istio-sidecar-injector{suffix}")


def _expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    expression: dict[str, Any] = {"key": key, "operator": operator}
    return {**expression, "values": list(values)} if values else expression


def _configuration(name: str, revision: str, tag: str, namespace: str) -> dict[str, Any]:
    service = f"istiod-{revision}" if revision else "istiod"
    label = tag or revision or "default"
    injection, rev, inject = "istio-injection", "istio.io/rev", "sidecar.istio.io/inject"
    none = (_expression(rev, "DoesNotExist"), _expression(injection, "DoesNotExist"))
    wanted = _expression(inject, "NotIn", "false")
    hooks = [
        (
            "rev.namespace.",
            (_expression(rev, "In", label), _expression(injection, "DoesNotExist")),
            (wanted,),
        ),
        ("rev.object.", none, (wanted, _expression(rev, "In", label))),
    ]
    if label == "default":
        hooks += [
            ("namespace.", (_expression(injection, "In", "enabled"),), (wanted,)),
            ("object.", none, (_expression(inject, "In", "true"), none[0])),
        ]
    labels = {"app": "sidecar-injector", "istio.io/rev": revision or "default"}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name, "labels": {**labels, **({"istio.io/tag": tag} if tag else {})}},
        "webhooks": [
            {
                "name": f"{prefix}sidecar-injector.istio.io",
                "clientConfig": {
                    "service": {"name": service, "namespace": namespace, "path": "/inject"}
                },
                "namespaceSelector": {"matchExpressions": list(namespaces)},
                "objectSelector": {"matchExpressions": list(pods)},
            }
            for prefix, namespaces, pods in hooks
        ],
    }

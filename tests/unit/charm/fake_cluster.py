"""A small API server that keeps objects, and the injectors of an Istio in it.

It answers the requests that lightkube really sends, so tests assert what the cluster holds
afterwards. It is no Kubernetes: there are no controllers, defaults or schemas.
"""

from __future__ import annotations

import copy
import datetime
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
from lightkube import Client
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import Cluster as ClusterConfig
from lightkube.config.models import Context, User

from tests.unit import api_objects
from tests.unit.charm import istio_objects
from tests.unit.charm.objects import make

Key = tuple[str, str, str, str]
PREFIX = "istio-integrator.charmhub.io/"
TIMEOUT = 0
UNREACHABLE = -1
"""In place of a code: no answer in time, and none any more until `unreachable` is set back."""


def plural(kind: str) -> str:
    """Write a kind as API paths do."""
    name = kind.lower()
    if name.endswith("icy"):
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith("s") else f"{name}s"


class StatusError(Exception):
    """An answer that is not an object."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.message = message


class FakeCluster(api_objects.Objects):
    """Keeps objects by kind, namespace and name."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []
        self.asked: set[tuple[str, str]] = set()
        self.requests: list[str] = []
        """Each in its order, such as `list pods kf`."""
        self.forbidden: set[tuple[str, ...]] = set()
        self.absent: set[str] = set()
        self.broken: dict[tuple[str, ...], int] = {}
        self.refused: set[str] = set()
        self.spelled: dict[str, str] = {}
        self.timeouts: set[tuple[str, str]] = set()
        self.failing: dict[int, int] = {}
        """Codes of the requests that fail, by their place in `requests`, each once."""
        self.unreachable = False
        self.interference: list[Any] = []
        self.webhook_is_ready = True
        """Whether the pods of the charm's webhook become Ready."""
        self.webhook_answers = True
        """Whether the charm's webhook answers the API server."""
        self.validators: list[Callable[[dict[str, Any]], tuple[int, str] | None]] = []
        """Other teams' webhooks, policies and quotas: code and message of a refusal, for an object
        as it would be kept."""
        self.has_side_effects = False
        """Whether another team's webhook can't judge dry runs of patches."""
        self.remote: dict[str, dict[str, Any]] = {}
        """How istiods outside of the cluster behave, by the injector's URL."""
        self.now = lambda: datetime.datetime.now(datetime.UTC)
        self.changed: set[str] = set()
        """Objects of other owners that the charm has changed or deleted; it claims namespaces."""
        self.may_change: set[str] = set()
        """Those of them that a test expects."""
        self._applied: dict[Key, dict[str, Any]] = {}

    def client(self) -> Client:
        """Return a client of this server."""
        config = SingleConfig(
            context_name="fake",
            context=Context(cluster="fake", namespace="default"),
            cluster=ClusterConfig(server="https://fake.invalid", insecure=True),
            user=User(),
        )
        # A test may have the server answer otherwise.
        answer = lambda request: self._answer(request)  # noqa: E731, PLW0108
        return Client(config=config, transport=httpx2.MockTransport(answer))

    def add(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Create an object as another client."""
        metadata = obj["metadata"]
        place = metadata.get("namespace", "")
        key = (obj["apiVersion"], plural(obj["kind"]), place, metadata["name"])
        return self._store(key, copy.deepcopy(obj))

    def put(self, *names: str, **fields: Any) -> dict[str, Any]:
        """Create an object that `make` describes, as another client."""
        return self.add(make(*names, **fields))

    def namespace(self, name: str, **labels: str) -> dict[str, Any]:
        marks = {key.replace("__", "-"): value for key, value in labels.items()}
        return self.put("Namespace", name, "", labels={"model.juju.is/name": name, **marks})

    def application(self, name: str = "mesh-2", model: str = "kf") -> None:
        """Have Juju deploy an application: what it runs its units in, and its ClusterRole."""
        marks = {"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "juju"}
        self.put("StatefulSet", name, model, labels=marks)
        self.put("ClusterRole", f"{model}-{name}", "", labels=marks, rules=[])

    def node(self, name: str = "node", kubelet: str = "v1.36.3") -> None:
        self.put("Node", name, "", status={"nodeInfo": {"kubeletVersion": kubelet}})

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
        obj = self.keep(key, obj)
        # What is created later is younger, also within one second.
        now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=self.version)
        obj["metadata"].setdefault("creationTimestamp", now.strftime("%Y-%m-%dT%H:%M:%SZ"))
        return obj

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        if self.unreachable:
            raise httpx2.ConnectError("connection refused")
        try:
            answer = httpx2.Response(200, json=self._handle(request), request=request)
            if not self.spelled:
                return answer
            # What no program of ours could write, answers may say all the same.
            text = answer.text
            for placeholder, instead in self.spelled.items():
                text = text.replace(placeholder, instead)
            headers = {"Content-Type": "application/json"}
            return httpx2.Response(200, text=text, headers=headers, request=request)
        except StatusError as status:
            if status.code == 404 and not status.message:
                return httpx2.Response(404, text="404 page not found", request=request)
            body = api_objects.refusal(status.code, status.message)
            return httpx2.Response(status.code, json=body, request=request)

    def _handle(self, request: httpx2.Request) -> dict[str, Any]:
        address = api_objects.Address.of(request.url.path)
        if address.part:
            raise StatusError(404, "no pod runs here")
        key = address[:4]
        if self.absent.intersection(key[:2]):
            raise StatusError(404, "")
        verb = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}.get(
            request.method, "get" if address.name else "list"
        )
        if "continue" not in request.url.params:
            self._check(verb, key)
            if verb == "list" and "limit" in request.url.params:
                # A page may be empty although others follow (k8s.io/api, ListOptions.limit).
                return {"metadata": {"continue": "0"}, "items": []}
        content = json.loads(request.content) if request.content else {}
        if verb == "list":
            found = self._list(key, request.url.params.get("labelSelector", ""))
            field, _, value = request.url.params.get("fieldSelector", "").partition("=")
            items = [each for each in found["items"] if not field or each.get(field) == value]
            return {**found, "items": items}
        if verb == "create":
            return self._create(key, content, dry_run="dryRun" in request.url.params)
        if key not in self.objects and verb != "patch":
            raise StatusError(404, f'{key[1]} "{key[3]}" not found')
        if verb == "delete":
            self.writes.append(f"delete {key[1]} {key[3]}")
            self._note_foreign(key)
            return self.objects.pop(key)
        if verb == "patch":
            dry_run = "dryRun" in request.url.params
            how = request.headers["Content-Type"]
            return self._patch(key, content, how, dry_run=dry_run)
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
        self.requests.append(" ".join(filter(None, (verb, *key[1:]))))
        self._fail(self.failing.pop(len(self.requests) - 1, None))
        if (verb, plural) in self.timeouts:
            raise httpx2.ReadTimeout("The read operation timed out")
        if plural == "selfsubjectaccessreviews":
            # Everybody may ask what they may do.
            return
        if {(verb, plural), (verb, plural, key[2]), ("*", "*")} & self.forbidden:
            raise StatusError(
                403,
                f'{plural} is forbidden: User "system:serviceaccount:kf:mesh-2" '
                f'cannot {verb} resource "{plural}" in API group ""',
            )
        for broken in ((verb, plural), (verb, plural, key[3])):
            if broken in self.broken:
                raise StatusError(self.broken[broken], "the server says no")

    def _fail(self, code: int | None) -> None:
        if code == UNREACHABLE:
            self.unreachable = True
            raise httpx2.ConnectError("connection refused")
        if code == TIMEOUT:
            raise httpx2.ReadTimeout("The read operation timed out")
        if code:
            raise StatusError(code, "the server says no")

    def _list(self, key: Key, selector: str) -> dict[str, Any]:
        items = [
            obj
            for found, obj in self.objects.items()
            if found[:2] == key[:2]
            and key[2] in ("", found[2])
            and api_objects.has_labels(obj, selector)
        ]
        return {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}

    def _create(self, key: Key, obj: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
        metadata = obj["metadata"]
        if key[1] == "selfsubjectaccessreviews":
            return {**obj, "status": {"allowed": self._allows(obj["spec"]["resourceAttributes"])}}
        if key[1] == "pods":
            metadata["creationTimestamp"] = self.now().strftime("%Y-%m-%dT%H:%M:%SZ")
            self._prepare(obj)
            self._inject(key[2], obj)
        name = metadata.get("name") or metadata["generateName"] + "x7k2p"
        key = (*key[:3], name)
        if name in self.refused:
            raise StatusError(422, f'{key[1]} "{name}" is invalid')
        if key in self.objects:
            raise StatusError(409, f'{key[1]} "{name}" already exists')
        metadata["name"] = name
        self._validate(obj)
        if dry_run:
            return obj
        self.writes.append(f"create {key[1]} {name}")
        return self._store(key, obj)

    def _patch(
        self, key: Key, content: dict[str, Any], content_type: str, *, dry_run: bool
    ) -> dict[str, Any]:
        while self.interference:
            self.interference.pop(0)()
        live = self.objects.get(key)
        version = content.get("metadata", {}).get("resourceVersion")
        if live and version and version != live["metadata"]["resourceVersion"]:
            raise StatusError(409, "the object has been modified")
        if dry_run and self.has_side_effects:
            raise StatusError(400, 'admission webhook "count.x" does not support dry run')
        if not dry_run:
            self.writes.append(f"patch {key[1]} {key[3]}")
            self._note_foreign(key)
        if content_type == "application/merge-patch+json":
            if live is None:
                raise StatusError(404, f'{key[1]} "{key[3]}" not found')
            patched = api_objects.merged(live, content)
            self._validate(patched)
            return self._store(key, patched)
        assert content_type == "application/apply-patch+yaml", content_type
        base = api_objects.without(live or {"metadata": {}}, self._applied.get(key, {}), content)
        applied = api_objects.merged(base, content)
        self._validate(applied)
        if dry_run:
            return applied
        self._applied[key] = copy.deepcopy(content)
        if key[1] == "deployments" and self.webhook_is_ready and is_webhooks(applied):
            applied["status"] = {"readyReplicas": 2}
        return self._store(key, applied)

    def _note_foreign(self, key: Key) -> None:
        labels = self.objects.get(key, {}).get("metadata", {}).get("labels", {})
        is_ours = key in self._applied or labels.get(f"{PREFIX}owner") == "kf.mesh-2"
        is_served = "app.kubernetes.io/part-of" in labels or f"{PREFIX}served" in labels
        if key in self.objects and not is_ours and not (is_served and key[1] == "namespaces"):
            self.changed.add(" ".join(filter(None, key[1:])))

    def _validate(self, obj: dict[str, Any]) -> None:
        for validate in self.validators:
            if refused := validate(obj):
                raise StatusError(*refused)

    def _prepare(self, pod: dict[str, Any]) -> None:
        """Do what the charm's webhook does to a dry-run pod that asks for its settings."""
        if f"{PREFIX}probe" not in pod["metadata"].get("labels", {}) or not self.webhook_answers:
            return
        ours = [obj for obj in self.objects.values() if is_webhooks(obj)]
        is_asked = any(
            obj["kind"] == "MutatingWebhookConfiguration" and is_charms(obj)
            for obj in self.objects.values()
        )
        for obj in ours:
            if obj["kind"] == "ConfigMap" and is_asked:
                annotations = pod["metadata"].setdefault("annotations", {})
                settings = json.loads(obj["data"]["settings.json"])
                annotations[f"{PREFIX}settings"] = settings["digest"]

    def _inject(self, namespace: str, pod: dict[str, Any]) -> None:
        """Do what the injectors' webhook configurations and the istiods behind them do."""
        namespace_labels = self.labels(namespace)
        pod_labels = pod["metadata"].get("labels", {})
        for (_, plural, _, _), obj in sorted(self.objects.items()):
            if plural != "mutatingwebhookconfigurations" or is_charms(obj):
                continue
            for hook in obj["webhooks"]:
                if istio_objects.selects(
                    hook["namespaceSelector"], namespace_labels
                ) and istio_objects.selects(hook["objectSelector"], pod_labels):
                    self._call(hook, pod)
                    return

    def _call(self, hook: dict[str, Any], pod: dict[str, Any]) -> None:
        client = hook["clientConfig"]
        service = client.get("service", {})
        istiod = self.find("Service", service.get("name", ""), service.get("namespace", ""))
        otherwise = self.remote.get(client.get("url", ""), {"alive": "url" in client})
        behaviour = (istiod or {}).get("behaviour", otherwise)
        if not behaviour["alive"]:
            raise StatusError(
                500,
                f'Internal error: failed calling webhook "{hook["name"]}": failed to call '
                f"webhook: Post {client.get('url') or service['name']}: "
                f"{behaviour.get('problem', 'connection refused')}",
            )
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations["sidecar.istio.io/status"] = json.dumps(
            {"revision": behaviour.get("revision", "default")}
        )
        annotations |= behaviour.get("injected_annotations", {})
        if behaviour.get("cni"):
            pod["spec"].setdefault("initContainers", []).append({"name": "istio-validation"})
        if ports := behaviour.get("excluded_ports"):
            redirection = {"name": "istio-init", "args": ["istio-iptables", "-o", ports]}
            pod["spec"].setdefault("initContainers", []).append(redirection)
        proxy = {"name": "istio-proxy", "image": behaviour.get("image", "proxyv2:1.31.1")}
        config = dict(behaviour.get("proxy_config", {}))
        config |= json.loads(annotations.get("proxy.istio.io/config", "{}"))
        metadata = {"PROXY_CONFIG": json.dumps(config), **behaviour.get("proxy_metadata", {})}
        proxy["env"] = [{"name": key, "value": value} for key, value in metadata.items()]
        default = json.dumps(behaviour.get("native_by_default", False))
        asked = annotations.get("sidecar.istio.io/nativeSidecar", default) == "true"
        if asked and behaviour.get("native", True):
            inits = pod["spec"].get("initContainers", [])
            pod["spec"]["initContainers"] = [*inits, {**proxy, "restartPolicy": "Always"}]
            return
        if config.get("holdApplicationUntilProxyStarts"):
            proxy["lifecycle"] = {"postStart": {"exec": {"command": ["pilot-agent", "wait"]}}}
        pod["spec"]["containers"].insert(0, proxy)


def is_charms(obj: dict[str, Any]) -> bool:
    """Tell whether the charm made an object."""
    labels = obj["metadata"].get("labels", {})
    return labels.get("app.kubernetes.io/managed-by") == "istio-integrator"


def is_webhooks(obj: dict[str, Any]) -> bool:
    """Tell whether an object belongs to the servers of the charm's webhook."""
    labels = obj["metadata"].get("labels", {})
    return labels.get(f"{PREFIX}component") == "admission-webhook" and is_charms(obj)


def install_istio(
    cluster: FakeCluster,
    *,
    revision: str = "",
    tags: Iterator[str] | tuple[str, ...] = (),
    namespace: str = "istio-system",
    mesh_config: str = "",
    **behaviour: Any,
) -> None:
    """Install what Istio's own charts render for a revision; `behaviour` is the istiod's."""
    suffix = f"-{revision}" if revision else ""
    if not cluster.find("Namespace", namespace):
        cluster.namespace(namespace)
    alive = {"alive": True, "revision": revision or "default", **behaviour}
    cluster.put("Service", f"istiod{suffix}", namespace, behaviour=alive)
    mesh = {"mesh": mesh_config or f"rootNamespace: {namespace}\n"}
    cluster.put("ConfigMap", f"istio{suffix}", namespace, data=mesh)
    template = {"spec": {"containers": [{"name": "discovery"}]}}
    cluster.put("Deployment", f"istiod{suffix}", namespace, spec={"template": template})
    place = "" if namespace == "istio-system" else f"-{namespace}"
    cluster.add(
        istio_objects.configuration(
            f"istio-sidecar-injector{suffix}{place}", revision, "", namespace
        )
    )
    for tag in tags:
        cluster.add(
            istio_objects.configuration(
                f"istio-revision-tag-{tag}{place}", revision, tag, namespace
            )
        )


def set_istiod(cluster: FakeCluster, name: str = "istiod", **behaviour: Any) -> None:
    """Change how an istiod behaves."""
    service = cluster.find("Service", name, "istio-system")
    assert service
    service["behaviour"].update(behaviour)


def set_environment(cluster: FakeCluster, name: str, value: str) -> None:
    """Have istiod run with an environment variable."""
    istiod = cluster.find("Deployment", "istiod", "istio-system")
    assert istiod
    (container,) = istiod["spec"]["template"]["spec"]["containers"]
    container.setdefault("env", []).append({"name": name, "value": value})


def uninstall_istio(cluster: FakeCluster, *, revision: str = "") -> None:
    suffix = f"-{revision}" if revision else ""
    cluster.delete("Service", f"istiod{suffix}", "istio-system")
    cluster.delete("ConfigMap", f"istio{suffix}", "istio-system")
    cluster.delete("MutatingWebhookConfiguration", f"istio-sidecar-injector{suffix}")

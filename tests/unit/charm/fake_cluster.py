"""The API server of the charm's unit tests, and the injectors of an Istio in it.

It answers the requests that lightkube really sends, so tests assert what the cluster holds
afterwards.
"""

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

from tests.unit import api_server
from tests.unit.api_server import TIMEOUT, UNREACHABLE, Key, Refused
from tests.unit.charm import istio_objects
from tests.unit.charm.objects import make

PREFIX = "istio-integrator.charmhub.io/"
ROOT, TRUST_DOMAIN = "mesh-root", "td.example"
"""The root namespace and the trust domain of the mesh, unless a test writes another mesh
configuration."""
MESH_CONFIG = f"rootNamespace: {ROOT}\ntrustDomain: {TRUST_DOMAIN}\n"


def plural(kind: str) -> str:
    """Write a kind as API paths do."""
    name = kind.lower()
    if name.endswith("icy"):
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith("s") else f"{name}s"


def _named(key: Key) -> str:
    """Write an object's key as tests name it."""
    return " ".join(filter(None, key[1:]))


class FakeCluster(api_server.ApiServer):
    """Keeps objects by kind, namespace and name."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []
        self.asked: set[tuple[str, str]] = set()
        self.forbidden: set[tuple[str, ...]] = set()
        self.absent: set[str] = set()
        self.broken: dict[tuple[str, ...], int] = {}
        self.refused: set[str] = set()
        self.timeouts: set[tuple[str, str]] = set()
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

    def deny(self, kind: str, code: int, words: str, *, having: str = "") -> None:
        """Have another team deny objects of a kind, or those of them that have a text."""
        self.validators.append(
            lambda obj: (code, words) if obj["kind"] == kind and having in str(obj) else None
        )

    def client(self) -> Client:
        """Return a client of this server."""
        config = SingleConfig(
            context_name="fake",
            context=Context(cluster="fake", namespace="default"),
            cluster=ClusterConfig(server="https://fake.invalid", insecure=True),
            user=User(),
        )
        return Client(config=config, transport=httpx2.MockTransport(self._answer_httpx))

    def add(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Create an object as another client."""
        metadata = obj["metadata"]
        place = metadata.get("namespace", "")
        key = (obj["apiVersion"], plural(obj["kind"]), place, metadata["name"])
        return self.keep(key, copy.deepcopy(obj))

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

    def without_owner(self) -> set[str]:
        """Name what the charm applied and would not recognise at its removal."""
        applied = (key for key in self._applied if key in self.objects)
        labels = {key: self.objects[key]["metadata"].get("labels", {}) for key in applied}
        return {_named(key) for key, found in labels.items() if f"{PREFIX}owner" not in found}

    def node(self, name: str = "node", kubelet: str = "v1.36.3") -> None:
        self.put("Node", name, "", status={"nodeInfo": {"kubeletVersion": kubelet}})

    def find(self, kind: str, name: str, namespace: str = "") -> dict[str, Any] | None:
        found = (key for key in self.objects if key[1:] == (plural(kind), namespace, name))
        return self.objects.get(next(found, ("", "", "", "")))

    def labels(self, namespace: str) -> dict[str, str]:
        found = self.find("Namespace", namespace)
        assert found
        return found["metadata"].get("labels", {})

    def delete(self, kind: str, name: str, namespace: str = "") -> None:
        for key in [*self.objects]:
            if key[1:] == (plural(kind), namespace, name):
                self.drop(key)

    def _answer_httpx(self, request: httpx2.Request) -> httpx2.Response:
        media = request.headers.get("Content-Type", "")
        body = json.loads(request.content) if request.content else {}
        about = (request.method, request.url.path, request.url.params, media, body)
        try:
            code, content = 200, self.serve(api_server.Request(*about))
        except Refused as refused:
            if refused.code == UNREACHABLE:
                raise httpx2.ConnectError("connection refused") from refused
            if refused.code == TIMEOUT:
                raise httpx2.ReadTimeout("") from refused
            code, content = refused.code, json.dumps(refused.status()).encode()
            if not str(refused):
                return httpx2.Response(code, text=f"{code} page not found", request=request)
        headers = {"Content-Type": "application/json"}
        return httpx2.Response(code, content=content, headers=headers, request=request)

    def describe(self, request: api_server.Request) -> str:
        """Write a request such as `list pods kf`."""
        _, *names, _ = api_server.Address.of(request.path)
        return " ".join(filter(None, (request.verb, *names)))

    def check(self, request: api_server.Request) -> None:
        """Refuse a request without a right, of an absent kind, or that a test breaks."""
        version, plural, namespace, name, _ = api_server.Address.of(request.path)
        if version in self.absent:
            raise Refused("", 404)
        if plural in self.absent:
            raise Refused("the server could not find the requested resource", 404)
        verb = request.verb
        if verb in ("create", "patch"):
            assert request.query["fieldManager"] == "istio-integrator"
            is_applied = request.media == api_server.APPLY
            assert (request.query.get("force") == "true") is is_applied, "of other managers"
        elif verb == "delete":
            assert request.query["propagationPolicy"] == "Background", "dependents go, too"
        self.asked.add((verb, plural))
        if (verb, plural) in self.timeouts:
            raise Refused(code=TIMEOUT)
        # Each user may ask for their own rights.
        is_review = plural == "selfsubjectaccessreviews"
        rights = {(verb, plural), (verb, plural, namespace), ("*", "*")}
        if rights & self.forbidden and not is_review:
            raise Refused(
                f'{plural} is forbidden: User "system:serviceaccount:kf:mesh-2" '
                f'cannot {verb} resource "{plural}" in API group ""',
            )
        for broken in ((verb, plural), (verb, plural, name)):
            if broken in self.broken:
                raise Refused("the server says no", self.broken[broken])

    def _allows(self, asked: dict[str, str]) -> bool:
        if asked["verb"] == "*":
            return not self.forbidden
        assert "/" not in asked["resource"], "its subresource is a field of its own"
        resource = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
        place = asked["verb"], resource, asked["namespace"]
        named = {(*place, asked["name"]), (*place, asked["group"])}
        return not {("*", "*"), place[:2], place, *named} & self.forbidden

    def _create(self, key: Key, item: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
        if key[1] == "selfsubjectaccessreviews":
            allowed = self._allows(item["spec"]["resourceAttributes"])
            return {**item, "status": {"allowed": allowed}}
        return super()._create(key, item, dry_run=dry_run)

    def admit(self, key: Key, item: dict[str, Any], *, is_new: bool) -> dict[str, Any]:
        """Let injectors, the charm's webhook and other teams' judge an object."""
        if key[1] == "pods" and is_new:
            item["metadata"]["creationTimestamp"] = self.now().strftime("%Y-%m-%dT%H:%M:%SZ")
            self._prepare(item)
            self._inject(key[2], item)
        if key[3] in self.refused and is_new:
            raise Refused(f'{key[1]} "{key[3]}" is invalid', 422)
        for validate in self.validators:
            if refused := validate(item):
                code, message = refused
                raise Refused(message, code)
        if key[1] == "deployments" and self.webhook_is_ready and is_webhooks(item):
            item["status"] = {"readyReplicas": 2}
        return item

    def note(self, verb: str, key: Key, *, dry_run: bool) -> None:
        """Keep the writes, and the written objects of other owners."""
        if dry_run and self.has_side_effects and verb == "patch":
            raise Refused('admission webhook "count.x" does not support dry run', 400)
        if not dry_run:
            self.writes.append(f"{verb} {key[1]} {key[3]}")
            self._note_foreign(key)

    def _note_foreign(self, key: Key) -> None:
        labels = self.objects.get(key, {}).get("metadata", {}).get("labels", {})
        is_ours = key in self._applied or labels.get(f"{PREFIX}owner") == "kf.mesh-2"
        is_served = "app.kubernetes.io/part-of" in labels or f"{PREFIX}served" in labels
        if key in self.objects and not is_ours and not (is_served and key[1] == "namespaces"):
            self.changed.add(_named(key))

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
            raise Refused(
                f'Internal error: failed calling webhook "{hook["name"]}": failed to call '
                f"webhook: Post {client.get('url') or service['name']}: "
                f"{behaviour.get('problem', 'connection refused')}",
                500,
            )
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations["sidecar.istio.io/status"] = json.dumps(
            {"revision": behaviour.get("revision", "default")}
        )
        annotations |= behaviour.get("injected_annotations", {})
        ports = behaviour.get("excluded_ports")
        if behaviour.get("cni"):
            first = {"name": "istio-validation"}
            if ports:
                annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = ports
        else:
            excluding = ["-o", ports] if ports else []
            first = {"name": "istio-init", "args": ["istio-iptables", *excluding]}
        of_another_injector = {"name": "vault", "restartPolicy": "Always", "args": ["-o", "1"]}
        pod["spec"].setdefault("initContainers", []).extend((of_another_injector, first))
        image = behaviour.get("image", "1.2.example:5000/proxyv2:1.31.1")
        proxy = {"name": "istio-proxy", "image": image}
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
    name: str = "",
    **behaviour: Any,
) -> None:
    """Install what Istio's own charts render for a revision; `behaviour` is the istiod's."""
    suffix = f"-{revision}" if revision else ""
    if not cluster.find("Namespace", namespace):
        cluster.namespace(namespace)
    alive = {"alive": True, "revision": revision or "default", **behaviour}
    cluster.put("Service", f"istiod{suffix}", namespace, behaviour=alive)
    mesh = {"mesh": mesh_config or MESH_CONFIG}
    cluster.put("ConfigMap", f"istio{suffix}", namespace, data=mesh)
    more = {"name": "logger", "env": [{"name": "LEVEL", "value": "info"}]}
    template = {"spec": {"containers": [more, {**more, "name": "discovery"}]}}
    cluster.put("Deployment", f"istiod{suffix}", namespace, spec={"template": template})
    place = "" if namespace == "istio-system" else f"-{namespace}"
    cluster.add(
        istio_objects.configuration(
            name or f"istio-sidecar-injector{suffix}{place}", revision, "", namespace
        )
    )
    for tag in tags:
        label = f"istio-revision-tag-{tag}{place}"
        cluster.add(istio_objects.configuration(label, revision, tag, namespace))


def set_istiod(cluster: FakeCluster, name: str = "istiod", **behaviour: Any) -> None:
    """Change how an istiod behaves."""
    service = cluster.find("Service", name, "istio-system")
    assert service
    service["behaviour"].update(behaviour)


def set_environment(cluster: FakeCluster, name: str, value: str, istiod: str = "istiod") -> None:
    """Have istiod run with an environment variable."""
    found = cluster.find("Deployment", istiod, "istio-system")
    assert found
    *_, container = found["spec"]["template"]["spec"]["containers"]
    container["env"] = [*container["env"], {"name": name, "value": value}]


def uninstall_istio(cluster: FakeCluster, *, revision: str = "") -> None:
    suffix = f"-{revision}" if revision else ""
    cluster.delete("Service", f"istiod{suffix}", "istio-system")
    cluster.delete("ConfigMap", f"istio{suffix}", "istio-system")
    cluster.delete("MutatingWebhookConfiguration", f"istio-sidecar-injector{suffix}")

"""What `diagnose` sees of a real API server: each fault is made there, and found by its check.

There is no node and no istiod: the mesh is given, what only running proxies tell is for the
end-to-end tests. The workload's part is its real program.
"""

import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import subprocess
import sys

import lightkube
import pytest
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import User

import admission
import certificates
import cluster as charm_cluster
import component
import config
import diagnosis
import errors
import manifests
import mesh
import relations
import webhook
from diagnosis import access, checks, look, running
from tests.functional import istiod_world
from tests.functional.test_ingress_objects import Related
from tests.waiting import eventually

APP = "istio-integrator"
ROLES = pathlib.Path("rbac/roles.yaml")
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def api(client: lightkube.Client) -> charm_cluster.Cluster:
    """An API server that serves Istio's kinds."""
    return istiod_world.install_definitions(client)


class Workload:
    """A container in which the workload's program runs, as an administrator."""

    def __init__(self, kubeconfig):
        self._kubeconfig = kubeconfig

    def can_connect(self):
        return True

    def exec(self, argv, *, timeout, stdin=None, working_dir):
        where = [] if argv[1] == "explain" else ["--kubeconfig", str(self._kubeconfig)]
        done = subprocess.run(
            [sys.executable, "-m", "sidecar_lifecycle.cli", *argv[1:], *where],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env={**os.environ, "PYTHONPATH": "workload"},
        )
        assert done.returncode == 0, done.stderr
        return Process(done.stdout)


@dataclasses.dataclass
class Process:
    output: str

    def wait_output(self):
        return self.output, ""


@dataclasses.dataclass
class Found:
    """An Istio that was found."""

    mesh: mesh.Mesh

    def statuses(self):
        return ()


@dataclasses.dataclass
class World:
    """A model, and everything by which it is looked at."""

    api: charm_cluster.Cluster
    control_plane: object
    kubeconfig: pathlib.Path
    model: str
    related: Related = dataclasses.field(default_factory=Related)
    mesh: object = None
    options: dict = dataclasses.field(default_factory=dict)
    now: object = None

    def __post_init__(self):
        # Each model has a mesh of its own: others' objects in it are those of other tests.
        self.root = f"{self.model}-istio"
        self.mesh = mesh.Mesh(
            namespace=self.root,
            root_namespace=self.root,
            revision="default",
            is_default=True,
            version="1.31.1",
            proxy_revision="default",
            alive=True,
            probed=True,
        )

    def kubectl(self, *argv, text=None):
        return self.control_plane.kubectl(*argv, text=text)

    def create(self, kind, name, namespace=None, status=None, labels=None, **fields):
        """Make an object, and what its controller would say about it."""
        version = next(key[0] for key in charm_cluster.KINDS if key[1] == kind)
        metadata = {"name": name, "namespace": namespace or self.model, "labels": labels or {}}
        if kind in ("Namespace", "Node", "ValidatingWebhookConfiguration"):
            del metadata["namespace"]
        metadata["annotations"] = fields.pop("annotations", {})
        obj = {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}
        self.api.create(obj)
        if status:
            self.set_status(kind.lower(), name, metadata.get("namespace"), status)
        return obj

    def set_status(self, kind, name, namespace, status):
        where = ("-n", namespace) if namespace else ()
        patch = json.dumps({"status": status})
        argv = ("patch", kind, name, "--subresource=status", "--type=merge", "-p", patch)
        self.kubectl(*where, *argv)

    def pod(self, name, *containers, namespace=None, status=None, **fields):
        spec = {
            "containers": [{"name": each, "image": "none:1.31.1"} for each in containers],
            **fields.pop("spec", {}),
        }
        return self.create("Pod", name, namespace, status, spec=spec, **fields)

    def look(self, api=None):
        own = api or self.api
        scope = component.Scope(
            cluster=own,
            manifests=manifests.Manifests(own, model=self.model, application=APP),
            config=config.Config(**self.options),
            mesh=self.mesh,
            model=self.model,
            application=APP,
            unit=f"{APP}/0",
            leader=True,
            exposes=self.related.is_related("ingress"),
        )
        now = {"now": lambda: self.now} if self.now else {}
        made = diagnosis.Look(scope, self.related, Workload(self.kubeconfig), **now)
        made.__dict__["discovery"] = Found(self.mesh)
        return made

    def says(self, check, api=None):
        """Run one check; what it says, the worst first."""
        found = running.run(checks.CHECKS[check], self.look(api))
        order = "✗!✓"
        return sorted(found, key=lambda each: order.index(each.level.value))

    def worst(self, check, api=None):
        found = self.says(check, api)[0]
        return found.level.value, found.seen

    def gateway(self, kind="ClusterIP", *, ready=True):
        """A gateway workload in a namespace of its own, and a wish to be reached by it."""
        name = f"{self.model}-gw"
        labels = {"app": "gateway", "istio": name}
        self.create("Namespace", name)
        account(self.api, name)
        template = {
            "metadata": {"labels": labels},
            "spec": {
                "containers": [{"name": "istio-proxy", "image": "p", "args": ["router"]}],
                "serviceAccountName": "gw",
            },
        }
        account(self.api, name, "gw")
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        self.create("Deployment", "gateway", name, spec=spec)
        spec = {"type": kind, "selector": labels, "ports": [{"name": "http2", "port": 80}]}
        self.create("Service", "gateway", name, spec=spec)
        (pod,) = eventually(lambda: self.api.list(charm_cluster.POD, name, labels))
        if ready:
            # What its kubelet would say.
            status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            self.set_status("pod", pod["metadata"]["name"], name, status)
            place = (charm_cluster.DEPLOYMENT, "gateway", name)
            assert eventually(lambda: self.api.get(*place)["status"].get("readyReplicas"))
        request = relations.IngressRequest(service="web", port=80, prefix="/web")
        self.related.requests = [relations.Received(1, "web", request)]
        self.options["gateway_selector"] = f"istio={name}"
        return name


def account(api, namespace, name="default"):
    """Make an account that pods need, unless the controller of accounts was quicker."""
    metadata = {"name": name, "namespace": namespace}
    with contextlib.suppress(errors.ConflictError):
        api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})


@pytest.fixture
def world(api, control_plane, kubeconfig, namespace):
    found = World(api, control_plane, kubeconfig, namespace)
    account(api, namespace)
    found.create("Namespace", found.root)
    live = api.get(charm_cluster.NAMESPACE, namespace)
    api.merge_patch(live, {"metadata": {"labels": {"istio-injection": "enabled"}}})
    yield found
    for each in api.list(charm_cluster.NAMESPACE):
        if each["metadata"]["name"].startswith(f"{namespace}-"):
            api.delete(each)


INJECTED = {"sidecar.istio.io/status": '{"revision": "default"}'}
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def test_model_in_which_nothing_is_wrong(world):
    admission.Admission(world.look().scope, "").reconcile()
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    spec = {"holderIdentity": f"{APP}/0", "renewTime": stamp, "leaseDurationSeconds": 15}
    world.create("Lease", f"{APP}-lifecycle", spec=spec)

    def well():
        # Where Istio's kinds are new, the API server answers 429 for a moment.
        report = diagnosis.diagnose(world.look())
        return not any(each.level.value != "✓" for each in report.findings) and report

    report = eventually(well)
    assert report, diagnosis.diagnose(world.look()).text()
    assert {"namespace", "sidecars", "admission", "rights", "clock"} <= {
        each.check for each in report.findings
    }
    admission.Admission(world.look().scope, "").remove()


def test_labels_that_contradict_each_other(world):
    live = world.api.get(charm_cluster.NAMESPACE, world.model)
    world.api.merge_patch(live, {"metadata": {"labels": {"istio.io/rev": "canary"}}})
    found = world.says("namespace")[0]
    assert found.level.value == "✗"
    assert found.next == f"kubectl label ns {world.model} istio.io/rev-"


def test_proxies_that_are_newer_than_istiod(world):
    world.pod("web", "main", "istio-proxy", annotations=INJECTED)
    assert world.worst("versions")[0] == "✓"
    world.mesh = dataclasses.replace(world.mesh, version="1.30.0")
    assert world.worst("versions") == (
        "!",
        f"proxies are newer than istiod 1.30.0: Pod {world.model}/web",
    )


def test_plugin_that_is_not_ready_and_init_containers_that_it_cuts_off(world):
    world.mesh = dataclasses.replace(world.mesh, cni=True)
    inits = [{"name": "istio-validation", "image": "p"}, {"name": "fetch", "image": "i"}]
    world.pod("web", "main", "istio-proxy", annotations=INJECTED, spec={"initContainers": inits})
    labels = {"k8s-app": "istio-cni-node"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "cni", "image": "cni"}]},
    }
    node = f"{world.model}-node"
    world.create("Node", node, labels={"test": world.model}, status={"nodeInfo": NODE})
    template["spec"]["nodeSelector"] = {"test": world.model}
    world.create(
        "DaemonSet",
        "istio-cni-node",
        world.root,
        labels=labels,
        spec={"selector": {"matchLabels": labels}, "template": template},
    )
    # The plugin's pod is wanted there, and nobody runs it.
    place = (look.DAEMON_SETS, "istio-cni-node", world.root)
    assert eventually(lambda: world.api.get(*place)["status"].get("desiredNumberScheduled"))
    found = world.says("cni")
    assert [each.level.value for each in found] == ["✗", "!"]
    assert "not ready on 1 nodes" in found[0].seen
    assert f"Pod {world.model}/web" in found[1].seen
    world.kubectl("delete", "node", node)


def test_pod_without_a_sidecar_is_reported_by_the_workloads_own_words(world):
    world.pod("bare", "main")
    level, seen = world.worst("sidecars")
    assert level == "!"
    assert seen == f"no sidecar: {world.model}/bare: nothing would create it again"


def test_proxy_of_another_revision(world):
    old = {"sidecar.istio.io/status": '{"revision": "1-29"}'}
    world.pod("web", "main", "istio-proxy", annotations=old)
    level, seen = world.worst("old proxies")
    assert level == "!"
    assert f"{world.model}/web" in seen


@pytest.mark.parametrize(
    ("annotations", "stopping", "level"),
    [
        pytest.param({}, True, "✗", id="not-stopped"),
        pytest.param({}, False, "✗", id="switched-off"),
        pytest.param(
            {"istio-integrator.charmhub.io/proxy-shutdown": "disabled"}, True, "!", id="told-not"
        ),
    ],
)
def test_proxy_that_outlives_its_payload(world, annotations, stopping, level):
    ended = {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:00:00Z"}}
    ids = {"image": "x", "imageID": "x", "ready": False, "restartCount": 0}
    statuses = [
        {"name": "main", "state": ended, "containerID": "c://1", **ids},
        {"name": "istio-proxy", "state": RUNNING, "containerID": "c://2", **ids},
    ]
    world.pod(
        "job",
        "main",
        "istio-proxy",
        labels={"security.istio.io/tlsMode": "istio"},
        annotations={**INJECTED, **annotations},
        spec={"restartPolicy": "Never"},
        status={"phase": "Running", "containerStatuses": statuses},
    )
    world.options["proxy_shutdown"] = stopping
    found = world.says("finished pods")[0]
    assert found.level.value == level
    assert f"{world.model}/job: its proxy still runs" in found.seen
    assert ("proxy-shutdown=true" in found.next) == (not stopping)


def test_webhook_whose_servers_are_not_there(world):
    world.options["admission"] = "webhook"
    admission.Admission(world.look().scope, "none:1").reconcile()
    level, seen = world.worst("admission")
    assert (level, "new pods are not prepared (webhook: " in seen) == ("✗", True)
    admission.Admission(world.look().scope, "").remove()


def test_policy_that_does_not_reach_pods(world):
    scope = world.look().scope
    admission.Admission(scope, "").reconcile()
    assert world.worst("admission") == ("✓", "a dry-run pod came back prepared by the policy")
    admission.Admission(scope, "").remove()
    # The API server takes a moment to notice.
    assert eventually(lambda: world.worst("admission")[0] == "✗")
    assert "a dry-run pod came back unchanged" in world.worst("admission")[1]


def test_certificate_that_ended_and_one_that_nobody_trusts(world):
    name = f"{APP}-admission"
    old = certificates.decide(None, [name], NOW - datetime.timedelta(days=400))
    world.create("Secret", f"{name}-tls", data=old.data())
    world.now = NOW
    found = world.says("certificates")
    assert [each.level.value for each in found] == ["✗", "✓"]
    assert "webhook: the certificate ended" in found[0].seen
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": webhook.configuration_name(f"{world.model}.{APP}")},
        "webhooks": [
            {
                "name": "a.b.c",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Ignore",
                "namespaceSelector": {"matchLabels": {"no": "body"}},
                "clientConfig": {
                    "service": {"name": "x", "namespace": world.model},
                    "caBundle": certificates.encoded(certificates.decide(None, [name], NOW).ca),
                },
            }
        ],
    }
    world.api.create(configuration)
    try:
        (found,) = [each for each in world.says("certificates") if "trusts" in each.seen]
        assert found.next == f"juju run {APP}/leader rotate-certificates"
        assert "trusts another authority" in found.seen
    finally:
        world.api.delete(configuration)


@pytest.mark.parametrize(
    ("kind", "ready", "level", "words"),
    [
        ("LoadBalancer", True, "!", "nobody gave it an address"),
        ("ClusterIP", False, "✗", "has no ready pod"),
    ],
)
def test_gateway_that_can_not_be_reached(world, kind, ready, level, words):
    world.gateway(kind, ready=ready)
    found = world.worst("gateway")
    assert (found[0], words in found[1]) == (level, True)


def test_gateway_workload_that_is_not_there(world):
    world.gateway()
    world.options["gateway_selector"] = "istio=nowhere"
    assert world.worst("gateway")[0] == "✗"


def route(world, *, gateways, host="web", port=80):
    destination = {"host": host, "port": {"number": port}}
    spec = {
        "hosts": ["*"],
        "gateways": list(gateways),
        "http": [{"route": [{"destination": destination}]}],
    }
    labels = {"istio-integrator.charmhub.io/owner": f"{world.model}.{APP}"}
    world.create("VirtualService", "web", labels=labels, spec=spec)


def test_route_to_a_gateway_that_is_not_there(world):
    route(world, gateways=["kubeflow-gateway"])
    level, seen = world.worst("gateways")
    assert (level, f"no Gateway {world.model}/kubeflow-gateway" in seen) == ("✗", True)


def test_route_to_nobody(world):
    route(world, gateways=["kubeflow-gateway"])
    assert world.worst("routes") == (
        "✗",
        f"VirtualService {world.model}/web: there is no Service {world.model}/web",
    )
    world.create("Service", "web", spec={"ports": [{"name": "http", "port": 80}]})
    assert "has no ready endpoint" in world.worst("routes")[1]
    world.create(
        "EndpointSlice",
        "web-1",
        labels={"kubernetes.io/service-name": "web"},
        addressType="IPv4",
        endpoints=[{"addresses": ["10.0.0.9"], "conditions": {"ready": True}}],
        ports=[{"name": "http", "port": 8080}],
    )
    assert world.worst("routes")[0] == "✓"


def test_filter_and_policy_of_others(world):
    world.pod("web", "main", "istio-proxy", labels={"app": "web"}, annotations=INJECTED)
    world.create("AuthorizationPolicy", "nobody", world.root, spec={})
    filters = {"configPatches": []}
    world.create("EnvoyFilter", "theirs", spec=filters)
    found = world.says("others")
    assert [each.level.value for each in found] == ["!", "!"]
    assert f"EnvoyFilter {world.model}/theirs" in found[0].seen
    assert f"{world.root}/nobody lets nobody be a caller of 1 pods" in found[1].seen


STRICT = ("PeerAuthentication", {"mtls": {"mode": "STRICT"}})
PERMITTED = ("PeerAuthentication", {"portLevelMtls": {"8443": {"mode": "PERMISSIVE"}}})
CLOSED = ("AuthorizationPolicy", {})
OPEN = ("AuthorizationPolicy", {"rules": [{"to": [{"operation": {"ports": ["8443"]}}]}]})


@pytest.mark.parametrize(
    ("closing", "opening"),
    [
        pytest.param(STRICT, PERMITTED, id="strict-mesh"),
        pytest.param(CLOSED, OPEN, id="closed-mesh"),
    ],
)
def test_webhook_that_the_mesh_cuts_off(world, closing, opening):
    labels = {"app": "katib"}
    world.pod("katib-1", "main", "istio-proxy", labels=labels, annotations=INJECTED)
    world.create(
        "Service", "katib", spec={"selector": labels, "ports": [{"port": 443, "targetPort": 8443}]}
    )
    world.create(
        "ValidatingWebhookConfiguration",
        f"{world.model}.katib",
        webhooks=[
            {
                "name": "validator.katib.kubeflow.org",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "namespaceSelector": {"matchLabels": {"no": "body"}},
                "clientConfig": {"service": {"name": "katib", "namespace": world.model}},
            }
        ],
    )
    kind, spec = closing
    world.create(kind, "default", world.root, spec=spec)
    found = world.says("webhooks")[0]
    assert found.level.value == "✗"
    assert f"webhook {world.model}.katib can't be called" in found.seen
    assert "excluded-pods=app=katib" in found.next
    kind, spec = opening
    world.create(kind, "katib", spec={"selector": {"matchLabels": labels}, **spec})
    assert world.worst("webhooks")[0] == "✓"
    name = f"{world.model}.katib"
    world.kubectl("delete", "validatingwebhookconfiguration", name)


def test_profile_that_lets_another_gateway_in(world):
    gateway = world.gateway()
    labels = {"app.kubernetes.io/part-of": "kubeflow-profile"}
    profile = f"{world.model}-alice"
    world.create("Namespace", profile, labels=labels)
    header = {"key": "request.headers[kubeflow-userid]", "values": ["alice"]}
    name = "cluster.local/ns/istio-system/sa/istio-ingressgateway-service-account"
    rules = [{"when": [header], "from": [{"source": {"principals": [name]}}]}]
    world.create("AuthorizationPolicy", "ns-owner-access-istio", profile, spec={"rules": rules})
    found = world.says("profiles")[0]
    assert found.level.value == "✗"
    assert profile in found.seen
    assert found.next == (
        f"juju config kubeflow-profiles istio-gateway-namespace={gateway} "
        "istio-gateway-service-account=gw"
    )


def test_calls_out_that_proxies_would_break(world):
    world.create("Service", "db", spec={"ports": [{"name": "http-db", "port": 3306}]})
    world.create("Sidecar", "default", world.root, spec={"egress": [{"hosts": ["./*"]}]})
    found = world.says("egress")
    assert [each.level.value for each in found] == ["!", "!"]
    world.mesh = dataclasses.replace(world.mesh, registry_only=True)
    labels = {"app.kubernetes.io/name": "minio"}
    world.pod("minio-0", "charm", "istio-proxy", labels=labels, annotations=INJECTED)
    found = world.says("egress")
    assert found[0].level.value == "✗"
    assert f"Pod {world.model}/minio-0 keep their charms" in found[0].seen
    assert any("REGISTRY_ONLY" in each.seen for each in found)


@pytest.mark.parametrize(
    ("age", "level"), [pytest.param(5, "✓", id="held"), pytest.param(500, "✗", id="lost")]
)
def test_lease_that_nobody_renews(world, age, level):
    renewed = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age)
    stamp = renewed.strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    spec = {"holderIdentity": f"{APP}/1", "renewTime": stamp, "leaseDurationSeconds": 15}
    world.create("Lease", f"{APP}-lifecycle", spec=spec)
    assert world.worst("lease")[0] == level


def test_clocks_that_differ(world):
    assert world.worst("clock") == ("✓", "the clocks agree")
    now = datetime.datetime.now(datetime.UTC)
    world.now = now - datetime.timedelta(minutes=2)
    level, seen = world.worst("clock")
    assert (level, "from the API server's" in seen) == ("✗", True)
    world.now = None
    name = f"{world.model}-node"
    beat = (now + datetime.timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [{"type": "Ready", "status": "True", "lastHeartbeatTime": beat}]
    world.create("Node", name, status={"conditions": conditions, "nodeInfo": NODE})
    level, seen = world.worst("clock")
    assert (level, f"the clock of node {name}" in seen) == ("✗", True)
    world.kubectl("delete", "node", name)


NODE = {
    "machineID": "x",
    "systemUUID": "x",
    "bootID": "x",
    "kernelVersion": "x",
    "osImage": "x",
    "containerRuntimeVersion": "x",
    "kubeletVersion": "v1.36.3",
    "kubeProxyVersion": "x",
    "operatingSystem": "linux",
    "architecture": "amd64",
}


@contextlib.contextmanager
def restricted(world, roles):
    """The API server, as the application with some roles."""
    account(world.api, world.model, APP)
    world.kubectl("apply", "-f", "-", text=roles)
    made = world.kubectl("-n", world.model, "create", "token", APP)
    token = str(getattr(made, "stdout", made)).strip()
    user = KubeConfig.from_file(world.kubeconfig).get()._replace(user=User(token=token))
    try:
        with lightkube.Client(config=user) as client:
            yield charm_cluster.Cluster(client)
    finally:
        world.kubectl("delete", "--ignore-not-found", "-f", "-", text=roles)


@pytest.mark.long
def test_right_that_is_missing_is_named_and_the_other_checks_go_on(world):
    roles = ROLES.read_text().replace("kubeflow", world.model)
    with restricted(world, roles) as api:
        assert world.worst("rights", api) == (
            "✓",
            "all rights that the charm needs are given",
        )
        assert not [
            e for e in diagnosis.diagnose(world.look(api)).findings if "not known" in e.seen
        ]
    nodes = '- apiGroups: [""]\n  resources: [nodes]\n  verbs: [list]\n'
    assert nodes in roles
    with restricted(world, roles.replace(nodes, "")) as api:
        found = world.says("rights", api)[0]
        assert (found.level.value, found.seen) == ("✗", f"{APP} may not list nodes")
        found = diagnosis.diagnose(world.look(api)).findings
        unknown = {each.check for each in found if each.seen == "not known: may not list nodes"}
        assert unknown == {"versions", "clock"}


def test_application_without_any_right_is_told_so_by_every_check_that_reads(world):
    name = {"name": "nothing", "namespace": world.model}
    nothing = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": name}
    with restricted(world, json.dumps(nothing)) as api:
        report = diagnosis.diagnose(world.look(api))
        unknown = {each.check for each in report.findings if "not known: may not" in each.seen}
        assert {"versions", "namespace", "admission", "others", "lease", "clock"} <= unknown
        rights = [each for each in report.findings if each.check == "rights"]
        assert rights
        assert all(each.level.value == "✗" and access.ROLES in each.next for each in rights)

"""A model at work on a real API server, and beside it a tenant who may what Kubeflow's may.

There is no node: what a kubelet would report is reported by `Kubelet`, and a request to a proxy
ends with what such a request ends with. All else is real: who may write what, the controllers,
the charm with its relations, and the workload's program with the command line of the charm.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import threading
import uuid

import lightkube
import msgspec
import pytest
import yaml
from lightkube.config.kubeconfig import KubeConfig
from lightkube.resources import core_v1
from ops import testing
from sidecar_lifecycle.shell import run
from sidecar_lifecycle.shell.settings import Live, Settings
from sidecar_lifecycle.shell.shutdown import controller, stop

import charm
from integrator_contract import service as contract
from istio_integrator.kube import cluster
from istio_integrator.lifecycle import settings as lifecycle_settings
from tests import asked, signing, workload_access
from tests.functional import gateway_looks

APPLICATION = "istio-integrator"
ROUTER = {"name": "istio-proxy", "image": "localhost/none:1", "args": ["proxy", "router"]}
MANAGERS = ("istio-integrator", "istio-integrator-lifecycle")
"""As what charm and workload write."""
ISTIO_GROUPS = ("networking.istio.io", "security.istio.io")
_EVERYTHING = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
_WRITABLE = {
    "": """pods pods/attach pods/exec pods/portforward pods/proxy configmaps endpoints secrets
        persistentvolumeclaims replicationcontrollers serviceaccounts services services/proxy""",
    "apps": "deployments daemonsets statefulsets replicasets deployments/scale statefulsets/scale",
    "autoscaling": "horizontalpodautoscalers",
    "batch": "jobs cronjobs",
    "networking.k8s.io": "ingresses networkpolicies",
    "policy": "poddisruptionbudgets",
    "rbac.authorization.k8s.io": "roles rolebindings",
    "authorization.k8s.io": "localsubjectaccessreviews",
    "coordination.k8s.io": "leases",
}
"""What the owner of a Kubeflow profile may write in its namespace (`kubeflow-admin`)."""
NESTED = "a thousand lists within each other"
"""Stands for them in an object: Python does not write them."""
_DEPTH = 1000


def rules(*, istio):
    """Rules of a profile's owner, with Istio's kinds as where Kubeflow brought Istio."""
    found = [
        {"apiGroups": [group], "resources": resources.split(), "verbs": _EVERYTHING}
        for group, resources in _WRITABLE.items()
    ]
    if istio:
        found.append({"apiGroups": list(ISTIO_GROUPS), "resources": ["*"], "verbs": _EVERYTHING})
    return found


def made(api_version, kind, name, namespace, spec=None, **more):
    """An object, in words short enough for a table of attacks."""
    metadata = {**more.pop("metadata", {}), "name": name, "namespace": namespace}
    found = {"apiVersion": api_version, "kind": kind, "metadata": metadata, **more}
    return found if spec is None else {**found, "spec": spec}


@contextlib.contextmanager
def being(kubeconfig, user):
    """The API server as a user who may do everything, but for policies.

    Args:
        kubeconfig: Of the administrator.
        user: The name.
    """
    settings = KubeConfig.from_file(kubeconfig).get()
    with lightkube.Client(config=settings) as client:
        client._client._client.headers.update(
            {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
        )
        yield cluster.Cluster(client)


def service(name, namespace, port=80, **more):
    """A Service of one HTTP port."""
    spec = {"ports": [{"name": "http", "port": port}]}
    return made("v1", "Service", name, namespace, spec, **more)


def router(name, namespace, labels, *, replicas=1, annotations=None):
    """A Deployment that is an ingress gateway, or looks like one."""
    template = {
        "metadata": {
            "labels": {**labels, "sidecar.istio.io/inject": "false"},
            "annotations": annotations or {},
        },
        "spec": {"containers": [ROUTER]},
    }
    selector = {"matchLabels": labels}
    spec = {"replicas": replicas, "selector": selector, "template": template}
    return made("apps/v1", "Deployment", name, namespace, spec)


def job_pod(*, annotations=None, labels=None, containers=()):
    """The template of a pod whose payload ends, with a classic sidecar."""
    names = [{"name": "main", "image": "localhost/none:1"}, *containers]
    proxy = {"name": "istio-proxy", "image": "localhost/none:1"}
    marks = {"security.istio.io/tlsMode": "istio", "sidecar.istio.io/inject": "false"}
    return {
        "metadata": {"labels": {**marks, **(labels or {})}, "annotations": annotations or {}},
        "spec": {
            "restartPolicy": "Never",
            "nodeName": "node-1",
            "containers": [*names, proxy],
        },
    }


def job(name, namespace, **more):
    """A Job of one such pod."""
    spec = {"backoffLimit": 0, "template": job_pod(**more)}
    return made("batch/v1", "Job", name, namespace, spec)


class Tenant:
    """Somebody with a token of their own."""

    def __init__(self, control_plane, folder, name, namespace, *, istio):
        self._control_plane = control_plane
        role = f"{namespace}-{name}"
        binding = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        rbac = "rbac.authorization.k8s.io/v1"
        cluster_role = {
            "apiVersion": rbac,
            "kind": "ClusterRole",
            "metadata": {"name": role},
            "rules": rules(istio=istio),
        }
        self.given = [
            made("v1", "ServiceAccount", name, namespace),
            cluster_role,
            made(rbac, "RoleBinding", name, namespace, roleRef=binding, subjects=[subject]),
        ]
        control_plane.kubectl("create", "-f", "-", text=yaml.safe_dump_all(self.given))
        token = control_plane.kubectl("-n", namespace, "create", "token", name).stdout.strip()
        config = yaml.safe_load(control_plane.kubeconfig.read_text())
        for user in config["users"]:
            user["user"] = {"token": token}
        self.kubeconfig = folder / f"{name}.kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(config))

    def kubectl(self, *argv, objects=(), check=True):
        """Run kubectl as the tenant."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        deep = "[" * _DEPTH + "]" * _DEPTH
        text = json.dumps(items).replace(f'"{NESTED}"', deep) if objects else None
        where = f"--kubeconfig={self.kubeconfig}"
        return self._control_plane.kubectl(where, *argv, text=text, check=check)

    @contextlib.contextmanager
    def having(self, *objects):
        """Have objects while the block runs."""
        try:
            self.kubectl("create", "--validate=false", "-f", "-", objects=objects)
            yield
        finally:
            for obj in objects:
                if obj["metadata"].pop("finalizers", None):
                    self._let_go(obj)
            gone = ("--ignore-not-found", "--force", "--grace-period=0", "--wait=true")
            self.kubectl("delete", *gone, "-f", "-", objects=objects, check=False)

    def _let_go(self, obj):
        metadata = obj["metadata"]
        patch = json.dumps({"metadata": {"finalizers": None}})
        self.kubectl(
            *("patch", obj["kind"], metadata["name"], "-n", metadata["namespace"]),
            *("--type=merge", "-p", patch),
            check=False,
        )

    def refused(self, *objects):
        """Tell how many of some objects the API server does not let the tenant create."""
        done = self.kubectl(
            *("create", "--dry-run=server", "--validate=false", "-f", "-"),
            objects=objects,
            check=False,
        )
        return done.stderr.count("is forbidden")


class Kubelet:
    """Reports what containers of pods are doing."""

    def __init__(self, client):
        self._client = client

    def pods(self, namespace, **labels):
        """List pods."""
        found = self._client.list(core_v1.Pod, namespace=namespace, labels=labels)
        return [pod.to_dict() for pod in found]

    def run(self, pod, **states):
        """Report a pod's phase and containers; those that nothing is said of run."""
        names = [each["name"] for each in pod["spec"]["containers"]]
        ended = {name for name in names if states.get(name) == "ended"}
        is_done = len(ended) == len(names)
        status = {
            "phase": "Succeeded" if is_done else "Running",
            "conditions": [{"type": "Ready", "status": str(not ended)}],
            "podIPs": [{"ip": "192.0.2.1"}],
            "podIP": "192.0.2.1",
            "containerStatuses": [_container_status(name, name in ended) for name in names],
        }
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        body = {"status": status}
        self._client.patch(core_v1.PodStatus, name, body, namespace=namespace)


def _container_status(name, ended):
    since = "2026-01-01T00:00:05Z"
    state = (
        {"terminated": {"exitCode": 0, "startedAt": since, "finishedAt": "2026-01-01T00:01:00Z"}}
        if ended
        else {"running": {"startedAt": since}}
    )
    known = {"image": "x", "imageID": "x", "restartCount": 0, "ready": not ended}
    return {**known, "name": name, "containerID": f"containerd://{name}-0", "state": state}


class Stopper(stop.Stopper):
    """Stands for the way to a proxy: the proxy is asked, and its container ends."""

    def __init__(self, kubelet):
        self._kubelet = kubelet
        self.deaf: set[str] = set()
        """Namespaces whose proxies do not answer."""

    async def stop(self, pod, decision, transport, decide, on_sent=lambda: None):
        """Have the proxy end."""
        where = pod.metadata.namespace or ""
        if where in self.deaf:
            await asyncio.sleep(stop.PORT_FORWARD_WITHIN)
            return stop.Outcome(stop.Result.TIMEOUT, transport)
        on_sent()
        names = [{"name": each.name} for each in pod.spec.containers]
        metadata = {"name": pod.metadata.name, "namespace": where}
        ended = dict.fromkeys([each["name"] for each in names], "ended")
        shown = {"metadata": metadata, "spec": {"containers": names}}
        await asyncio.to_thread(self._kubelet.run, shown, **ended)
        return stop.Outcome(stop.Result.ACKNOWLEDGED, transport)


class Reconciler:
    """The workload's program in a thread of its own, as the charm's Pebble layer starts it."""

    def __init__(self, kubeconfig, stopper):
        self._kubeconfig = kubeconfig
        self.stopper = stopper
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None
        self._has_loop = threading.Event()
        self.error: BaseException | None = None
        self.program: run.Program | None = None

    def start(self, told):
        """Run it as told; one that has ended is started again, as Pebble does."""
        settings = Settings(**contract.values(contract.Options, told))
        if self.is_alive:
            self._has_loop.wait(20)
            self._loop.call_soon_threadsafe(self.program.live.change, settings)
            return
        self.end()
        self.error = None
        self._has_loop.clear()
        self._thread = threading.Thread(target=self._run, args=(settings,), daemon=True)
        self._thread.start()

    @property
    def is_alive(self):
        """Whether it runs."""
        return self._thread is not None and self._thread.is_alive()

    def end(self):
        """End it."""
        if self._loop is not None and self._task is not None and self.is_alive:
            self._loop.call_soon_threadsafe(self._task.cancel)
        if self._thread is not None:
            self._thread.join(20)

    def _run(self, settings):
        async def main():
            connection = workload_access.connect(self._kubeconfig)
            live = Live(settings)
            self.program = run.Program(connection, live, listen=("127.0.0.1", 0), port=0)
            self.program.shutdown = controller.Controller(
                connection,
                live,
                self.program.recorder,
                stopper=self.stopper,
            )
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            self._has_loop.set()
            with contextlib.suppress(asyncio.CancelledError):
                await self.program.run()

        try:
            asyncio.run(main())
        except BaseException as error:
            self.error = error


@dataclasses.dataclass
class Charm:
    """The charm of one unit with its relations and options, hook after hook."""

    model: str
    options: dict[str, str | bool]
    related: list[testing.Relation]
    secrets: frozenset[testing.Secret] = frozenset()
    settings: contract.Options | None = None
    admin: int = 0
    """The port of the gateway's administration; 0: every gateway is as it is expected."""

    def hook(self, event="config_changed", *, units=1):
        """Run one, and those that follow while the workload sees something else of the gateway.

        What the last one says about everything comes back, the worst and the rest.
        """
        said = self._hook(event, units)
        for _ in range(4):
            if not units or not self._sees():
                break
            said = self._hook("config_changed", units)
        return said

    def _sees(self):
        expected = self.settings and self.settings.expected
        if not expected:
            return False
        if not self.admin:
            return asked.SERVICE.sees(expected)
        before = asked.SERVICE.seen
        asked.SERVICE.seen = gateway_looks.look_at_whole(expected, self.admin)
        return asked.SERVICE.seen != before

    def _hook(self, event, units):
        asked.SERVICE.says()
        program = "/usr/bin/sidecar-lifecycle"
        answers = {
            testing.Exec((program, "explain"), stdout=""),
            asked.version(),
        }
        state = testing.State(
            leader=True,
            planned_units=units,
            containers={testing.Container("lifecycle", can_connect=True, execs=answers)},
            relations=set(self.related),
            secrets=self.secrets,
            config={key.replace("_", "-"): value for key, value in self.options.items()},
            model=testing.Model(self.model, type="kubernetes"),
        )
        context = testing.Context(charm.IstioIntegrator)
        with context(getattr(context.on, event)(), state) as manager:
            out = manager.run()
            said = [(each.severity.value, each.text) for each in manager.charm._messages]
        self.related = [out.get_relation(each.id) for each in self.related]
        self.secrets = out.secrets
        files = out.get_container("lifecycle").get_filesystem(context)
        file = files / lifecycle_settings.FILE.lstrip("/")
        if file.exists():
            self.settings = msgspec.json.decode(file.read_bytes(), type=contract.Options)
        return set(said)

    def relate(self, endpoint, application, **data):
        """Have an application speak on an endpoint."""
        bag = {"_supported_versions": "[v1]", "data": yaml.safe_dump(data)} if data else {}
        made = testing.Relation(endpoint, remote_app_name=application, remote_app_data=bag)
        self.related.append(made)
        return made

    def published(self, endpoint):
        """What we said on an endpoint."""
        (ours,) = (each for each in self.related if each.endpoint == endpoint)
        return ours.local_app_data

    def sign(self):
        """Let the related authority answer the request for a certificate."""
        (ours,) = (each for each in self.related if each.endpoint == "certificates")
        bag, _ = signing.answer(ours.local_app_data["certificate_signing_requests"])
        answered = dataclasses.replace(ours, remote_app_data=bag)
        self.related = [answered if each is ours else each for each in self.related]


def long_but(cases, *names):
    """Mark all but some of a table's cases as long."""
    return [
        each if each.id in names else each._replace(marks=(pytest.mark.long,)) for each in cases
    ]


def unique(word):
    """A name that no other module's world has."""
    return f"{word}-{uuid.uuid4().hex[:6]}"

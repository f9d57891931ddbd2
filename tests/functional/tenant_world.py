"""The world that tenants share with a model, and what must hold in it whatever they do."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
from collections.abc import Iterator

import pytest

from istio_integrator.admission import admission
from istio_integrator.ingress import ingress, record
from istio_integrator.kube import cluster as charm_cluster
from tests import echo, gateway_client
from tests.functional import charm_runs, istiod_world
from tests.functional import tenant_parts as parts
from tests.functional.test_charm_cluster import injector
from tests.waiting import eventually

NOTEBOOK = "/notebook/x"
"""Of somebody else's route on our Gateway, at our hosts."""
EVIL = "evil.example.com"
COOKIE = echo.COOKIE
AUTH = {
    "service": "oidc",
    "port": 80,
    "allowed-request-headers": ["cookie"],
    "allowed-response-headers": ["kubeflow-userid"],
}
GUARDING = ("EnvoyFilter", "AuthorizationPolicy", "Gateway", "VirtualService", "Secret")
"""Kinds whose objects of ours no tenant may make change."""


class World:
    """A model with its ingress, an honest neighbour and two tenants of one profile.

    Args:
        control_plane: The API server's testbed.
        client: As its administrator.
        folder: For files.
    """

    edge = "istio-edge"
    """Where the gateway workload is."""

    def __init__(self, control_plane, client, folder):
        self.control_plane = control_plane
        self.api = istiod_world.install_definitions(client)
        self.model = parts.unique("ai")
        self.profile = parts.unique("alice")
        self.third = parts.unique("shop")
        self.kubelet = parts.Kubelet(client)
        options = {
            "gateway_service": f"{self.edge}/gateway",
            "hosts": gateway_client.HOST,
            # What holds without the policy, as before Kubernetes 1.30.
            "tenant_policy": "off",
        }
        self.charm = parts.Charm(self.model, options, [])
        self.reconciler = parts.Reconciler(control_plane.kubeconfig, parts.Stopper(self.kubelet))
        self.baseline: set[tuple[str, str]] = set()
        self._numbers = itertools.count(1)
        self._folder = folder
        self._ours: dict[str, object] = {}

    def furnish(self, ports=(8080, 8443)):
        """Make everything but the charm's own."""
        profile = {"app.kubernetes.io/part-of": "kubeflow-profile"}
        for name in ("istio-system", self.model, self.profile, self.third, self.edge):
            marks = profile if name == self.profile else {}
            namespace = {"apiVersion": "v1", "kind": "Namespace"}
            namespace["metadata"] = {"name": name, "labels": marks}
            # One of another test may still be going.
            assert eventually(lambda name=name: not self._is_going(name), 60), name
            if self.api.get(charm_cluster.NAMESPACE, name) is None:
                self.api.create(namespace)
        # Other tests' gateways go with their namespaces, which takes some seconds.
        assert eventually(lambda: not self._gateways(), 60), self._gateways()
        charm_runs.deploy(self.api, self.model)
        self.injector = injector(self.model, failure_policy="Ignore")
        for hook in self.injector["webhooks"]:
            hook["clientConfig"]["service"]["namespace"] = "istio-system"
        self.api.create(self.injector)
        names = [("http2", 80, ports[0]), ("https", 443, ports[1])]
        listed = [{"name": name, "port": port, "targetPort": to} for name, port, to in names]
        spec = {"selector": istiod_world.LABELS, "ports": listed}
        self.api.create(parts.made("v1", "Service", "gateway", self.edge, spec))
        self.start_gateway()
        # That of the application that comes and goes.
        self.api.create(parts.service("more", self.model))
        account = parts.Tenant
        where = (self.control_plane, self._folder)
        self.plain = account(*where, "alice", self.profile, istio=False)
        self.meshed = account(*where, "mallory", self.profile, istio=True)

    def _is_going(self, name):
        found = self.api.get(charm_cluster.NAMESPACE, name)
        return "deletionTimestamp" in charm_cluster.at(found, "metadata")

    def _gateways(self):
        return [
            charm_cluster.reference(obj)
            for kind in (charm_cluster.DEPLOYMENT, charm_cluster.kind("apps/v1", "DaemonSet"))
            for obj in self.api.list(kind)
            if "istio-proxy" in json.dumps(obj["spec"]["template"]["spec"]["containers"])
        ]

    def start_gateway(self):
        """Run the gateway workload, and be its kubelet."""
        deployment = parts.router("gateway", self.edge, istiod_world.LABELS)
        self.api.create(deployment)
        self.get_ready(self.edge, "gateway")

    def get_ready(self, namespace, name):
        """Report the pods of a Deployment as ready, until it says so itself."""

        def is_ready():
            for pod in self.kubelet.pods(namespace):
                if not pod["status"].get("containerStatuses"):
                    self.kubelet.run(pod)
            found = self.api.get(charm_cluster.DEPLOYMENT, name, namespace)
            return charm_cluster.at(found, "status").get("readyReplicas")

        assert eventually(is_ready), f"{namespace}/{name} does not get ready"

    @contextlib.contextmanager
    def without_gateway(self):
        """Have the gateway's Deployment away, as while it is reinstalled."""
        deployment = self.api.get(charm_cluster.DEPLOYMENT, "gateway", self.edge)
        self.api.delete(deployment)
        try:
            yield
        finally:
            assert eventually(lambda: not self.kubelet.pods(self.edge))
            self.start_gateway()

    def settle(self):
        """Have the charm do its work, and remember how things are when nobody attacks."""
        self.charm.hook("start")
        if any(each.endpoint == "certificates" for each in self.charm.related):
            # Its library requests a certificate in this event, and not in start.
            self.charm.hook("config_changed")
            self.charm.sign()
        self.charm.hook()
        self.baseline = self.charm.hook()
        self._ours = self.ours()
        assert {name.partition(" ")[0] for name in self._ours} >= {"EnvoyFilter", "Gateway"}
        self.reconciler.start(self.charm.settings)

    @contextlib.contextmanager
    def attacked(self, attack):
        """Have the objects of an attack as a tenant makes them, and their pods as they would run.

        What the tenant without Istio's kinds may not make, the other one makes.
        """
        objects = list(attack(self))
        kinds = {obj["apiVersion"].partition("/")[0] for obj in objects}
        needs_istio = bool(kinds & set(parts.ISTIO_GROUPS))
        if needs_istio:
            assert self.plain.refused(*objects)
        tenant = self.meshed if needs_istio else self.plain
        with tenant.having(*objects):
            for obj in objects:
                if obj["kind"] == "Deployment" and obj["spec"]["replicas"]:
                    self.get_ready(self.profile, obj["metadata"]["name"])
                if obj["kind"] == "Pod":
                    self.kubelet.run(obj, main="ended")
            yield

    # The invariant.

    def assert_unharmed(self):
        """Assert that work goes on, the guard stands, and nobody else is blamed.

        That work goes on means: hooks pass, a new route comes and goes, a Job completes.
        """
        self.charm.relate("ingress", "more", service="more", port=80, prefix="/more")
        try:
            self.assert_blames_nobody_else(self.charm.hook("config_changed"))
            more = self.ours()
        finally:
            self.charm.related.pop()
        said = self.charm.hook("update_status")
        new = _routes(more) - _routes(self.ours())
        assert len(new) == 1, (said - self.baseline, new)
        self.assert_blames_nobody_else(said)
        assert self.charm.published("gateway-info")["gateway_up"] == "true", said - self.baseline
        self.assert_honest_job_completes()
        self.assert_nothing_of_ours_is_in_the_profile()
        self.assert_guarded()

    def assert_blames_nobody_else(self, said):
        """Assert that a complaint that was not there before names the tenant."""
        complaints = [message for level, message in said - self.baseline if level != "active"]
        assert [message for message in complaints if self.profile not in message] == []

    def assert_honest_job_completes(self):
        """Assert that a Job of the model whose payload has ended completes."""
        assert self.reconciler.is_alive, repr(self.reconciler.error)
        name = f"honest-{next(self._numbers)}"
        honest = parts.job(name, self.model)
        self.control_plane.kubectl("create", "-f", "-", text=json.dumps(honest))
        pods = eventually(lambda: self.kubelet.pods(self.model, **{"job-name": name}))
        self.kubelet.run(pods[0], main="ended")

        def is_complete():
            argv = ("get", "job", name, "-n", self.model, "-o", "json")
            status = json.loads(self.control_plane.kubectl(*argv).stdout)["status"]
            return status.get("succeeded") == 1

        assert eventually(is_complete, 20), self.reconciler.error
        self.control_plane.kubectl("delete", "job", name, "-n", self.model)
        assert self.reconciler.is_alive, repr(self.reconciler.error)

    def assert_nothing_of_ours_is_in_the_profile(self):
        """Assert that we wrote nothing there but Events and claims."""
        path = "{range .items[*]}{.kind} {.metadata.name}:{.metadata.managedFields[*].manager}\n"
        how = ("-o", f"jsonpath={path}{{end}}", "--show-managed-fields")
        where = ("get", ",".join(self._namespaced), "-n", self.profile)
        lines = self.control_plane.kubectl(*where, *how).stdout.splitlines()
        told = (line.partition(":") for line in lines)
        assert [name for name, _, who in told if set(who.split()) & set(parts.MANAGERS)] == []

    @functools.cached_property
    def _namespaced(self):
        """The kinds that we may write, as far as they are served."""
        return [
            ".".join(filter(None, (kind.plural, kind.api_version.rpartition("/")[0])))
            for kind in charm_cluster.KINDS.values()
            if kind.namespaced and kind.name not in ("Event", "Lease") and self.api.serves(kind)
        ]

    def ours(self):
        """What we made to guard and serve the model, by name, without the values that change."""
        return {
            charm_cluster.reference(obj): json.loads(
                record.hide(json.dumps(obj.get("spec", obj.get("data"))))
            )
            for kind in charm_cluster.KINDS.values()
            if kind.name in GUARDING
            for namespace in (self.model, self.edge, self.third)
            for obj in self.api.list(kind, namespace)
            if "istio-integrator" in _writers(obj)
            and obj["metadata"]["name"] != "istio-integrator-record"
        }

    def assert_guarded(self):
        """Assert that guard, Gateway, routes and key are where they were, as they were."""
        now = self.ours()
        names = now.keys() | self._ours.keys()
        assert [name for name in sorted(names) if now.get(name) != self._ours.get(name)] == []

    # Ends.

    def leave(self):
        """Remove the application."""
        self.charm.hook("remove", units=0)

    def clean(self):
        """End everything."""
        self.reconciler.end()
        with contextlib.suppress(Exception):
            self.leave()
        self.api.delete(self.injector)
        for name in (self.model, self.profile, self.third, self.edge):
            self.api.delete({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for tenant in (self.plain, self.meshed):
            self.api.delete(tenant.given[1])
        charm_runs.delete(self.api, self.model)


def _routes(ours):
    """The names of the routes among what is ours."""
    return {
        entry.get("name")
        for spec in ours.values()
        for entry in (spec or {}).get("http", ())
        if "route" in entry
    }


def _writers(obj):
    fields = charm_cluster.items(obj["metadata"], "managedFields")
    return {entry.get("manager", "") for entry in fields}


@contextlib.contextmanager
def connected(world) -> Iterator[pytest.MonkeyPatch]:
    """Have the charm find a world's API server, and not wait for a gateway."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charm_cluster, "connect", lambda: world.api)
        patch.setattr(admission, "PROBE_DELAYS", ())
        patch.setattr(ingress, "GONE_WITHIN", 2)
        yield patch


@contextlib.contextmanager
def serving(control_plane, client, folder) -> Iterator[World]:
    """Have a world without a proxy while the block runs."""
    world = World(control_plane, client, folder)
    with connected(world) as patch, contextlib.ExitStack() as stack:
        # No proxy has to forget anything.
        patch.setattr(ingress, "GONE_WITHIN", 0)
        stack.callback(world.clean)
        world.furnish()
        world.charm.relate("ingress", "kfp", service="kfp", port=80, prefix="/kfp")
        world.api.create(parts.service(AUTH["service"], world.model))
        world.charm.relate("ingress-auth", "oidc", **AUTH)
        world.charm.relate("certificates", "authority")
        world.charm.relate("gateway-info", "kserve-controller")
        world.settle()
        yield world

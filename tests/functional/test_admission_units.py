"""The order of containers in pods of Juju units, with a real istiod and a real webhook of ours.

Nothing runs: what matters is the pod that the API server would store. Two combinations cannot be
mended by admission, and are asserted as they are.
"""

from __future__ import annotations

import contextlib
import time

import pytest

from istio_integrator.admission import webhook
from istio_integrator.kube import cluster
from tests import waiting
from tests.functional import admission_cases as table
from tests.functional import admission_world, loopback_istiod, loopback_webhook
from tests.unit.cases import cases

CLASSIC = "values.pilot.env.ENABLE_NATIVE_SIDECARS=false"
HOLDS = {
    "": (),
    "MeshConfig": ("meshConfig.defaultConfig.holdApplicationUntilProxyStarts=true",),
    "Helm value": ("values.global.proxy.holdApplicationUntilProxyStarts=true",),
}
"""Who holds applications by default, and by which setting of the installation."""
UNIT = {
    "initContainers": [table.container("charm-init", "a:1")],
    "containers": [table.container(name, f"{name}:1") for name in ("charm", "db", "web")],
}
LAST = ["charm", "db", "web", "istio-proxy"]
MOVED = ["charm", "istio-proxy", "db", "web"]
BROKEN = ["istio-proxy", "charm", "db", "web"]
UNSERVED = "units-unserved"
"""A namespace of the mesh that our webhook does not serve."""


class Mesh:
    """An istiod with classic sidecars, whose hold and reinvocation can be changed."""

    def __init__(self, api, installed):
        self.api = api
        self.installed = installed

    def order(self, namespace, annotations=None):
        """Return the names of the containers that a unit's pod would have."""
        case = table.Case(id="", spec=UNIT, annotations=annotations or {})
        created = self.api.create(case.pod(namespace), dry_run=True)
        return [each["name"] for each in created["spec"]["containers"]]

    def hold(self, held_by):
        """Hold applications by this setting alone, and wait until istiod has read it."""
        # From one setting to the other, an order that does not change tells nothing.
        for setting in ("", held_by):
            self.installed.configure(CLASSIC, *HOLDS[setting])
            want = BROKEN if setting else LAST
            assert waiting.eventually(lambda w=want: self.order(UNSERVED) == w, 30), setting

    @contextlib.contextmanager
    def reinvoked(self):
        """Have istiod called again when a later webhook has changed the pod."""
        self._reinvoke("IfNeeded")
        try:
            yield
        finally:
            self._reinvoke("Never")

    def _reinvoke(self, policy):
        kind = cluster.kind("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration")
        found = self.api.get(kind, loopback_istiod.CONFIGURATION)
        for hook in found["webhooks"]:
            hook["reinvocationPolicy"] = policy
        found["metadata"] = {"name": found["metadata"]["name"]}
        self.api.apply(found)
        # Nothing shows when the API server has noticed.
        time.sleep(1)


@pytest.fixture(scope="module")
def mesh(client, kubeconfig, tmp_path_factory):
    """A mesh, and namespaces in it."""
    api = cluster.Cluster(client)
    folder = tmp_path_factory.mktemp("istiod")
    with loopback_istiod.installed(api, kubeconfig, folder, CLASSIC) as installed:
        names = [UNSERVED, *map("units-{}".format, ("hold", "mesh-holds"))]
        for name in names:
            metadata = {"name": name, "labels": admission_world.INJECTED}
            api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        yield Mesh(api, installed)
        for name in names:
            api.delete(api.get(cluster.NAMESPACE, name))


@pytest.fixture(scope="module")
def ours(mesh, tmp_path_factory):
    """Our webhook: with the hold for pods, and as it is where MeshConfig holds."""
    world = admission_world.World(mesh.api, "units")
    owners = []
    with contextlib.ExitStack() as stack:
        for name in ("hold", "mesh-holds"):
            values = admission_world.wanted(name, world.model(name)).document()
            folder = tmp_path_factory.mktemp("webhook") / name
            server = stack.enter_context(loopback_webhook.serving(folder, values))
            owners.append(loopback_webhook.configure(world, name, server, server.material.bundle))
            world.wait_until_mutated(world.model(name))
        yield
        for owner in owners:
            owner.remove(webhook.CONFIGURATION_FOLDER)


SERVED = {"": "units-hold", "MeshConfig": "units-mesh-holds", "Helm value": "units-hold"}
"""The namespace with the settings that the charm writes for such a mesh."""


@pytest.mark.usefixtures("ours")
@cases(
    ("held_by", "served", "reinvoked", "unserved"),
    nobody=("", LAST, LAST, LAST),
    mesh_config=("MeshConfig", LAST, LAST, BROKEN),
    helm_value=("Helm value", MOVED, BROKEN, BROKEN),
)
def test_charm_is_the_first_container_whoever_holds(mesh, held_by, served, reinvoked, unserved):
    """An istiod that is called again restores its own order only by the Helm value."""
    mesh.hold(held_by)

    assert mesh.order(SERVED[held_by]) == served
    assert mesh.order(UNSERVED) == unserved
    with mesh.reinvoked():
        assert mesh.order(SERVED[held_by]) == reinvoked


@pytest.mark.usefixtures("ours")
def test_charm_is_the_first_container_of_a_unit_that_asks_for_the_hold(mesh):
    mesh.hold("")
    asked = {table.CONFIG: table.HOLD}

    assert mesh.order(UNSERVED, asked) == BROKEN
    assert mesh.order(SERVED[""], asked) == MOVED

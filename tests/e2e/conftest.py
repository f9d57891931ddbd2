"""Real nodes with a real istiod for the end-to-end tier: one cluster after the other.

With pytest-xdist (`-n 2`) the clusters run side by side, each in a process.
`E2E_TODAY=NAME`, `E2E_TOMORROW=NAME`, `E2E_CNI=NAME` or `E2E_EXTERNAL=NAME` takes a testbed of
that name, starts it when it is down, and leaves it running, so that a second run begins at once.
"""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import shutil

import pytest
import xdist.scheduler

from juju_standin import bootstrap
from testbed import cluster as testbed_cluster
from testbed import kubernetes, limits, pack
from testbed.kit import bundle, clusters, diagnostics, juju, objects, observer, stage
from tests import echo, rights
from tests.e2e import life_world, pages

MODEL = "kubeflow"
TWO = ("today", "tomorrow")
"""The clusters that matter, on which tests run that say nothing else."""
EXTERNAL = "external"
"""A cluster whose istiod is outside of it."""
BUILD = pathlib.Path(__file__).parents[2] / "build" / "e2e"


@dataclasses.dataclass(frozen=True)
class Node:
    """A running testbed of one kind, with what can be deployed on it."""

    kind: clusters.Kind
    testbed: testbed_cluster.Testbed
    charms: clusters.Charms

    def juju(self, model=MODEL, *, roles=True):
        """Juju, with a model of that name, and with the shipped roles in place of trust."""
        kind = Untrusting if roles else juju.Juju
        return kind(self.testbed, model)


class Untrusting(juju.Juju):
    """Juju for those who deploy without `--trust`: each application has the shipped roles."""

    async def add_model(self, config=None):
        """Add the model, with roles and the policy of the application that is mostly deployed."""
        await super().add_model(config)
        await self._kubectl("apply", juju.APPLICATION)
        policy = rights.admission_policy(self.model)
        await asyncio.to_thread(self._testbed.apply, policy)

    async def deploy(self, charm, application, *, trust=True):
        """Deploy a charm; what would be trusted gets its roles."""
        if trust and charm.trust and application != juju.APPLICATION:
            await self._kubectl("apply", application)
        await super().deploy(charm, application, trust=False)

    async def remove(self, application, *, force=False):
        """Remove an application, then the roles that came with it."""
        await super().remove(application, force=force)
        if application != juju.APPLICATION:
            await self._kubectl("delete", application, "--ignore-not-found")

    async def _kubectl(self, verb, application, *flags):
        argv = (verb, *flags, "-f", "-")
        text = rights.roles(self.model, application)
        await asyncio.to_thread(self._testbed.kubectl, *argv, text=text)


@pytest.fixture(scope="session")
def root():
    """Let many proxies run, as only root may."""
    if os.geteuid() != 0:
        pytest.fail("starting a node needs root; make lint unit functional does not")
    with limits.many_sidecars():
        yield


@pytest.fixture(scope="session", params=[EXTERNAL, *TWO])
def node(request, root):
    """One of the two clusters that matter, or one like today's whose istiod is elsewhere."""
    is_external = request.param == EXTERNAL
    kind = clusters.KINDS[TWO[0] if is_external else request.param]
    options = dataclasses.replace(kind.options, external_istiod=is_external)
    with running(dataclasses.replace(kind, name=request.param), options) as found:
        yield found


@pytest.fixture(scope="session")
def cni_node(root):
    """A cluster like tomorrow's with Istio's CNI plugin, for what Juju and the mesh share."""
    kind = dataclasses.replace(clusters.KINDS["tomorrow"], name="cni")
    with running(kind, dataclasses.replace(kind.options, cni=True)) as found:
        yield found


@contextlib.contextmanager
def running(kind, options):
    """Start a cluster; end it unless the environment names one to keep."""
    reused = os.environ.get(f"E2E_{kind.name.upper()}")
    testbed = testbed_cluster.Testbed(reused or f"e2e-{kind.name}-{os.getpid()}")
    try:
        testbed.up(options, wait=False)
        charms = clusters.charms(kind, testbed)
        bootstrap.controller(testbed)
        testbed.settle()
        yield Node(kind, testbed, charms)
    finally:
        if not reused:
            testbed.down()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Run a test marked with `cluster` there alone, and use up one cluster before the next."""

    def is_wanted(item):
        marker = item.get_closest_marker("cluster")
        return cluster_of(item) in (marker.args if marker else ("", *TWO))

    elsewhere = [item for item in items if not is_wanted(item)]
    config.hook.pytest_deselected(items=elsewhere)
    items[:] = sorted(filter(is_wanted, items), key=lambda item: (cluster_of(item), item.path))


class ByCluster(xdist.scheduler.LoadScopeScheduling):
    """Lets all tests of a cluster run in the same process, in their order."""

    def _split_scope(self, nodeid):
        return "tomorrow" if "tomorrow" in nodeid.partition("[")[2] else "today"


def pytest_xdist_make_scheduler(config, log):
    return ByCluster(config, log)


def cluster_of(item):
    """The cluster that a test runs on, or beside which, where it needs none of these."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    marker = item.get_closest_marker("cluster")
    return params.get("node") or (marker.args[0] if marker else "")


@pytest.fixture
async def api(node):
    """The node's apiserver."""
    async with kubernetes.Api.from_kubeconfig(node.testbed.kubeconfig) as client:
        yield client


@pytest.fixture
async def cni_api(cni_node):
    """The apiserver of the node with the CNI plugin."""
    async with kubernetes.Api.from_kubeconfig(cni_node.testbed.kubeconfig) as client:
        yield client


@pytest.fixture
async def world(node, api, request):
    """A model of the test's own, gone afterwards."""
    async with life_world.model(node, api, request.node.name) as made:
        yield made


@pytest.fixture
async def watcher(api):
    """Everything that happens to pods and jobs during the test."""
    watching = observer.Observer()
    async with watching.following(api):
        yield watching


@pytest.fixture
async def on(node, api, watcher):
    """A stage for the steps that demo and tests share."""
    return make_stage(node, api, watcher)


def make_stage(node, api, watcher):
    """Set up a stage whose lines pytest keeps and shows when a test fails."""
    return stage.Stage(
        kind=node.kind, api=api, juju=node.juju(), charms=node.charms, observer=watcher
    )


@dataclasses.dataclass(frozen=True)
class Story:
    """What happened when the charm was deployed in the worst order."""

    # Objects before the charm, None when it was there already.
    before: objects.Snapshot | None
    # Objects that were recreated because istiod was away.
    recreated: list[objects.Key]


def played(node, part):
    """Run steps outside of any test, and return the stage they left."""

    async def play():
        async with kubernetes.Api.from_kubeconfig(node.testbed.kubeconfig) as api:
            watching = observer.Observer()
            async with watching.following(api):
                on = make_stage(node, api, watching)
                await part(on)
                return on

    return asyncio.run(play())


@pytest.fixture(scope="session")
def integrated(node):
    """The charm in a model with applications, deployed in the worst order."""
    story = Story(None, [])

    async def deploy(on):
        nonlocal story
        if not await on.api.find("Namespace", MODEL):
            await bundle.prepare(on)
        if not await on.juju.status():
            await bundle.worst_order(on)
            story = Story(on.before, on.istiod.keys)

    played(node, deploy)
    return story


@pytest.fixture(scope="session")
def sdi_charm(tmp_path_factory):
    """A charm with the libraries that today's charms have, packed with a server."""
    source = tmp_path_factory.mktemp("charms") / "sdi"
    shutil.copytree(pathlib.Path(__file__).parent / "charms" / "sdi", source)
    shutil.copy2(echo.__file__, source / "src" / "server.py")
    return pack.pack(source, BUILD.parent / "charms")


@pytest.fixture
def blocks(request):
    """The blocks of how-to pages that say that this test runs them, in their order."""
    found = pages.told(request.node.originalname)
    assert found, "no page names this test"
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """When a test fails, write down what is known about its cluster."""
    outcome = yield
    given = getattr(item, "funcargs", {})
    node = next((each for each in given.values() if isinstance(each, Node)), None)
    if outcome.failed and node and node.testbed.holder:
        path = BUILD / "failures" / f"{item.name}.txt"
        model = getattr(given.get("world"), "model", getattr(item.module, "MODEL", MODEL))

        async def collect():
            async with kubernetes.Api.from_kubeconfig(node.testbed.kubeconfig) as api:
                return await diagnostics.collect(api, node.juju(model), (model, "istio-system"))

        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # The driver of a browser has a loop of its own in this thread.
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                path.write_text(pool.submit(asyncio.run, collect()).result())
            outcome.sections.append(("cluster", f"written to {path}"))
        except Exception as error:
            outcome.sections.append(("cluster", f"nothing known: {error!r}"))
    return outcome

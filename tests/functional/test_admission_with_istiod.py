"""The table of cases with the real istiod injecting after us.

What istiod makes of a pod that we changed must be what it makes of a pod that was sent like that:
the same in every field, or the same refusal. The webhook is asked again after the injection, which
changes nothing more but the order of containers in pods of Juju units. Two combinations of
istiod's settings keep that order wrong, and are asserted as they are.
"""

import contextlib
import re
import time

import pytest

from integrator_contract import names
from tests import waiting
from tests.functional import admission_cases as table
from tests.functional import loopback_istiod, loopback_webhook
from tests.unit.cases import cases


@pytest.fixture(scope="module")
def installed(admin, kubeconfig, tmp_path_factory):
    """An istiod that the API server asks."""
    about = admin, kubeconfig, tmp_path_factory.mktemp("istiod")
    with loopback_istiod.installed(*about, *loopback_istiod.CLASSIC) as installed:
        yield installed


@pytest.fixture(scope="module")
def served(installed, tmp_path_factory):
    """Every settings of the table, in namespaces of the mesh, and the servers."""
    root = tmp_path_factory.mktemp("webhooks")
    with loopback_webhook.worlds(installed.api, "meshed", root, meshed=True) as served:
        yield served


@pytest.fixture(scope="module")
def world(served):
    return served[0]


@pytest.mark.parametrize("case", table.OBJECTS, ids=lambda case: case.id)
def test_istiod_takes_it_as_if_the_pod_had_been_sent_so(world, case):
    changed = world.outcome(case.pod(world.namespace(case)))

    assert changed == world.outcome(case.wanted(world.twin_of(case)))
    if not case.settings.startswith("ambient"):
        # There it is not the injector that what we change is for.
        assert_meant(case, changed)


def assert_meant(case, created):
    """See that istiod did what each change is for."""
    if "refused" in created:
        assert case.want == ()
        return
    init = {each["name"] for each in created["spec"].get("initContainers", ())}
    if "excluded" in case.want:
        assert not is_injected(created)
    if "inject" in case.want:
        assert is_injected(created)
    if "native" in case.want:
        assert names.PROXY in init
    if is_injected(created) and "hold" in case.want:
        first = created["spec"]["containers"][0]
        assert names.PROXY in init or "postStart" in first["lifecycle"]
    if is_injected(created) and "ports" in case.want:
        wanted = re.split(r"[, ]+", case.want_annotations[table.PORTS])
        assert set(wanted) <= set(ports_of(created["spec"]["initContainers"][0]))


def is_injected(created):
    return table.STATUS in created["metadata"].get("annotations", {})


def ports_of(container):
    """Read which outbound ports istio-init leaves alone."""
    arguments = container["args"]
    return re.split(r"[, ]+", arguments[arguments.index("-o") + 1])


@cases(
    ("labels", "calls"),
    injected=({}, 2),
    outside=({table.INJECT: "false"}, 1),
    mesh_probe=({names.MESH_PROBE: "true"}, 0),
)
def test_the_webhook_is_called_again_after_an_injection(served, labels, calls):
    world, servers = served
    reviews = "sidecar_lifecycle_admission_reviews_total"
    before = servers["hold"].metric(reviews)

    created = world.try_pod(table.Case(id="", labels=labels).pod(world.model("hold")))

    assert servers["hold"].metric(reviews) - before == calls
    assert is_injected(created) is (table.INJECT not in labels)


HOLDS = {
    "": (),
    "MeshConfig": ("meshConfig.defaultConfig.holdApplicationUntilProxyStarts=true",),
    "Helm value": ("values.global.proxy.holdApplicationUntilProxyStarts=true",),
}
"""Settings of the installation that hold applications by default."""
LAST = ["charm", "db", "istio-proxy"]
MOVED = ["charm", "istio-proxy", "db"]
BROKEN = ["istio-proxy", "charm", "db"]


class Units:
    """Pods of units in the mesh, whose hold and reinvocation can be changed."""

    def __init__(self, world, installed):
        self._world = world
        self._installed = installed

    def order(self, settings, annotations=None):
        """The containers that a unit's pod would have; without settings it is not served."""
        namespace = self._world.model(settings) if settings else self._world.twin("whole")
        case = table.Case(id="", spec=table.UNIT, annotations=annotations or {})
        created = self._world.try_pod(case.pod(namespace))
        return [each["name"] for each in created["spec"]["containers"]]

    def hold(self, held_by):
        """Hold applications by this setting alone, and wait until istiod has read it."""
        # From one setting to the other, an order that does not change tells nothing.
        for setting in ("", held_by):
            self._installed.configure(*loopback_istiod.CLASSIC, *HOLDS[setting])
            want = BROKEN if setting else LAST
            assert waiting.eventually(lambda w=want: self.order("") == w), setting

    @contextlib.contextmanager
    def reinvoked(self):
        """Have istiod called again when a later webhook has changed the pod."""
        self._reinvoke("IfNeeded")
        try:
            yield
        finally:
            self._reinvoke("Never")

    def _reinvoke(self, policy):
        kind = "MutatingWebhookConfiguration"
        found = self._world.api.get(kind, loopback_istiod.CONFIGURATION)
        for hook in found["webhooks"]:
            hook["reinvocationPolicy"] = policy
        found["metadata"] = {"name": found["metadata"]["name"]}
        self._world.api.apply(found)
        # Nothing shows when the API server has noticed.
        time.sleep(1)


@pytest.fixture(scope="module")
def units(world, installed):
    found = Units(world, installed)
    yield found
    found.hold("")


@cases(
    ("held_by", "order", "reinvoked", "unserved"),
    nobody=("", LAST, LAST, LAST),
    mesh_config=("MeshConfig", LAST, LAST, BROKEN),
    helm_value=("Helm value", MOVED, BROKEN, BROKEN),
)
def test_charm_is_the_first_container_whoever_holds(units, held_by, order, reinvoked, unserved):
    """An istiod that is called again restores its own order only by the Helm value."""
    units.hold(held_by)
    # What the charm writes for such a mesh.
    settings = "mesh-holds" if held_by == "MeshConfig" else "hold"

    assert units.order(settings) == order
    assert units.order("") == unserved
    with units.reinvoked():
        assert units.order(settings) == reinvoked


def test_charm_is_the_first_container_of_a_unit_that_asks_for_the_hold(units):
    units.hold("")
    asked = {table.CONFIG: table.HOLD}

    assert units.order("", asked) == BROKEN
    assert units.order("hold", asked) == MOVED

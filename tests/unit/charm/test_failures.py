"""No failing request opens a route or changes another owner's object; the next hook repairs it.

Each step of a model's life is broken off at each of its requests.
"""

import contextlib
import copy
import functools

import ops
import pytest
from ops import testing

from integrator_contract import names
from tests.unit.charm import ambient_objects, fake_cluster, ingress_world
from tests.unit.charm.fake_cluster import TIMEOUT, UNREACHABLE
from tests.unit.charm.security import applications, members
from tests.unit.charm.security.callers import policy

CODES = (403, 409, 429, 500, TIMEOUT, UNREACHABLE)
CALLS = ("add_layer", "exec", "get_checks", "get_plan", "get_service", "pull", "push", "replan")
PEBBLE = {name: getattr(ops.Container, name) for name in (*CALLS, "stop")}
"""What the charm asks of Pebble, counted with its requests to the API server."""
ERRORS = (
    ops.pebble.ConnectionError("no socket"),
    ops.pebble.APIError({}, 500, "broken", "broken"),
    TimeoutError("no answer"),
)


def joins(world):
    """The model joins the mesh."""


def opens(world):
    mesh = applications.mesh("kfp-api", policy("kfp-ui", "kfp-api"))
    routed = ingress_world.route(), ingress_world.auth()
    world.related = [*routed, mesh, ingress_world.authority()]
    world.config = {"gateway_service_annotations": "{a.b/c: d}"}


def is_certified(world):
    ingress_world.sign(world)


def names_callers(world):
    world.config = {"authorization": "closed", "mtls": "strict", "mtls_exceptions": "minio"}


def names_none(world):
    world.config = {}


def gets_a_gateway_of_its_own(world):
    world.config = ingress_world.OWN


def has_istiod_run_its_gateway(world):
    world.config = {**ingress_world.OWN, "routing": "gateway-api"}


def loses_authentication(world):
    world.related = [each for each in world.related if each.endpoint != "ingress-auth"]


def goes_ambient(world):
    world.config = {"mesh_mode": "ambient"}


def leaves(world):
    world.units = 0


LIFE = (joins, opens, is_certified, names_callers, names_none, gets_a_gateway_of_its_own)
LIFE += (has_istiod_run_its_gateway, loses_authentication, goes_ambient, leaves)


BREAKS = [
    *((step, step, False) for step in LIFE),
    # With policies and strict mutual TLS, before the step that ends them.
    (leaves, names_none, False),
    *((joins, joins, True), (names_callers, names_callers, True), (leaves, names_none, True)),
]
"""Steps, the step before which the model is as it is, and whether Pebble fails."""


class World(ingress_world.World):
    units = 1

    def copy(self, monkeypatch):
        other = super().copy(monkeypatch)
        for name in PEBBLE:
            monkeypatch.setattr(ops.Container, name, counted(other.fake, name))
        return other

    def step(self):
        """Run the hook of a step; Juju runs one that failed again."""
        if self.units:
            self.hook()
        else:
            with contextlib.suppress(testing.errors.UncaughtCharmError):
                self.remove()

    def settle(self):
        """Run hooks until nothing changes."""
        if self.units:
            self.run()
        else:
            self.remove()


def counted(fake, name):
    """Note a call to Pebble as a request, and let it fail as one."""

    def call(container, *arguments, **named):
        fake.requests.append(f"pebble {name}")
        if (number := fake.failing.pop(len(fake.requests) - 1, None)) is not None:
            raise ERRORS[number % len(ERRORS)]
        return PEBBLE[name](container, *arguments, **named)

    return call


@functools.cache
def live(until):
    """A model that has gone through the steps before one; a test goes on with a copy."""
    with pytest.MonkeyPatch.context() as patch:
        if until is joins:
            return deployed(patch)
        last = LIFE[LIFE.index(until) - 1]
        world = live(last).copy(patch)
        last(world)
        world.settle()
        return world


def deployed(monkeypatch):
    fake = fake_cluster.FakeCluster()
    for name in ("kf", "default"):
        fake.namespace(name)
    fake.node()
    fake.application()
    ingress_world.connect(fake, monkeypatch)
    gateway = fake.find("Pod", "gateway-0", "istio-ingress")
    assert gateway
    gateway["spec"]["serviceAccountName"] = "gateway"
    for name, port in (("kfp-ui", 3000), ("kfp-api", 8888), ("minio", 9000)):
        applications.add_application(fake, name, port)
    ingress_world.neighbour(fake)
    ambient_objects.install_ambient(fake)
    fake.put("GatewayClass", "istio", "", spec={"controllerName": names.GATEWAY_CONTROLLER})
    fake.add(members.profile("kf-user"))
    return World(fake)


@functools.cache
def whole(step, before):
    """A model after a step in which nothing failed, and the requests of its first hook.

    It was as it is before another step, usually the same.
    """
    with pytest.MonkeyPatch.context() as patch:
        world = live(before).copy(patch)
        step(world)
        before = len(world.fake.requests)
        world.step()
        asked = range(before, len(world.fake.requests))
        world.settle()
        return world, asked


def is_ours(obj):
    return ingress_world.OWNER in obj["metadata"].get("labels", {})


def foreign(fake):
    """Other owners' objects, without labels and annotations."""
    kept = {key: obj for key, obj in fake.objects.items() if not is_ours(obj)}
    return {key: {**obj, "metadata": None} for key, obj in kept.items()}


def ours(fake):
    made = {key for key, obj in fake.objects.items() if is_ours(obj)}
    return made, fake.labels("kf"), fake.labels("kf-user")


def assert_nothing_opens(world):
    for entry in world.http():
        if "route" in entry:
            assert all(match.get("headers") for match in entry["match"]), entry


def assert_nobody_is_shut_out(world):
    """Assert that declared callers are admitted before all others are denied."""
    written = applications.written(world.fake)
    assert "" not in written or {"kfp-ui", "kfp-api"} <= set(written), written
    strict = {"selector" in obj["spec"] for obj in world.all("PeerAuthentication")}
    assert False not in strict or True in strict, "no port is excepted"


@pytest.mark.parametrize("half", [0, 1, 2, pytest.param(None, marks=pytest.mark.long)])
@pytest.mark.parametrize(("step", "until", "of_pebble"), BREAKS)
def test_step_that_breaks_off_at_any_request_is_repaired_by_the_next_hook(
    monkeypatch, step, until, of_pebble, half
):
    before, (after, asked) = live(until), whole(step, until)
    others = foreign(before.fake)
    places = [n for n in asked if after.fake.requests[n].startswith("pebble ") is of_pebble]
    places = places if half is None else [places[(len(places) - 1) * half // 2]]
    for place in places:
        world = before.copy(monkeypatch)
        step(world)
        code = CODES[(place - asked.start + LIFE.index(step)) % len(CODES)]
        world.fake.failing = {place: code}
        world.step()
        about = world.fake.requests[place], code
        assert not world.fake.failing, about
        assert_nothing_opens(world)
        assert_nobody_is_shut_out(world)
        assert foreign(world.fake) == others, about
        world.fake.unreachable = False
        world.settle()
        assert ours(world.fake) == ours(after.fake), about


JOINING = {"istio-injection", "istio.io/rev", names.DATAPLANE_MODE}
LABEL_WITHIN = 12
"""Requests of a removal until the model has lost its label, the one thing that Juju leaves."""


def is_joined(fake):
    return bool(JOINING & fake.labels("kf").keys())


def assert_works_alone(world):
    """Assert that what is left of the application harms nobody without it."""
    is_ambient = world.fake.labels("kf").get(names.DATAPLANE_MODE) == "ambient"
    is_prepared = is_ambient or world.all("MutatingWebhookConfiguration")
    assert is_prepared or not is_joined(world.fake), "unit pods start in any order"
    strict = [obj for obj in world.all("PeerAuthentication") if "selector" not in obj["spec"]]
    assert is_joined(world.fake) or not strict, "new pods can't be called"
    assert world.all("EnvoyFilter") or not world.all("Gateway"), "nobody is authenticated"
    assert_nothing_opens(world)
    assert_nobody_is_shut_out(world)


def cut_off(world):
    """Remove the application; return its requests with the objects that a cut before each leaves.

    Juju ends the hook's process, so what is left is what was there.
    """
    fake, states = world.fake, []
    check = fake.check

    def note(request):
        check(request)
        states.append((fake.requests[-1], dict(fake.objects)))

    fake.check = note
    world.remove()
    del fake.check
    return [*states, ("", dict(fake.objects))]


def end(fake):
    """Have Juju delete the application, and Kubernetes what its ClusterRole owns."""
    role = fake.find("ClusterRole", "kf-mesh-2")
    for key, obj in [*fake.objects.items()]:
        owners = obj["metadata"].get("ownerReferences", ())
        if any(each.get("uid") == role["metadata"]["uid"] for each in owners):
            del fake.objects[key]
    fake.delete("ClusterRole", "kf-mesh-2")
    fake.delete("StatefulSet", "mesh-2", "kf")


def shown(fake):
    """Return the objects without what changes with each write."""
    changing = ("resourceVersion", "uid", "creationTimestamp")
    kept = {
        key: {name: value for name, value in obj["metadata"].items() if name not in changing}
        for key, obj in fake.objects.items()
    }
    return {key: {**fake.objects[key], "metadata": kept[key]} for key in kept}


def without_empty(value):
    return (
        {k: without_empty(v) for k, v in value.items() if v} if isinstance(value, dict) else value
    )


@pytest.mark.parametrize(
    "step", [names_callers, names_none, has_istiod_run_its_gateway, loses_authentication, leaves]
)
def test_removal_that_is_cut_off_does_no_harm_and_leaves_what_the_next_one_takes(
    monkeypatch, step
):
    """Juju 4.0.15 may end the hook after ten seconds, and then deletes the application."""
    whole = live(step).copy(monkeypatch)
    states = cut_off(whole)
    end(whole.fake)
    asked = [request for request, _ in states]
    last = asked.index("patch namespaces kf")
    assert last < LABEL_WITHIN
    before, ended = {}, []
    for number, (request, objects) in enumerate(states):
        if objects == before:
            continue
        before = objects
        world = live(step).copy(monkeypatch)
        world.fake.objects = copy.deepcopy(objects)
        assert_works_alone(world)
        end(world.fake)
        left = shown(world.fake)
        assert is_joined(world.fake) is (number <= last), request
        if left in ended:
            continue
        ended.append(left)
        world.fake.application()
        world.run()
        world.remove()
        end(world.fake)
        assert without_empty(shown(world.fake)) == without_empty(shown(whole.fake)), request
    assert len(ended) > 1

"""Whatever request fails, nothing opens, nothing of others changes, and the next hook repairs it.

Each step of a model's life is broken off at each of its requests.
"""

import contextlib
import itertools

import pytest
from ops import testing

from tests.unit.charm import fake_cluster, ingress_world
from tests.unit.charm.fake_cluster import TIMEOUT, UNREACHABLE
from tests.unit.charm.security import applications, members
from tests.unit.charm.security.callers import policy

CODES = (403, 409, 429, 500, TIMEOUT, UNREACHABLE)


def joins(world):
    """The model joins the mesh."""


def opens(world):
    mesh = applications.mesh("kfp-api", policy("kfp-ui", "kfp-api"))
    routed = ingress_world.route(), ingress_world.auth(), ingress_world.authority()
    world.related = [*routed, mesh]
    world.config = {"gateway_service_annotations": "{a.b/c: d}"}


def names_callers(world):
    world.config = {"authorization": "closed", "mtls": "strict", "mtls_exceptions": "minio"}


def names_none(world):
    world.config = {}


def loses_authentication(world):
    world.related = [each for each in world.related if each.endpoint != "ingress-auth"]


def goes_ambient(world):
    world.config = {"mesh_mode": "ambient"}


def leaves(world):
    world.units = 0


LIFE = (joins, opens, names_callers, names_none, loses_authentication, goes_ambient, leaves)


class World(ingress_world.World):
    units = 1

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


def live(monkeypatch, until):
    """A model that has gone through the steps before one."""
    fake = fake_cluster.FakeCluster()
    for name in ("kubeflow", "default"):
        fake.namespace(name)
    fake.node()
    fake.application()
    ingress_world.connect(fake, monkeypatch)
    fake.find("Pod", "gateway-0", "istio-ingress")["spec"]["serviceAccountName"] = "gateway"
    for name, port in (("kfp-ui", 3000), ("kfp-api", 8888), ("minio", 9000)):
        applications.add_application(fake, name, port)
    ingress_world.neighbour(fake)
    fake.add(members.profile("alice"))
    world = World(fake)
    for step in LIFE[: LIFE.index(until)]:
        step(world)
        world.settle()
    return world


def is_ours(obj):
    return ingress_world.OWNER in obj["metadata"].get("labels", {})


def foreign(fake):
    """What others keep, but for labels and annotations."""
    kept = {key: obj for key, obj in fake.objects.items() if not is_ours(obj)}
    return {key: {**obj, "metadata": None} for key, obj in kept.items()}


def ours(fake):
    made = {key for key, obj in fake.objects.items() if is_ours(obj)}
    return made, fake.labels("kubeflow"), fake.labels("alice")


def assert_nothing_opens(world):
    for entry in world.http():
        if "route" in entry:
            assert all(match.get("headers") for match in entry["match"]), entry


def assert_nobody_is_shut_out(world):
    """Members may call before everybody else may not."""
    written = applications.written(world.fake)
    assert "" not in written or {"kfp-ui", "kfp-api"} <= set(written), written
    strict = {"selector" in obj["spec"] for obj in world.all("PeerAuthentication")}
    assert False not in strict or True in strict, "no port is excepted"


@pytest.mark.parametrize("every", [20, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("step", LIFE)
def test_step_that_breaks_off_at_any_request_is_repaired_by_the_next_hook(
    monkeypatch, step, every
):
    before = live(monkeypatch, step)
    others = foreign(before.fake)
    step(before)
    whole = before.copy(monkeypatch)
    count = len(whole.fake.requests)
    whole.step()
    requests = len(whole.fake.requests) - count
    whole.settle()
    for place, code in zip(range(0, requests, every), itertools.cycle(CODES), strict=False):
        world = before.copy(monkeypatch)
        world.fake.failing = {count + place: code}
        world.step()
        about = world.fake.requests[count + place], code
        assert not world.fake.failing, about
        assert_nothing_opens(world)
        assert_nobody_is_shut_out(world)
        assert foreign(world.fake) == others, about
        world.fake.unreachable = False
        world.settle()
        assert ours(world.fake) == ours(whole.fake), about

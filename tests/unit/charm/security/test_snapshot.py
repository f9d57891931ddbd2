"""What a hook asks the API server for the sake of security: each kind once, whatever is asked."""

import collections
import json

import pytest
from ops import testing

from tests.unit.charm import fake_cluster, ingress_world
from tests.unit.charm.security import members
from tests.unit.charm.security.callers import policy

OF_BOTH = {"authorization": "closed", "mtls": "strict"}


@pytest.fixture
def world(monkeypatch):
    """A model with routes and callers, whose hooks find everything as it should be."""
    fake = fake_cluster.FakeCluster()
    fake.namespace("kubeflow")
    ingress_world.connect(fake, monkeypatch)
    for name, port in (("kfp-ui", 3000), ("kfp-api", 8888)):
        for each in (*members.member(name), members.service(name, port)):
            fake.add(each)
    stated = {"policies": json.dumps([policy("kfp-ui", "kfp-api")])}
    mesh = testing.Relation("service-mesh", remote_app_name="kfp-api", remote_app_data=stated)
    return ingress_world.World(fake, ingress_world.route(), ingress_world.auth(), mesh)


def idle(world, **options):
    """Count the requests of a hook that has nothing to do."""
    world.config = options
    world.run()
    world.fake.requests.clear()
    world.run(lambda ctx: ctx.on.update_status())
    return collections.Counter(world.fake.requests)


@pytest.mark.parametrize(
    ("options", "most"),
    [
        pytest.param({"authorization": "related"}, 11, id="related"),
        pytest.param({"authorization": "closed"}, 11, id="closed"),
        pytest.param({"mtls": "strict"}, 10, id="strict"),
        pytest.param(OF_BOTH, 14, id="both"),
    ],
)
def test_idle_hook_lists_no_kind_twice_for_security(world, options, most):
    more = idle(world, **options) - idle(world, authorization="off", mtls="inherit")
    assert not [asked for asked, count in more.items() if count > 1]
    assert more.total() <= most, more

"""What the API server does not let a tenant make, whatever else is promised about tenants."""

import pytest

from tests.functional import tenant_attacks as attacks
from tests.functional import tenant_parts as parts
from tests.functional import tenant_routes as routes
from tests.functional import tenant_world

pytestmark = pytest.mark.usefixtures("unreachable_node")


@pytest.fixture(scope="module")
def world(control_plane, client, tmp_path_factory):
    made = tenant_world.World(control_plane, client, tmp_path_factory.mktemp("tenants"))
    try:
        made.furnish()
        yield made
    finally:
        made.clean()


def _elsewhere(space):
    def attack(world):
        for kind, version in {
            "ConfigMap": "v1",
            "Secret": "v1",
            "Lease": "coordination.k8s.io/v1",
        }.items():
            yield parts.made(version, kind, "attack", getattr(world, space))
        yield attacks.gateway(world, "a.example.com", namespace=getattr(world, space))

    return attack


def _slices(world):
    """EndpointSlices, by which another's Service would be led astray."""
    slice_ = parts.made("discovery.k8s.io/v1", "EndpointSlice", "attack", world.profile)
    yield {**slice_, "addressType": "IPv4", "endpoints": []}


def _cluster(world):
    for kind in ("ClusterRole", "ClusterRoleBinding"):
        yield {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": "a"},
        }
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "attack"}}


REFUSED = [
    pytest.param(_elsewhere("model"), id="in the model"),
    pytest.param(_elsewhere("edge"), id="in the gateway's namespace"),
    pytest.param(_elsewhere("third"), id="in another's namespace"),
    pytest.param(_slices, id="EndpointSlices"),
    pytest.param(_cluster, id="in the cluster"),
]


@pytest.mark.parametrize("attack", REFUSED)
@pytest.mark.parametrize("who", ["plain", "meshed"])
def test_tenant_makes_nothing_where_it_has_no_right(world, who, attack):
    objects = list(attack(world))
    assert getattr(world, who).refused(*objects) == len(objects)


def test_tenant_without_istio_makes_nothing_of_its_kinds(world):
    for given in (*attacks.ISTIO, *routes.GATEWAYS):
        objects = list(given.values[0](world))
        assert world.plain.refused(*objects) == len(objects)
        assert world.meshed.refused(*objects) == 0


@pytest.mark.parametrize(
    "argv",
    [
        ("label", "namespace", "PROFILE", "istio-integrator.charmhub.io/served-by=nobody"),
        ("label", "namespace", "PROFILE", "istio-integrator.charmhub.io/served=disabled"),
        ("annotate", "namespace", "PROFILE", "istio-integrator.charmhub.io/membership={}"),
        ("get", "secrets", "-n", "EDGE"),
        ("get", "configmaps", "-n", "MODEL"),
        ("get", "pods", "-A"),
    ],
    ids=" ".join,
)
def test_tenant_changes_and_reads_nothing_of_others(world, argv):
    names = {"PROFILE": world.profile, "EDGE": world.edge, "MODEL": world.model}
    done = world.meshed.kubectl(*(names.get(word, word) for word in argv), check=False)
    assert done.returncode
    assert "(Forbidden)" in done.stderr

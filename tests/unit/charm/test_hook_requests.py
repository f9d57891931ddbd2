"""What a hook asks the API server that finds everything as it should be."""

import collections

import pytest
from ops import testing

import charm
from tests.unit.charm import charm_world, fake_cluster, ingress_world
from tests.unit.charm.charm_world import state
from tests.unit.charm.ingress_world import World, auth, route

OFTEN = {
    "create pods kubeflow": "each a dry run that shows something else",
    "list pods kubeflow": "the webhook's own, those kept outside of ambient mode, and all",
    "list services kubeflow": "the webhook's own Service, and those of the model",
    "list gateways kubeflow": "Istio's kind, and that of the Gateway API",
    "get secrets kubeflow istio-integrator-record": "it names the other Secret's namespace",
}
MOST = 42
MOST_WITH_ROUTES = 40
NATIVE_SAVES = 1
"""Where sidecars are native anyway the nodes' versions don't matter."""


@pytest.fixture
def ctx(fake, monkeypatch, tmp_path) -> testing.Context[charm.IstioIntegrator]:
    charm_world.connect(fake, monkeypatch)
    fake.application()
    fake_cluster.install_istio(fake)
    return testing.Context(charm.IstioIntegrator, charm_root=charm_world.root(tmp_path))


def idle(ctx, fake) -> collections.Counter[str]:
    """Count what a hook asks that has nothing to do."""
    out = ctx.run(ctx.on.start(), state())
    for _ in range(2):
        out = ctx.run(ctx.on.config_changed(), out)
    fake.requests.clear()
    fake.writes.clear()
    ctx.run(ctx.on.update_status(), out)
    assert not fake.writes
    return collections.Counter(fake.requests)


@pytest.mark.parametrize("is_native", [False, True])
def test_hook_asks_little_and_for_nothing_twice(ctx, fake, is_native):
    fake_cluster.set_istiod(fake, native_by_default=is_native)
    found = idle(ctx, fake)
    assert not {each for each, count in found.items() if count > 1} - OFTEN.keys()
    assert found.total() <= MOST - NATIVE_SAVES * is_native, found
    # No webhook is in the mesh.
    assert found["list peerauthentications"] == 0


@pytest.mark.parametrize(
    ("routes", "is_native"),
    [
        pytest.param(1, False, id="one"),
        pytest.param(20, False, id="many"),
        pytest.param(20, True, id="many where sidecars are native"),
    ],
)
def test_hook_with_routes_asks_little_however_many_they_are(
    fake, monkeypatch, tmp_path, routes, is_native
):
    ingress_world.connect(fake, monkeypatch)
    fake_cluster.set_istiod(fake, native_by_default=is_native)
    fake.application()
    related = [route(f"app-{number}") for number in range(routes)]
    world = World(
        fake,
        *related,
        auth(),
        gateway_service="istio-ingress/istio-ingressgateway",
        hosts="kubeflow.example.com",
    )
    root = charm_world.root(tmp_path)
    world.ctx = testing.Context(charm.IstioIntegrator, charm_root=root)
    world.run(lambda ctx: ctx.on.start())
    for _ in range(2):
        world.run()
    fake.requests.clear()
    fake.writes.clear()
    world.run(lambda ctx: ctx.on.update_status())
    found = collections.Counter(fake.requests)
    assert not fake.writes
    assert not {each for each, count in found.items() if count > 1} - OFTEN.keys()
    assert found.total() <= MOST_WITH_ROUTES - NATIVE_SAVES * is_native, found
    lists = collections.Counter(each.split()[1] for each in found if each.startswith("list"))
    # The gateway's pods may be in any namespace.
    often = {kind for kind, count in lists.items() if count > 1}
    assert often == {"pods", "sidecars"}, lists
    # A model may have hundreds of Deployments.
    assert found["list deployments"] == 0

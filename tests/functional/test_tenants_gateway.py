"""Nobody passes the guard of a shared gateway by what a tenant writes: real istiod, real Envoy."""

import contextlib

import pytest

from testbed import loopback
from tests import gateway_client
from tests.functional import tenant_envoy, tenant_world
from tests.functional import tenant_parts as parts
from tests.functional import tenant_routes as routes
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("unreachable_node")


@pytest.fixture(scope="module")
def world(control_plane, client, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tenants")
    with tenant_envoy.serving(control_plane, client, folder) as made:
        yield made


@pytest.fixture(autouse=True)
def running(world):
    world.rest()


@pytest.mark.parametrize(
    "attack", [*parts.long_but(routes.LEADS), pytest.param(routes.all_leads, id="all at once")]
)
def test_request_is_led_to_no_server_of_a_tenant(world, attack):
    with world.attacked(attack):
        world.assert_guarded()


def test_nobody_answers_for_an_authorization_service_without_pods(world):
    with world.attacked(routes.entry_for("oidc")), world.without("oidc", "EndpointSlice"):
        world.assert_closed()
        assert world.evil.asked == []
    assert eventually(world.is_asked)
    world.assert_guarded()


def test_nobody_decides_in_place_of_an_authorization_service_that_is_not_there(world):
    """istiod gives a name that no Service has to whoever writes a ServiceEntry of it."""
    with (
        world.attacked(routes.entry_for("oidc")),
        world.without("oidc", "Service", "EndpointSlice"),
    ):
        said = world.charm.hook()
        assert any("waiting for Service" in message for _, message in said)
        world.assert_closed()
        world.evil.asked.clear()
        world.assert_closed()
        assert world.evil.asked == []
    world.charm.hook()
    assert eventually(world.is_asked)
    world.assert_guarded()


@pytest.mark.parametrize(
    "attack", parts.long_but(routes.GATEWAYS, "Gateway of our host", "Gateway of every host")
)
def test_gateway_of_a_tenant_takes_no_guard_away(world, attack):
    with world.attacked(attack):
        world.assert_guarded()
        world.assert_unharmed()


@pytest.mark.parametrize("attack", parts.long_but(routes.TAKERS, "Gateway that redirects"))
def test_tenant_who_takes_a_host_passes_nobody_unasked(world, attack):
    with world.attacked(attack):
        said = world.charm.hook()
        world.assert_nobody_passes_unasked()
        world.assert_blames_nobody_else(said)


@pytest.mark.parametrize("held", [False, True], ids=["any port", "ports of ours alone"])
def test_port_of_a_tenant_leads_into_the_model_unless_the_workload_has_no_other(world, held):
    """Bytes have no headers: only a workload of our own can do without ports of others."""
    port = loopback.free_port()
    claim = f"kubeflow-userid: {tenant_envoy.CLAIM}"
    request = f"GET /kfp/x HTTP/1.1\r\nHost: x\r\n{claim}\r\n\r\n"
    with (
        world.only_own_ports() if held else contextlib.nullcontext(),
        world.attacked(lambda world: routes.tcp(world, port)),
    ):
        world.application.asked.clear()
        assert eventually(lambda: world.has_sent(request, port))
        assert len(world.application.asked) == (0 if held else 1)
        world.assert_guarded()


@pytest.mark.parametrize("attack", parts.long_but(routes.TAKERS, "Gateway that redirects"))
def test_routes_close_with_their_guard_whatever_a_tenant_has(world, attack):
    with world.attacked(attack), world.unrelated("ingress-auth"):
        world.charm.hook()
        world.assert_closed()


@pytest.mark.parametrize("attack", routes.ALIASES)
def test_shared_gateway_takes_a_route_to_an_address_at_its_word(world, attack):
    """Why a workload of our own is what keeps identities where tenants may write Gateways."""
    with world.attacked(attack):
        visitor = gateway_client.Client(port=world.port)
        claim = tenant_envoy.CLAIMED

        def taken_at_its_word():
            return tenant_envoy.CLAIM in visitor.get("/steal/x", tenant_world.EVIL, **claim).text

        assert eventually(taken_at_its_word)
        visitor.close()

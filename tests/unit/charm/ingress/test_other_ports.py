"""Routes at other ports than 80 and 443: on a gateway workload of the model's own alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.ingress import requested
from tests.unit.charm import ingress_world
from tests.unit.charm.ingress import wishes
from tests.unit.charm.ingress.test_ingress_route_charm import asks, path
from tests.unit.charm.ingress_world import OURS, World, auth, authority, route, sign

TERMS = requested.Terms(**wishes.TERMS)


def at(port, value="/a", **more):
    listener = {"port": port, "protocol": "HTTP"}
    return wishes.route(wishes.match(value), listener=listener, **more)


def ports(*received, older=()):
    return requested.ports(received, older, TERMS)


@pytest.fixture
def world(fake, monkeypatch):
    ingress_world.connect(fake, monkeypatch)
    found = World(fake, route(), auth(), gateway_workload=True)
    found.run()
    return found


def servers(world):
    return {one["port"]["number"]: one for one in world.gateway()["spec"]["servers"]}


def matches(world):
    return {
        (match["uri"].get("prefix") or match["uri"]["exact"], match.get("port"))
        for entry in world.http()
        for match in entry["match"]
    }


def opened(world):
    """The ports of our gateway's Service, and those of its pods that let anybody in."""
    service = world.fake.find("Service", f"{OURS}-gateway", "kubeflow")
    policy = world.fake.find("AuthorizationPolicy", f"{OURS}-gateway", "kubeflow")
    (rule,) = policy["spec"]["rules"]
    numbers = {port["port"]: port["targetPort"] for port in service["spec"]["ports"]}
    return numbers, rule["to"][0]["operation"]["notPorts"]


def test_route_at_another_port_is_served_there_and_nowhere_else(world):
    before = world.gateway()["spec"], world.http(), opened(world)
    world.related.append(asks("feast", path("/entry"), at(9000, "/here")))
    world.run()
    assert opened(world) == (
        {15021: 15021, 80: 8080, 443: 8443, 9000: 9000},
        ["8080", "8443", "9000"],
    )
    assert set(servers(world)) == {80, 9000}
    found = matches(world)
    assert {port for uri, port in found if uri.startswith("/here")} == {9000}
    assert {port for uri, port in found if not uri.startswith("/here")} == {80, 443}

    # It goes without a moment in which the others' routes are away.
    world.related.pop()
    world.fake.writes.clear()
    world.run()
    assert (world.gateway()["spec"], world.http(), opened(world)) == before
    assert not [write for write in world.fake.writes if write.startswith("delete")]


def test_port_has_the_certificate_of_the_entry_and_without_one_nothing_plain(world):
    world.related += [asks("feast", at(9000)), authority()]
    world.config["https_redirect"] = True
    world.run()
    assert set(servers(world)) == {80}
    sign(world)
    world.run()
    (secure, other) = (servers(world)[port] for port in (443, 9000))
    assert other["port"] == {"number": 9000, "name": "https-9000", "protocol": "HTTPS"}
    assert (other["tls"], other["hosts"]) == (secure["tls"], secure["hosts"])


def test_port_on_a_gateway_of_others_is_refused_by_name(world):
    world.config = {}
    world.related = [route(), auth(), asks("feast", at(9000))]
    status = world.status()
    assert "port 9000" in status.message
    assert "gateway-workload=true" in status.message
    assert set(servers(world)) == {80}


@pytest.mark.parametrize("port", [1, 22, 1023, 8080, 8443, 15000, 15021, 15090])
def test_port_that_is_kept_is_refused_by_name(port):
    received = wishes.received(1, at(port))
    assert ports(received) == ()
    (problem,) = wishes.plan(received, has_own_gateway=True).problems
    assert f"port {port}: " in problem
    assert "gateway-workload" not in problem


@given(st.lists(st.lists(st.integers(1, 65535), max_size=6), max_size=6))
def test_ports_are_few_and_free_and_the_oldest_relations(asked):
    received = [
        wishes.received(number, *(at(port) for port in each)) for number, each in enumerate(asked)
    ]
    found = ports(*received)
    assert len(found) <= requested.MOST_PORTS
    assert not {80, 443, 8080, 8443} & set(found)
    assert all(port >= 1024 and not 15000 <= port < 15100 for port in found)
    plan = wishes.plan(*received, ports=found, has_own_gateway=True)
    assert {one.port for one in plan.routes} <= {None, *found}
    free = [p for each in asked for p in each if p >= 1024 and p not in requested._KEPT_PORTS]
    assert set(found) == set([*dict.fromkeys(free)][: requested.MOST_PORTS])


def test_ninth_port_is_refused_and_one_who_is_refused_opens_none():
    many = wishes.received(1, *(at(9000 + number, f"/{number}") for number in range(9)))
    stranger = wishes.received(2, at(9100), model="elsewhere")
    found = ports(many, stranger)
    assert found == tuple(range(9000, 9008))
    (problem,) = wishes.plan(many, ports=found, has_own_gateway=True).problems
    assert "port 9008: no more than 8" in problem


def test_same_path_at_two_ports_is_no_conflict():
    one, other = wishes.received(1, at(80)), wishes.received(2, at(9000))
    third = wishes.received(3, at(9000))
    plan = wishes.plan(one, other, third, ports=(9000,), has_own_gateway=True)
    assert {(each.relation, each.port) for each in plan.routes} == {(1, None), (2, 9000)}
    assert plan.problems == ("istio-ingress-route:3 app-3: route web: /a belongs to app-2",)

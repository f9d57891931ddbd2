import itertools
from ipaddress import IPv4Network

import hypothesis
import pytest
from hypothesis import strategies

from testbed import addresses

SLOTS = strategies.integers(0, addresses.SLOTS - 1)


@hypothesis.given(SLOTS)
def test_plan_ranges_of_one_slot_are_disjoint_parts_of_it(slot: int):
    plan = addresses.plan(slot)
    for one, other in itertools.combinations((plan.link, plan.services, plan.pods), 2):
        assert not one.overlaps(other)
    for network in (plan.link, plan.services, plan.pods):
        assert network.subnet_of(plan.whole)


@hypothesis.given(SLOTS, SLOTS)
def test_plan_of_two_slots_share_nothing(one: int, other: int):
    hypothesis.assume(one != other)
    assert not addresses.plan(one).whole.overlaps(addresses.plan(other).whole)
    assert addresses.plan(one).interface != addresses.plan(other).interface


@hypothesis.given(SLOTS)
def test_plan_single_addresses_lie_in_their_ranges(slot: int):
    plan = addresses.plan(slot)
    assert plan.host in plan.link
    assert plan.node in plan.link
    assert plan.dns in plan.services
    assert plan.kubernetes == plan.services[1]
    assert len(plan.interface) <= 15, "the kernel's limit for names of interfaces"


@hypothesis.given(SLOTS)
def test_plan_gives_each_node_addresses_of_its_own(slot: int):
    plan = addresses.plan(slot)
    indices = range(addresses.NODES)
    for one, other in itertools.combinations(indices, 2):
        assert not plan.pods_of(one).overlaps(plan.pods_of(other))
    assert all(plan.pods_of(index).subnet_of(plan.pods) for index in indices)
    further = [plan.gateway_to(index) for index in indices[1:]]
    ends = [plan.host, plan.istiod, plan.istiod_gateway, *map(plan.node_of, indices), *further]
    assert len(set(ends)) == len(ends)
    for end in ends:
        assert end in plan.whole
        assert not any(end in each for each in (plan.services, plan.pods))


@hypothesis.given(strategies.sets(SLOTS, max_size=addresses.SLOTS - 1))
def test_choose_slot_takes_the_first_that_is_free(taken: set[int]):
    slot = addresses.choose_slot(taken, [])
    assert slot not in taken
    assert set(range(slot)) <= taken


def test_choose_slot_skips_ranges_that_the_host_routes():
    busy = addresses.plan(0).pods
    assert addresses.choose_slot({1}, [busy]) == 2


def test_choose_slot_ignores_the_default_route():
    assert addresses.choose_slot([], [IPv4Network("0.0.0.0/0")]) == 0


def test_choose_slot_without_any_free_one_says_so():
    with pytest.raises(addresses.NoSlotError, match="none of the"):
        addresses.choose_slot(range(addresses.SLOTS), [])


def test_parse_routes_keeps_networks_and_hosts_only():
    routes = addresses.parse_routes(["default", "10.0.0.0/8", "192.0.2.7", "unreachable"])
    assert routes == [IPv4Network("10.0.0.0/8"), IPv4Network("192.0.2.7/32")]

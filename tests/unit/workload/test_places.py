"""Who may be connected to a server of ours, and who gives way to whom."""

from __future__ import annotations

import collections

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sidecar_lifecycle.shell.serving import places

TENANT, API_SERVER = "10.1.0.7", "10.0.0.1"
NOW = 100.0


def place(address=TENANT, state="idle", since=0.0, held=0):
    return places.Place(address, since, lambda: False, state=state, held=held)


class World:
    """Places, and the connections that have one."""

    def __init__(self, **bounds):
        self.places = places.Places(**bounds)
        self.open = {}
        self.port = 0

    def enter(self, address, now=NOW):
        self.port += 1
        peer = (address, self.port)
        taken = self.places.enter(peer, now, lambda: peer not in self.open)
        if taken is not None:
            self.open[peer] = taken
            taken.close = lambda: self.open.pop(peer)
        return taken

    def count(self):
        return collections.Counter(address for address, _ in self.open)


@pytest.mark.parametrize("state", ["new", "busy", "idle"])
def test_a_flood_from_one_address_gives_way_to_another(state):
    flood = [place(state=state, since=since) for since in (3.0, 1.0, 2.0)]

    assert places.giving_way(flood, API_SERVER, NOW) is flood[1]


def test_what_is_idle_gives_way_before_what_is_at_work():
    flood = [place(state="busy", since=1.0), place(since=90.0), place(state="busy", since=2.0)]

    assert places.giving_way(flood, API_SERVER, NOW) is flood[1]


def test_reviews_at_work_are_not_cut_for_an_address_with_as_many():
    taken = [place(API_SERVER, "busy"), place(TENANT, "busy")]

    assert places.giving_way(taken, "10.1.0.8", NOW) is None


def test_connections_kept_by_one_api_server_give_way_to_another_behind_the_same_address():
    taken = [place(API_SERVER, since=since) for since in (5.0, 4.0)]

    assert places.giving_way(taken, API_SERVER, NOW) is taken[1]


def test_a_request_that_may_be_on_its_way_is_not_cut_off_for_the_same_address():
    taken = [place(API_SERVER, since=NOW - 0.1), place(API_SERVER, "new", since=NOW - 0.1)]

    assert places.giving_way(taken, API_SERVER, NOW) is None


def test_a_flood_never_takes_the_places_of_those_who_have_fewer():
    world = World(connections=8)
    world.enter(API_SERVER)
    for _ in range(50):
        world.enter(TENANT)

    assert world.count() == {API_SERVER: 1, TENANT: 7}
    assert world.places.closed == 43


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("nbix")), max_size=60))
def test_no_order_of_events_takes_more_places_or_refuses_the_one_who_has_none(events):
    world = World(connections=4)
    for now, (address, event) in enumerate(events):
        own = [peer for peer in world.open if peer[0] == address]
        if event == "n":
            before = world.count()
            entered = world.enter(address, float(now))
            others = [count for name, count in before.items() if name != address]
            if not own and max(others, default=0) > 1:
                assert entered is not None
        elif own and event == "x":
            del world.open[own[0]]
        elif own:
            taken = world.open[own[0]]
            taken.state, taken.since = ("busy" if event == "b" else "idle"), float(now)
        assert len(world.open) <= 4


@pytest.mark.parametrize(
    ("state", "limit"),
    [
        ("new", places.FIRST_SECONDS),
        ("busy", places.BUSY_SECONDS),
        ("idle", places.IDLE_SECONDS),
    ],
)
def test_what_takes_too_long_is_closed_in_whatever_state(state, limit):
    world = World()
    taken = world.enter(TENANT, 0.0)
    taken.state = state

    world.places.close_overdue(limit)
    assert world.count() == {TENANT: 1}
    world.places.close_overdue(limit + 0.1)
    assert not world.count()


def test_bytes_of_the_address_with_the_most_are_given_up():
    world = World(size=100)
    flood = [world.enter(TENANT) for _ in range(3)]
    for taken, count in zip(flood, (30, 40, 20), strict=True):
        assert world.places.hold(taken, count)
    review = world.enter(API_SERVER)

    assert world.places.hold(review, 50)
    assert set(world.open.values()) == {flood[0], flood[2], review}


def test_the_address_with_the_most_bytes_is_refused_more():
    world = World(size=100)
    review, body = world.enter(API_SERVER), world.enter(TENANT)
    assert world.places.hold(review, 30)

    assert not world.places.hold(body, 90)
    assert world.count() == {API_SERVER: 1, TENANT: 1}

"""Places: few per node, many in total, shared between namespaces, nobody forgotten."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from sidecar_lifecycle.shell.shutdown import slots
from sidecar_lifecycle.shell.shutdown.slots import Place

PLACES = [Place(node, namespace) for node in "abc" for namespace in "xyz"]
SMALL = slots.Share(per_node=3, total=5, namespace_per_node=2, namespace_total=4)


def full(places: list[Place], share: slots.Share) -> bool:
    """Tell whether more places are held than there are, on a node or by a namespace."""
    return (
        len(places) > share.total
        or max(Counter(place.node for place in places).values(), default=0) > share.per_node
        or max(Counter(place.namespace for place in places).values(), default=0)
        > share.namespace_total
        or max(Counter(places).values(), default=0) > share.namespace_per_node
    )


@given(st.lists(st.sampled_from(PLACES), max_size=60), st.randoms(use_true_random=False))
def test_limits_hold_and_everybody_gets_a_place(asked: list[Place], rand: random.Random):
    started: list[tuple[Place, int]] = []
    served: list[tuple[Place, int]] = []

    def start(item: tuple[Place, int]) -> bool:
        if item[1] % 7 == 3:
            served.append(item)
            return False
        started.append(item)
        return True

    lane = slots.Lane[tuple[Place, int]](SMALL, start)
    for number, place in enumerate(asked):
        lane.ask(place, (place, number))
        assert not full([place for place, _ in started], SMALL)
    while started:
        item = started.pop(rand.randrange(len(started)))
        served.append(item)
        lane.free(item[0])
        assert not full([place for place, _ in started], SMALL)
        assert not any(map(lane._next, "abc")), "who could begin waits"

    assert sorted(served, key=lambda item: item[1]) == [
        (place, number) for number, place in enumerate(asked)
    ]


def test_place_of_a_namespace_is_given_on_without_a_look_at_every_node():
    looks: list[str] = []

    class Counted(slots.Lane[str]):
        def _next(self, node: str) -> Place | None:
            looks.append(node)
            return super()._next(node)

    subject = Counted(slots.Limits().first, lambda _: True)
    nodes = [f"node-{number}" for number in range(500)]
    for node in nodes:
        for _ in range(3):
            subject.ask(Place(node, "one"), node)
    looks.clear()
    for node in nodes[:20]:
        subject.free(Place(node, "one"))
    assert len(looks) <= 20 * 5


def test_pods_of_a_namespace_go_in_order_of_arrival():
    started: list[int] = []

    def start(number: int) -> bool:
        started.append(number)
        return True

    share = slots.Share(per_node=1, total=1, namespace_per_node=1, namespace_total=1)
    lane = slots.Lane[int](share, start)
    for number in range(5):
        lane.ask(PLACES[0], number)
    for _ in range(4):
        lane.free(PLACES[0])

    assert started == [0, 1, 2, 3, 4]


def test_full_node_leaves_the_places_of_others_alone():
    started: list[str] = []

    def start(name: str) -> bool:
        started.append(name)
        return True

    subject = slots.Lane[str](slots.Limits().first, start)
    for number in range(10):
        subject.ask(Place("hung", "x"), f"hung-{number}")
    subject.ask(Place("well", "x"), "well-0")

    assert started == [*(f"hung-{number}" for number in range(4)), "well-0"]


def test_nodes_with_hundreds_waiting_take_turns_for_the_places_that_all_share():
    started: list[str] = []

    def start(name: str) -> bool:
        started.append(name)
        return True

    share = slots.Share(per_node=1, total=1, namespace_per_node=1, namespace_total=1)
    subject = slots.Lane[str](share, start)
    for _ in range(100):
        for node in ("a", "b", "c"):
            subject.ask(Place(node, "x"), node)
    for _ in range(6):
        subject.free(Place(started[-1], "x"))

    assert Counter(started[1:]) == {"a": 2, "b": 2, "c": 2}


def test_namespaces_with_hundreds_waiting_take_turns_with_another():
    started: list[str] = []

    def start(name: str) -> bool:
        started.append(name)
        return True

    subject = slots.Lane[str](slots.Limits().first, start)
    for _ in range(400):
        for namespace in ("tenant", "tenants-other"):
            subject.ask(Place("node", namespace), namespace)
    subject.ask(Place("node", "honest"), "honest")
    held = list(started)
    assert "honest" not in held

    # By turns: one place for each of the two that came before.
    for namespace in held[:3]:
        subject.free(Place("node", namespace))

    assert "honest" in started


def test_namespace_with_pods_on_every_node_leaves_places_to_another():
    started: list[str] = []

    def start(name: str) -> bool:
        started.append(name)
        return True

    subject = slots.Lane[str](slots.Limits().first, start)
    for number in range(100):
        for _ in range(20):
            subject.ask(Place(f"node-{number}", "tenant"), "tenant")
    subject.ask(Place("node-99", "honest"), "honest")

    assert started[-1] == "honest"


def test_retry_of_another_namespace_does_not_wait_for_hundreds():
    ran: list[str] = []
    left: set[str] = set()

    def start(name: str) -> bool:
        if name in left:
            return False
        ran.append(name)
        return True

    subject = slots.Lane[str](slots.Limits().retries, start)
    for number in range(400):
        subject.ask(Place("node", "tenant"), f"tenant-{number}")
    subject.ask(Place("node", "honest"), "honest")
    assert ran == ["tenant-0", "honest"]

    # Who has left while it waited leaves its turn to the next.
    left |= {f"tenant-{number}" for number in range(1, 9)}
    subject.free(Place("node", "tenant"))
    subject.free(Place("node", "honest"))
    assert ran == ["tenant-0", "honest", "tenant-9"]

"""Places: few per node, many in total, nobody forgotten."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from sidecar_lifecycle.shutdown import slots

NODES = ("a", "b", "c")


@given(st.lists(st.sampled_from(NODES), max_size=40), st.randoms(use_true_random=False))
def test_limits_hold_and_everybody_gets_a_place(asked: list[str], rand: object):
    limits = slots.Limits(per_node=2, total=3)
    started: list[tuple[str, int]] = []
    served: list[tuple[str, int]] = []

    def start(item: tuple[str, int]) -> bool:
        if item[1] % 7 == 3:
            served.append(item)
            return False
        started.append(item)
        return True

    subject = slots.Slots[tuple[str, int]](start, limits)
    for number, node in enumerate(asked):
        subject.ask(node, (node, number))
        assert len(started) <= limits.total
        assert max(Counter(node for node, _ in started).values(), default=0) <= limits.per_node
    while started:
        item = started.pop(rand.randrange(len(started)))  # type: ignore[attr-defined]
        served.append(item)
        subject.free(item[0])
        assert len(started) <= limits.total
        assert max(Counter(node for node, _ in started).values(), default=0) <= limits.per_node

    assert sorted(served, key=lambda item: item[1]) == [
        (node, number) for number, node in enumerate(asked)
    ]


def test_pods_of_a_node_go_in_order_of_arrival():
    started: list[int] = []

    def start(number: int) -> bool:
        started.append(number)
        return True

    subject = slots.Slots[int](start, slots.Limits(per_node=1))
    for number in range(5):
        subject.ask("a", number)
    for _ in range(4):
        subject.free("a")

    assert started == [0, 1, 2, 3, 4]


def test_full_node_leaves_the_places_of_others_alone():
    started: list[str] = []

    def start(name: str) -> bool:
        started.append(name)
        return True

    subject = slots.Slots[str](start, slots.Limits(per_node=2, total=4))
    for number in range(10):
        subject.ask("hung", f"hung-{number}")
    subject.ask("well", "well-0")

    assert started == ["hung-0", "hung-1", "well-0"]

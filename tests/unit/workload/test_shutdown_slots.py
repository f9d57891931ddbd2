"""Places: few per node, many in total, and every item gets one."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from sidecar_lifecycle.shell.shutdown import slots

SMALL = slots.Share(per_node=3, total=5)


def are_too_many(nodes: list[str]) -> bool:
    return len(nodes) > SMALL.total or max(Counter(nodes).values(), default=0) > SMALL.per_node


@given(st.lists(st.sampled_from("abc"), max_size=60), st.randoms(use_true_random=False))
def test_limits_hold_and_every_item_gets_a_place(asked: list[str], rand: random.Random):
    started: list[tuple[str, int]] = []
    served: list[tuple[str, int]] = []

    def start(item: tuple[str, int]) -> bool:
        if item[1] % 7 == 3:
            served.append(item)
            return False
        started.append(item)
        return True

    lane = slots.Lane[tuple[str, int]](SMALL, start)
    items = [(node, number) for number, node in enumerate(asked)]
    for item in items:
        lane.ask(item[0], item)
        assert not are_too_many([node for node, _ in started])
    while started:
        item = started.pop(rand.randrange(len(started)))
        served.append(item)
        lane.free(item[0])
        nodes = [node for node, _ in started]
        assert not are_too_many(nodes)
        waiting = {node for node, number in items if (node, number) not in served}
        idle = waiting - set(nodes)
        assert not idle or len(nodes) == SMALL.total, "an item waits although a place is free"

    assert sorted(served, key=lambda item: item[1]) == items


def test_nodes_with_hundreds_waiting_take_turns_for_the_places_in_total():
    started: list[str] = []
    lane = slots.Lane[str](
        slots.Share(per_node=1, total=1), lambda node: started.append(node) is None
    )
    for _ in range(100):
        for node in "abc":
            lane.ask(node, node)
    for _ in range(6):
        lane.free(started[-1])

    assert Counter(started[1:]) == {"a": 2, "b": 2, "c": 2}


def test_items_of_a_node_go_in_order_of_arrival():
    started: list[str] = []
    share = slots.Share(per_node=1, total=1)
    lane = slots.Lane[str](share, lambda name: started.append(name) is None)
    for name in "abcde":
        lane.ask("node", name)
    for _ in range(4):
        lane.free("node")

    assert started == list("abcde")

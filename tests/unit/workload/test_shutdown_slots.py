"""Places: few per node, many in total, and every item gets one."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from sidecar_lifecycle.shell.shutdown import slots

SMALL = slots.Share(per_node=3, total=5)


@given(st.lists(st.sampled_from("abc"), max_size=60), st.randoms(use_true_random=False))
def test_limits_hold_and_every_item_gets_a_place(asked: list[str], rand: random.Random):
    started: list[tuple[str, int]] = []
    served: list[tuple[str, int]] = []

    def start(item: tuple[str, int]) -> bool:
        needs_no_place = item[1] % 7 == 3
        (served if needs_no_place else started).append(item)
        return not needs_no_place

    def check() -> None:
        nodes = Counter(node for node, _ in started)
        assert nodes.total() <= SMALL.total
        assert max(nodes.values(), default=0) <= SMALL.per_node

    lane = slots.Lane[tuple[str, int]](SMALL, start)
    items = [(node, number) for number, node in enumerate(asked)]
    for item in items:
        lane.ask(item[0], item)
        check()
    while started:
        item = started.pop(rand.randrange(len(started)))
        served.append(item)
        lane.free(item[0])
        check()
        idle = {node for node, _ in {*items} - {*served}} - {node for node, _ in started}
        assert not idle or len(started) == SMALL.total, "an item waits although a place is free"

    assert sorted(served, key=lambda item: item[1]) == items


def test_nodes_take_turns_and_items_of_a_node_go_in_order_of_arrival():
    started: list[str] = []
    share = slots.Share(per_node=1, total=1)
    lane = slots.Lane[str](share, lambda name: started.append(name) is None)
    for name in ("a0", "a1", "a2", "b0", "b1", "c0"):
        lane.ask(name[0], name)
    for _ in range(5):
        lane.free(started[-1][0])

    assert started == ["a0", "a1", "b0", "c0", "a2", "b1"]

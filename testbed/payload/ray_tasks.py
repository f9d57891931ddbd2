"""The program of a RayJob: each node makes an array, and each other node gets and adds it."""

import sys
import time
from typing import Any

import numpy as np
import ray  # pyright: ignore[reportMissingImports]  the image has it
from ray.util.scheduling_strategies import (  # pyright: ignore[reportMissingImports]
    NodeAffinitySchedulingStrategy,
)

VALUES = 1_000_000
"""Of an array, which is too long to travel in a message."""


def main(count: int) -> int:
    """Exchange arrays among so many nodes; fail where these do not join or a sum is wrong."""
    ray.init()
    end = time.monotonic() + 60
    while len(nodes := [each["NodeID"] for each in ray.nodes() if each["Alive"]]) < count:
        if time.monotonic() > end:
            print(f"{len(nodes)} of {count} nodes joined", flush=True)
            return 1
        time.sleep(1)
    places = [NodeAffinitySchedulingStrategy(each, soft=False) for each in nodes]
    remote: dict[Any, Any] = {each: ray.remote(each) for each in (make, add)}
    made = [
        remote[make].options(scheduling_strategy=place).remote(number)
        for number, place in enumerate(places)
    ]
    added = [remote[add].options(scheduling_strategy=place).remote(*made) for place in places]
    assert ray.get(added, timeout=120) == [VALUES * sum(range(count))] * count
    print(f"{count} nodes exchanged arrays of {8 * VALUES} bytes", flush=True)
    return 0


def make(number: int) -> np.ndarray:
    """Return an array that stays on its node until it is asked for."""
    return np.full(VALUES, float(number))


def add(*arrays: np.ndarray) -> float:
    """Return the sum of arrays of all nodes."""
    return float(sum(each.sum() for each in arrays))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))

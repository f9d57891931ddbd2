"""What a profile shows, as spans: one for each function or import, those that it called within."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator
from typing import Any

SAMPLE = 2 * 10**6
"""Nanoseconds: bench/process.py has py-spy look 500 times a second."""
MERELY = 0.9
"""The share from which on a function is left out for the one that it calls."""
_FRAME = re.compile(r"(?P<function>.+) \((?P<file>[^:]+)(?::\d+)?\)")
_LEFT_OUT = re.compile(r"<frozen|importlib|^(asyncio|contextlib|enum|functools)|runpy|bench_")
"""Files of which the caller and the called tell enough."""


class _Node:
    def __init__(self) -> None:
        self.samples = 0
        self.called: dict[str, _Node] = collections.defaultdict(_Node)


def _names(stack: str) -> Iterator[str]:
    """Name the functions and imports of a stack, from the outermost one."""
    for frame in stack.split(";"):
        found = _FRAME.fullmatch(frame)
        if not found or _LEFT_OUT.search(found["file"]):
            continue
        module = found["file"].removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        if found["function"] == "<module>":
            yield f"import {module}"
        else:
            yield f"{module.rpartition('.')[2]}.{found['function']}"


def spans(stacks: str) -> list[dict[str, Any]]:
    """Return the spans of a profile, the longest first within each.

    Args:
        stacks: Lines of frames with semicolons between them, and a count of samples, as
            py-spy writes them with `--format=raw`.
    """
    root = _Node()
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        node = root
        node.samples += int(count)
        for name in _names(stack):
            node = node.called[name]
            node.samples += int(count)
    found: list[dict[str, Any]] = []
    _add(found, "all of it", root, None, 0)
    return found


def _add(
    found: list[dict[str, Any]], name: str, node: _Node, parent: int | None, begin: int
) -> None:
    within = sorted(node.called.items(), key=lambda one: -one[1].samples)
    if parent is not None and within and within[0][1].samples > MERELY * node.samples:
        # It does little but call the next one.
        _add(found, *within[0], parent, begin)
        return
    mine = len(found)
    end = begin + node.samples * SAMPLE
    found.append({"name": name, "parent": parent, "begin": begin, "end": end})
    for called, each in within:
        _add(found, called, each, mine, begin)
        begin += each.samples * SAMPLE

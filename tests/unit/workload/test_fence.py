"""Whatever is raised about one object ends at the fence, counted and told once."""

from __future__ import annotations

import asyncio

import pytest
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell import metrics
from sidecar_lifecycle.shell.kube import errors, fence
from structlog.testing import capture_logs


def pod(name: str = "job-x", uid: str = "uid-1") -> types.Pod:
    return types.Pod(metadata=types.ObjectMeta(name=name, namespace="tenant", uid=uid))


def counted(stage: str = "decide", kind: str = "Pod") -> float:
    labels = {"stage": stage, "kind": kind}
    return metrics.REGISTRY.get_sample_value("sidecar_lifecycle_broken_objects_total", labels) or 0


@pytest.mark.parametrize(
    "error", [RecursionError(), MemoryError(), ValueError("x"), TypeError(), KeyError("a")]
)
def test_loop_goes_on_after_whatever_one_object_raises(error: Exception):
    before, reached = counted(), []
    guard = fence.Fence()
    for number in range(3):
        with guard.around("decide", pod()):
            if number == 1:
                raise error
            reached.append(number)

    assert reached == [0, 2]
    assert counted() == before + 1


def test_trouble_is_counted_each_time_and_told_once_for_each_object():
    told: list[str] = []
    guard = fence.Fence(lambda item, why: told.append(f"{item.metadata.name}: {why}"))
    before = counted()
    with capture_logs() as logs:
        for item in (pod("a", "1"), pod("b", "2"), pod("a", "1"), pod("a", "3")):
            with guard.around("decide", item):
                raise ValueError("x" * 5000)

    assert counted() == before + 4
    assert [entry["name"] for entry in logs] == ["a", "b", "a"]
    assert [text[:15] for text in told] == [f"{name}: ValueError: " for name in "aba"]
    assert max(map(len, told)) <= fence.LONGEST + 3
    assert {entry["namespace"] for entry in logs} == {"tenant"}
    assert all(entry["at"].startswith("test_fence.py:") for entry in logs)


def test_object_that_can_not_be_named_is_counted_all_the_same():
    def unknown() -> types.Object:
        raise RecursionError

    guard = fence.Fence(lambda item, why: pytest.fail("nobody can be told"))
    with capture_logs() as logs, guard.around("decode", unknown):
        raise ValueError("x")

    assert [entry["name"] for entry in logs] == ["not known"]


def test_memory_of_what_was_told_is_bounded():
    guard = fence.Fence()
    for number in range(fence.REMEMBERED + 10):
        with capture_logs(), guard.around("decide", pod(uid=str(number))):
            raise ValueError

    assert len(guard._told) == fence.REMEMBERED


@pytest.mark.parametrize(
    "error", [errors.Unreachable("x"), errors.StatusError(410), asyncio.CancelledError()]
)
def test_what_is_about_no_object_passes(error: BaseException):
    before = counted()
    with pytest.raises(type(error)), fence.Fence().around("decide", pod()):
        raise error

    assert counted() == before

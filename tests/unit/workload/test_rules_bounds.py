"""What a pod can make the rules do is bounded, whatever is written into it."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sidecar_lifecycle.decide import finished, payload, status_port
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell.shutdown import sources

from integrator_contract.answers import Action
from tests.unit.cases import cases
from tests.unit.workload import pods

PREFIX = "istio-integrator.charmhub.io/"
LISTS = ("wait-for-containers", "ignore-containers")
MANY = 10_000
POLICY = finished.Policy()


@pytest.mark.parametrize("name", LISTS)
@cases(
    ("text", "want"),
    as_long_as_is_read=("a" * payload.LONGEST_LIST, "UnknownContainer"),
    longer=("a" * (payload.LONGEST_LIST + 1), "BadContainerList"),
    as_many_as_are_read=("a," * (payload.MOST_NAMES - 1), "UnknownContainer"),
    more=("a," * payload.MOST_NAMES, "BadContainerList"),
    nothing_but_commas=("," * (payload.MOST_NAMES - 1), ""),
    too_many_commas=("," * payload.MOST_NAMES, "BadContainerList"),
)
def test_list_of_containers_is_read_up_to_a_length_and_else_reported(
    name: str, text: str, want: str
):
    pod = pods.pod(annotations={PREFIX + name: text})
    if want == "BadContainerList":
        decision = finished.finished(pod, POLICY)
        assert (decision.action, decision.reason) == (Action.REPORT, want)
        assert PREFIX + name in decision.message
    else:
        decision = finished.finished(pod, POLICY)
        assert decision.action is Action.STOP
        assert bool(decision.unknown) is bool(want)


@pytest.mark.parametrize(
    "annotation",
    [
        *(PREFIX + name for name in LISTS),
        f"{PREFIX}proxy-shutdown",
        "status.sidecar.istio.io/port",
    ],
)
def test_pod_under_watch_keeps_no_more_of_an_annotation_than_is_read(annotation: str):
    pod = pods.pod(annotations={annotation: "disabled,5" * 25_000})
    before = finished.finished(pod, POLICY)
    sources.compact(pod)

    assert sum(map(sys.getsizeof, pod.metadata.annotations.values())) < 5000
    assert finished.finished(pod, POLICY) == before


def test_pod_under_watch_keeps_no_image_of_its_containers():
    pod = pods.pod(init=[pods.container("first")])
    sources.compact(pod)

    assert {each.image for each in (*pod.spec.containers, *pod.spec.initContainers)} == {None}


def test_messages_about_thousands_of_containers_name_a_few():
    others = {f"c{number}": pods.running() for number in range(MANY)}
    waits = finished.finished(pods.pod(others=others), POLICY)  # type: ignore[arg-type]
    ended = {name: pods.ended() for name in others}
    stops = finished.finished(pods.pod(others=ended), POLICY)  # type: ignore[arg-type]

    assert (waits.reason, stops.reason) == ("PayloadRunning", "PayloadFinished")
    assert waits.message.endswith(f"and {MANY - payload.MOST_SAID} more")
    assert len(waits.message) < 500
    assert len(stops.message) < 500


class Counting(str):
    """A name that counts how often it is compared."""

    __slots__ = ()

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counting.compared += 1
        return str.__eq__(self, other)  # type: ignore[no-any-return]


@pytest.mark.parametrize("wait_for", [(), ("main",)], ids=["all", "one-and-the-rest-holds"])
def test_work_of_the_rules_grows_with_the_containers_and_not_with_their_square(
    wait_for: tuple[str, ...],
):
    def compared(count: int) -> int:
        others = {f"c{number}": pods.ended() for number in range(count)}
        pod = pods.pod(others=others)  # type: ignore[arg-type]
        for each in (*pod.spec.containers, *pod.status.containerStatuses):
            each.name = Counting(each.name)
        Counting.compared = 0
        finished.finished(pod, finished.Policy(wait_for_containers=wait_for))
        return Counting.compared

    assert compared(400) < 3 * compared(200)


DIGITS = st.text("0123456789²٣ +-_", max_size=12)


@given(DIGITS | st.integers(0, 10**6).map(str) | st.just("1" * 4301))
def test_status_port_is_a_port_or_nothing(text: str):
    port = status_port.of({"status.sidecar.istio.io/port": text}, POLICY.status_port)

    assert port is None or 0 <= port < 65536
    if text.isascii() and text.isdigit() and len(text) <= 5:
        assert port == (int(text) if int(text) < 65536 else None)


def test_pod_that_is_nested_deep_where_nobody_looks_is_a_pod_like_others():
    text = json.dumps(pods.pod_json())[:-1] + ',"x":' + "[" * 2000 + "]" * 2000 + "}"
    pod = types.decode_json(text.encode(), types.Pod)

    assert finished.finished(pod, POLICY).action is Action.STOP

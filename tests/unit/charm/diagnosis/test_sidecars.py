"""Pods without a sidecar, and with an old one."""

import dataclasses

import pytest

from integrator_contract.answers import Listing, PodAnswer, Summary, Trouble
from istio_integrator.diagnosis.checks import sidecars

SUMMARY = {
    "eligible": 3,
    "in_mesh": 3,
    "converging": 0,
    "proposed": 0,
    "troubles": (),
    "reported": 0,
}

BARE = PodAnswer(
    namespace="a",
    name="bare",
    workload="",
    fixable=False,
    reason="BarePod",
    message="nothing would create it again",
)

LIST = "juju run app/leader list-uninjected"
HELD = Trouble("minio", "StillNoSidecar", "again none")
HANGS = Trouble("Deployment/web", "ReplacementHangs", "web-1 cannot start", "web-1")
DESCRIBE = "kubectl -n m describe pod web-1"


def judged(*pods, old=(), **summary):
    answer = Listing(contract="", pods=tuple(pods), summary=Summary(**{**SUMMARY, **summary}))
    return list(sidecars.judge(answer, old, application="app", model="m"))


def test_model_that_is_whole_is_one_line():
    (found,) = judged()
    assert (found.level.value, found.seen) == ("✓", "3/3 pods in mesh")


def test_pods_are_named_with_what_keeps_the_sidecar_from_them():
    found = judged(
        BARE,
        dataclasses.replace(BARE, name="b"),
        dataclasses.replace(BARE, name="c", message="it is a Job"),
    )
    assert [each.seen for each in found] == [
        "no sidecar: a/bare, a/b: nothing would create it again",
        "no sidecar: a/c: it is a Job",
    ]


def test_pods_are_named_that_have_a_sidecar_and_are_wrong():
    pod = dataclasses.replace(
        BARE, reason="WrongOrder", message="its first container is not charm"
    )
    assert [each.seen for each in judged(pod)] == ["a/bare: its first container is not charm"]


@pytest.mark.parametrize(
    ("summary", "level", "command"),
    [
        pytest.param(
            {"in_mesh": 1, "proposed": 2}, "✗", "juju run app/leader restart-uninjected", id="ask"
        ),
        pytest.param({"in_mesh": 2, "converging": 1}, "!", LIST, id="converging"),
        pytest.param({"in_mesh": 2, "troubles": (HELD,)}, "✗", LIST, id="held"),
        pytest.param({"in_mesh": 2, "troubles": (HANGS,)}, "✗", DESCRIBE, id="hangs"),
    ],
)
def test_what_the_status_says_is_said(summary, level, command):
    found = judged(**summary)[0]
    assert (found.level.value, found.next) == (level, command)


def test_old_proxies_are_named_by_what_is_old():
    rows = [dataclasses.replace(BARE, name="x", message="revision 1-30")]
    (found,) = judged(old=rows)
    assert (found.level.value, found.seen) == ("!", "old proxy: a/x: revision 1-30")
    assert found.next == "juju run app/leader restart-stale"

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from juju_standin.agent import resolver
from juju_standin.agent.hook import Hook
from juju_standin.agent.resolver import LocalRelation, LocalState, Moment, RemoteRelation
from tests.unit.cases import cases, row

READY = Moment(unit="a/0", relation_order=("1",))


def remote_relation(members=(), *, version=0, life="alive", is_peer=False):
    return RemoteRelation("ep", "b", is_peer, life, dict(members), version)


def remote(relation=None, **values):
    relations = {"1": relation} if relation else {}
    return resolver.RemoteState(
        **{"leader": True, "config_hash": "c", "relations": relations, **values}
    )


def local(relation=None, **values):
    relations = {"1": relation} if relation else {}
    normal = {"installed": True, "started": True, "leader": True, "config_hash": "c"}
    return LocalState(**{**normal, "relations": relations, **values})


def known(**values):
    return LocalRelation(**{"endpoint": "ep", "application": "b", "created": True, **values})


PENDING = Hook(kind="start")
NOTICE = Hook(kind="pebble-custom-notice", workload="w")


IN_ERROR = local(pending=PENDING, failed=True)
STOPPED = local(started=False, stopped=True)
DYING, OPTION, ACTION = remote(life="dying"), remote(config_hash="d"), remote(actions=("7",))
LEADS, RUNS = Hook(kind="leader-elected"), resolver.RunAction("7")


@cases(
    ("here", "there", "moment", "want"),
    {"here": local(), "there": remote(), "moment": {}},
    new_unit=row(here=LocalState(), want=Hook(kind="install")),
    dies_before_it_was_installed=row(
        here=LocalState(), there=DYING, want=resolver.Finish(dead=True)
    ),
    agent_restarted=row(here=local(started=False), want=Hook(kind="start")),
    leadership_before_configuration=row(here=local(leader=False), there=OPTION, want=LEADS),
    leadership_lost=row(there=remote(leader=False), want=resolver.Resign()),
    action_before_configuration=row(there=remote(actions=("7",), config_hash="d"), want=RUNS),
    action_while_in_error=row(here=IN_ERROR, there=ACTION, want=RUNS),
    no_action_before_a_queued_hook=row(here=local(pending=PENDING), there=ACTION, want=PENDING),
    no_option_while_in_error=row(
        here=IN_ERROR, there=OPTION, moment={"retry_due": False}, want=None
    ),
    pod_goes=row(there=OPTION, moment={"shutting_down": True}, want=Hook(kind="stop")),
    pod_goes_and_is_stopped=row(
        here=STOPPED, moment={"shutting_down": True}, want=resolver.Finish(dead=False)
    ),
    notice_before_a_relation_is_joined=row(
        here=local(known()),
        there=remote(remote_relation({"b/0": 1})),
        moment={"workload_hook": NOTICE},
        want=NOTICE,
    ),
    idle=row(moment={"update_status_due": True}, want=Hook(kind="update-status")),
    dying=row(there=DYING, want=Hook(kind="stop")),
    dying_and_stopped=row(here=STOPPED, there=DYING, want=Hook(kind="remove")),
    dying_in_a_peer_relation=row(
        here=local(known(is_peer=True)),
        there=remote(remote_relation(is_peer=True), life="dying"),
        want=Hook(kind="stop"),
    ),
)
def test_next_step_is_the_most_urgent(here, there, moment, want):
    assert resolver.next_step(here, there, dataclasses.replace(READY, **moment)) == want


worlds = st.builds(
    lambda members, version, life: remote_relation(members.items(), version=version, life=life),
    st.dictionaries(st.sampled_from(["b/0", "b/1", "b/2"]), st.integers(1, 3)),
    st.integers(0, 2),
    st.sampled_from(["alive", "alive", "alive", "dying"]),
)


@given(st.lists(worlds, min_size=1, max_size=12))
def test_relation_hooks_keep_jujus_grammar_whatever_the_other_side_does(history):
    state = local(known(created=False))
    hooks = []
    # One step per world, since the other side moves on meanwhile; at the end as many as it takes.
    end = dataclasses.replace(history[-1], life="dying")
    for world, steps in [*((world, 1) for world in history), (end, 12)]:
        for _ in range(steps):
            step = resolver.next_step(state, remote(world), READY)
            if not isinstance(step, Hook):
                break
            hooks.append(step)
            resolver.after_success(state, step, "c")
    kinds = [hook.kind.removeprefix("relation-") for hook in hooks]
    present = set()
    for position, (kind, hook) in enumerate(zip(kinds, hooks, strict=True)):
        unit = hook.remote_unit
        if kind == "joined":
            assert unit not in present
            present.add(unit)
            assert (kinds[position + 1], hooks[position + 1].remote_unit) == ("changed", unit)
        elif kind == "departed":
            present.remove(unit)
        elif kind == "changed" and unit:
            assert unit in present
        elif kind == "broken":
            assert not present
            assert position == len(kinds) - 1
    assert kinds.count("created") <= 1
    assert not state.relations or not state.relations["1"].created


@pytest.mark.parametrize("pending", [None, Hook(kind="config-changed")])
@pytest.mark.parametrize("has_charm", [False, True], ids=["new pod", "agent restarted"])
def test_agent_start_leads_to_start_and_to_upgrade_only_without_the_charm(pending, has_charm):
    state = local(pending=pending, failed=pending is not None)
    resolver.after_agent_start(state, has_charm=has_charm)
    seen = []
    while step := resolver.next_step(state, remote(), READY):
        assert isinstance(step, Hook)
        seen.append(step.kind)
        resolver.after_success(state, step, "c")
    if has_charm:
        assert seen == (["config-changed", "start"] if pending else ["start"])
    else:
        assert seen == ["upgrade-charm", "config-changed", "start"]

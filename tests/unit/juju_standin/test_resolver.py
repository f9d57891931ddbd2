import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from juju_standin.agent import resolver
from juju_standin.agent.hook import Hook
from juju_standin.agent.resolver import LocalRelation, LocalState, Moment, RemoteRelation

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
    return LocalState(
        **{
            "installed": True,
            "started": True,
            "leader": True,
            "config_hash": "c",
            "relations": relations,
            **values,
        }
    )


def known(**values):
    return LocalRelation(**{"endpoint": "ep", "application": "b", "created": True, **values})


PENDING = Hook(kind="start")
NOTICE = Hook(kind="pebble-custom-notice", workload="w")


@pytest.mark.parametrize(
    ("here", "there", "moment", "want"),
    [
        pytest.param(LocalState(), remote(), READY, Hook(kind="install"), id="new unit"),
        pytest.param(
            LocalState(), remote(life="dying"), READY, resolver.Finish(dead=True),
            id="dies before it was installed",
        ),
        pytest.param(
            local(started=False), remote(), READY, Hook(kind="start"), id="agent restarted"
        ),
        pytest.param(
            local(leader=False), remote(config_hash="d"), READY, Hook(kind="leader-elected"),
            id="leadership before configuration",
        ),
        pytest.param(
            local(), remote(leader=False), READY, resolver.Resign(), id="leadership lost"
        ),
        pytest.param(
            local(), remote(actions=("7",), config_hash="d"), READY, resolver.RunAction("7"),
            id="action before configuration",
        ),
        pytest.param(
            local(pending=PENDING, failed=True), remote(actions=("7",)), READY,
            resolver.RunAction("7"), id="action while in error",
        ),
        pytest.param(
            local(pending=PENDING), remote(actions=("7",)), READY, PENDING,
            id="no action before a queued hook",
        ),
        pytest.param(
            local(pending=PENDING, failed=True), remote(config_hash="d"),
            dataclasses.replace(READY, retry_due=False), None, id="nothing else while in error",
        ),
        pytest.param(
            local(), remote(config_hash="d"), dataclasses.replace(READY, shutting_down=True),
            Hook(kind="stop"), id="pod goes",
        ),
        pytest.param(
            local(started=False, stopped=True), remote(),
            dataclasses.replace(READY, shutting_down=True), resolver.Finish(dead=False),
            id="pod goes, stopped",
        ),
        pytest.param(
            local(known()), remote(remote_relation({"b/0": 1})),
            dataclasses.replace(READY, workload_hook=NOTICE), NOTICE,
            id="notice before a relation's joined",
        ),
        pytest.param(
            local(), remote(), dataclasses.replace(READY, update_status_due=True),
            Hook(kind="update-status"), id="idle",
        ),
        pytest.param(local(), remote(life="dying"), READY, Hook(kind="stop"), id="dying"),
        pytest.param(
            local(started=False, stopped=True), remote(life="dying"), READY,
            Hook(kind="remove"), id="dying, stopped",
        ),
        pytest.param(
            local(known(is_peer=True)), remote(remote_relation(is_peer=True), life="dying"), READY,
            Hook(kind="stop"), id="a peer relation is kept until the unit is dead",
        ),
    ],
)  # fmt: skip
def test_next_step_is_the_most_urgent(here, there, moment, want):
    assert resolver.next_step(here, there, moment) == want


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

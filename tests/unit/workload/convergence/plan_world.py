"""Builders for the plan's input, and readers of its decisions."""

from sidecar_lifecycle.decide.convergence import choice, facts, memory, plan

from integrator_contract.reasons import Reason

NOW = 1_000_000.0


PROVEN = ("sidecar",)
"""The first replacement of the model went well."""


def crashing(container="main"):
    return (facts.Ailment(container, "CrashLoopBackOff", "exit code 1 (Error)", hangs=True),)


def replica(name="a-0", *, in_mesh=False, crash_looping=False, **values):
    defaults = {
        "fault": "" if in_mesh else "missing",
        "ailments": crashing() if crash_looping else (),
        "unready_since": NOW - 300,
        "uid": f"uid-{name}",
        "created": NOW - 600,
        "workload": f"StatefulSet/{name.rsplit('-', 1)[0]}",
        "ready_since": NOW - 300,
        "revision": "r1",
    }
    return facts.Replica(name=name, **{**defaults, **values})


def snapshot(*replicas, desired=None, trials=(), **values):
    counts = {}
    for each in replicas:
        counts[each.workload] = counts.get(each.workload, 0) + 1
    seen = {
        "replicas": replicas,
        "desired": {**counts, **(desired or {})},
        "fingerprint": "f",
        "mesh": "sidecar",
        "is_served": True,
        "trials": {
            workload: facts.Trial(
                reason=why and Reason(why), message="why" if why else "", uid=uid, at=NOW
            )
            for workload, why, uid in trials
        },
    }
    return seen | values


def decide(shot, remembered=None, *, mode="auto", now=NOW, max_unavailable="2"):
    remembered = remembered or memory.Memory(proven=PROVEN)
    options = {"mode": mode, "now": now, "max_unavailable": max_unavailable}
    return choice.decide(plan.Look(**shot, memory=remembered, **options))


def injecting(*workloads):
    return [(each, None, "") for each in workloads]


def look(*pods, remembered=None, trials=None, desired=None, ordered=(), **options):
    """Decide about pods whose replacements would be right, unless `trials` says otherwise."""
    trials = injecting(*(each.workload for each in pods)) if trials is None else trials
    shot = snapshot(*pods, desired=desired, trials=trials, ordered=frozenset(ordered))
    return decide(shot, remembered, **options)


def evicted(decided):
    return [each.name for each in decided.evict]


def asked(decided):
    return [each.name for each in decided.ask]


def reasons(decided):
    return {row.name: row.reason for row in decided.rows}


def a_round(**values):
    defaults = {
        "uid": "uid-a-0",
        "known": ("uid-a-0",),
        "was_ready": True,
        "ready_before": 1,
        "since": NOW - 5,
        "fingerprint": "f",
    }
    return memory.Round(**{**defaults, **values})


def remembering(**values):
    return memory.Memory(rounds={"StatefulSet/a": a_round(**values)}, proven=PROVEN)


def replacement(**values):
    return replica(
        **{"uid": "new", "in_mesh": True, "created": NOW - 3, "unready_since": NOW - 3, **values}
    )


def held(**values):
    return memory.Memory(holds={"StatefulSet/a": a_hold(**values)}, proven=PROVEN)


def a_hold(**values):
    hold = {"reason": "StillNoSidecar", "message": "m", "since": NOW - 5, "revision": "r1"}
    return memory.Hold(**{**hold, "fingerprint": "f", **values})


def a_budget(until=NOW + 7):
    return memory.Hold(reason="DisruptionBudget", message="m", since=NOW - 5, until=until)

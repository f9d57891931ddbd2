"""The plan: the pods to replace next, and why other pods wait.

`review` updates rounds and holds in an `EvictionPlan`, then `choice` selects pods. From outside,
`choice.decide` turns a `Look` into `Moves`; both are frozen.
"""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from integrator_contract import answers, service
from integrator_contract.reasons import Reason

from .facts import Replica, Trial
from .memory import Hold, Memory, Round

# In seconds.
READY_FOR = 60.0
"""A pod that became Ready more recently may still be initializing."""
UNREADY_FOR = 600.0
"""A pod that is not Ready for this long is not expected to become Ready."""
FIRST_STAYS = 10.0
"""The first replacement has to be Ready for this long, to detect a late crash."""
TRIAL_TTL = 5.0
"""How long the result of a dry run is valid."""
EVICTION_GRACE = 30.0
"""An eviction with an unknown result takes effect within this time, or did not happen."""
LONG_WAIT = 600.0
"""After this time a replacement that is not Ready, or another wait, is a problem."""
TRIAL_RETRY, SKIPPED_RETRY = 30.0, 600.0
"""Delays before another trial of a replacement that would not be right, or that the injector
skips."""

Wait = tuple[str, str]
"""A reason and a message."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """The present model, the memory and the settings."""

    replicas: tuple[Replica, ...]
    desired: Mapping[str, int]
    """Desired replicas of each workload; deleted workloads are absent."""
    ordered: frozenset[str] = frozenset()
    """StatefulSets that create a pod only while each lower ordinal is Ready."""
    fingerprint: str
    """Digest of the settings that decide injection in this namespace."""
    mesh: str
    """The data plane and the revision, which the first replacement proves."""
    is_served: bool
    """Whether istiod has written its root certificate into the namespace."""
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    """Workloads that lack a pod because the API server rejects it, with its message."""
    trials: Mapping[str, Trial]
    """The last trial of each workload."""
    memory: Memory
    """The memory as it is stored."""
    mode: service.RestartPods
    max_unavailable: str
    """Workloads that may have a pod replaced at the same time: a number or a percentage."""
    now: float
    """Seconds since the epoch."""

    @functools.cached_property
    def _pods(self) -> dict[str, list[Replica]]:
        found: dict[str, list[Replica]] = {}
        for replica in self.replicas:
            found.setdefault(replica.workload, []).append(replica)
        return found

    def list_pods(self, workload: str) -> Sequence[Replica]:
        """Return all pods of a workload, terminating ones included."""
        return self._pods.get(workload, ())

    def list_live_pods(self, workload: str) -> list[Replica]:
        """Return the pods of a workload that are not terminating."""
        return [each for each in self.list_pods(workload) if not each.terminating]

    def count_ready(self, workload: str) -> int:
        """Count the Ready pods of a workload."""
        return sum(each.ready for each in self.list_pods(workload))

    def lacks_pods(self, workload: str) -> bool:
        """Tell whether a workload has fewer live pods than it should have."""
        return len(self.list_live_pods(workload)) < self.desired.get(workload, 0)

    def find_unready(self, workload: str) -> Replica | None:
        """Return the workload's first pod that is not Ready, if any."""
        pods = (each for each in self.list_live_pods(workload) if not each.ready)
        return min(pods, key=lambda each: (each.ordinal, each.name), default=None)

    def find_unready_predecessor(self, workload: str, ordinal: float = math.inf) -> str:
        """Return the unready pod before which a StatefulSet does not create this ordinal."""
        first = self.find_unready(workload) if workload in self.ordered else None
        return first.name if first is not None and first.ordinal < ordinal else ""

    def describe_missing(self, workload: str) -> str:
        """Describe why a workload lacks pods."""
        if refused := self.refused.get(workload):
            return f"a new pod of {workload} is refused: {refused}"
        message = (
            f"{workload} has {len(self.list_live_pods(workload))} of {self.desired[workload]} pods"
        )
        first = self.find_unready_predecessor(workload)
        return f"{message} and creates no other before {first} is Ready" if first else message

    def find_terminating(self, workload: str) -> Replica | None:
        """Return the pod of a workload that terminates last, if any."""
        pods = [each for each in self.list_pods(workload) if each.terminating]
        return max(pods, key=lambda each: each.ends_by, default=None)

    def describe_termination(self, replica: Replica) -> str:
        """Describe a terminating pod, with the end of its grace period."""
        if self.now >= replica.ends_by:
            return f"{replica.name} is still terminating"
        end = datetime.datetime.fromtimestamp(replica.ends_by, datetime.UTC)
        return f"{replica.name} is terminating, with a grace period until {end:%H:%M} UTC"


@dataclass(frozen=True, kw_only=True)
class Moves:
    """The decisions about a model, and the reason why each other pod waits."""

    look: Look
    ask: tuple[Replica, ...]
    """Pods whose replacement is to be tried by dry run."""
    evict: tuple[Replica, ...]
    held: tuple[Replica, ...]
    """Pods whose workloads are held from now on, with the reason."""
    memory: Memory
    """The next memory, which is stored before a pod is evicted."""
    waits: Mapping[str, Wait]
    """Why a pod, by UID, is not replaced now."""
    troubles: tuple[answers.Trouble, ...]
    """Troubles of unfinished replacements and of the whole model."""

    def without_round(self, workload: str, hold: Hold | None) -> Moves:
        """Return the moves after the API server rejected the eviction of a workload's pod."""
        memory, holds = self.memory, {} if hold is None else {workload: hold}
        rounds = {key: each for key, each in memory.rounds.items() if key != workload}
        memory = msgspec.structs.replace(memory, rounds=rounds, holds=memory.holds | holds)
        return replace(self, memory=memory)

    @property
    def rows(self) -> list[Replica]:
        """The pods that should be replaced, each with the reason why it waits."""
        found: list[Replica] = []
        for each in self.look.replicas:
            if each.faulty:
                wait = self.waits.get(each.uid) if each.fixable else None
                reason, message = wait or (each.reason, each.message)
                if wait and each.fault != "missing":
                    # Such a pod has a sidecar, and its own reason tells so.
                    reason, message = each.reason, f"{each.message}; {message}"
                found.append(replace(each, reason=reason, message=message))
        return found

    @property
    def summary(self) -> answers.Summary:
        """The model's progress into the mesh."""
        rows = self.rows
        ours = [each for each in rows if each.fixable and each.wanted]
        in_mesh = sum(each.in_mesh and not self._is_coming(each) for each in self.look.replicas)
        asked = [each for each in ours if self.waits.get(each.uid, ("",))[0] != Reason.NOT_ASKED]
        lasting = {each.workload for each in self.troubles if each.workload in self.memory.waiting}
        held = sum(each.workload in {*self.memory.holds, *lasting} for each in asked)
        stuck = {each.workload for each in self.troubles if not each.passing}
        coming = {workload: self._count_coming(workload) for workload in self.memory.rounds}
        on_the_way = sum(coming.values())
        overdue = sum(count for workload, count in coming.items() if workload in stuck)
        return answers.Summary(
            eligible=in_mesh + on_the_way + len(ours),
            in_mesh=in_mesh,
            converging=len(asked) - held + on_the_way - overdue,
            proposed=len(ours) - len(asked),
            troubles=self._list_troubles({each.workload for each in rows if each.fixable}),
            reported=sum(not each.fixable and each.wanted for each in rows),
            unwanted=sum(not each.wanted for each in rows),
            stale=sum(bool(each.stale) and not each.terminating for each in self.look.replicas),
        )

    def _is_coming(self, replica: Replica) -> bool:
        """Tell whether the pod replaces an evicted one and is not Ready yet."""
        current = self.memory.rounds.get(replica.workload)
        is_new = current is not None and replica.uid not in current.known
        return is_new and replica.in_mesh and not replica.ready

    def _count_coming(self, workload: str) -> int:
        """Count a round's replacements that are missing or not Ready yet, without `rows`."""
        return self.look.lacks_pods(workload) + sum(
            map(self._is_coming, self.look.list_live_pods(workload))
        )

    def _list_troubles(self, lacking: set[str]) -> tuple[answers.Trouble, ...]:
        """Return why pods are not replaced, causes that need the operator first."""
        budget = Reason.DISRUPTION_BUDGET.value
        held = [
            answers.Trouble(workload, hold.reason, hold.message, passing=hold.reason == budget)
            for workload, hold in sorted(self.memory.holds.items())
            if workload in lacking
        ]
        return tuple(sorted((*self.troubles, *held), key=lambda each: each.passing))


@dataclass(slots=True)
class EvictionPlan:
    """The decisions while `review` and `choice` make them."""

    look: Look
    rounds: dict[str, Round] = field(init=False)
    """Rounds in progress, by workload."""
    holds: dict[str, Hold] = field(init=False)
    """By workload."""
    proven: set[str] = field(init=False)
    waiting: dict[str, float] = field(default_factory=dict[str, float])
    """Since when workloads wait for a reason that may last."""
    requested: frozenset[str] = frozenset()
    """UIDs of the pods in an operator's request that can still be replaced."""
    waits: dict[str, Wait] = field(default_factory=dict[str, Wait])
    ask: list[Replica] = field(default_factory=list[Replica])
    evict: list[Replica] = field(default_factory=list[Replica])
    held: list[Replica] = field(default_factory=list[Replica])
    troubles: list[answers.Trouble] = field(default_factory=list[answers.Trouble])

    def __post_init__(self) -> None:
        self.rounds = dict(self.look.memory.rounds)
        self.holds = dict(self.look.memory.holds)
        self.proven = set(self.look.memory.proven)

    def list_replacements(self, workload: str) -> list[Replica]:
        """Return the live pods that were created since the workload's round began."""
        known = self.rounds[workload].known
        return [each for each in self.look.list_live_pods(workload) if each.uid not in known]

    def hold_workload(
        self, replica: Replica, reason: Reason, message: str, *, is_lasting: bool = False
    ) -> None:
        """Hold the pod's workload for a time.

        A lasting hold, as after an eviction, ends when the pod's template or the mesh changes.
        """
        is_skipped = reason is Reason.INJECTOR_SKIPS
        until = self.look.now + (SKIPPED_RETRY if is_skipped else TRIAL_RETRY)
        self.holds[replica.workload] = Hold(
            reason=reason,
            message=message,
            since=self.look.now,
            until=None if is_lasting else until,
            revision=replica.revision if is_lasting or is_skipped else "",
            fingerprint=self.look.fingerprint,
        )
        if is_lasting or is_skipped:
            self.held.append(replace(replica, reason=reason, message=message))

    def make_moves(self) -> Moves:
        """Return the decisions."""
        request = self.look.memory.request
        if request is not None:
            left = tuple(uid for uid in request.uids if uid in self.requested)
            request = msgspec.structs.replace(request, uids=left) if left else None
        current = f"request {request.id}" if request else ""
        requests = {each for each in self.proven if each.startswith("request ")} - {current}
        memory = Memory(
            rounds=self.rounds,
            holds=self.holds,
            proven=tuple(sorted(self.proven - requests)),
            request=request,
            answered=self.look.memory.answered,
            waiting=self.waiting,
        )
        return Moves(
            look=self.look,
            ask=tuple(self.ask),
            evict=tuple(self.evict),
            held=tuple(self.held),
            memory=memory,
            waits=self.waits,
            troubles=tuple(self.troubles),
        )

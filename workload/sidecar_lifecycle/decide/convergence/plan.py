"""What to do next about pods that are to be replaced: a pure function of what is known."""

from __future__ import annotations

from integrator_contract import service

from .choice import choose
from .facts import Snapshot
from .ledger import Ledger
from .memory import Memory
from .outcome import Limits, Plan
from .review import review
from .summary import summarize


def plan(
    snapshot: Snapshot,
    memory: Memory,
    *,
    mode: service.RestartPods,
    limits: Limits,
    now: float,
) -> Plan:
    """Decide what to do next."""
    ledger = Ledger(snapshot, memory, mode, limits, now)
    review(ledger)
    choose(ledger)
    return summarize(ledger)

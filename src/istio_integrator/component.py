"""The parts of the charm that make the cluster match the facts of a hook."""

from __future__ import annotations

from collections.abc import Sequence

from integrator_contract import charm_facts
from istio_integrator.facts import Facts
from istio_integrator.messages import Message


class Component:
    """A part of the charm.

    What it needs of other components are values of its constructor. Its results are attributes,
    which have a value also after an error.
    """

    name: charm_facts.Part
    """The metrics label of its problems."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._situation = facts.situation

    def reconcile(self) -> Sequence[Message]:
        """Make the cluster match the facts, and return messages; a second call writes nothing.

        A note is one phrase of the unit's active status. Any other message describes a problem
        and its fix.
        """
        raise NotImplementedError

    def remove(self) -> None:
        """Delete its objects, by the Situation alone: a fact may be unreadable."""

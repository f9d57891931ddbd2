"""The checks of a diagnosis: functions under `@registry.check(...)` in the modules of `checks/`.

The action, its report and docs/reference/checks.md use this registry.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any

from istio_integrator import error_messages
from istio_integrator.facts import Facts
from istio_integrator.kube import errors
from istio_integrator.messages import LOG, Message, Severity, Template
from istio_integrator.situation.situation import Situation

Find = Callable[[Facts], Iterable[Message]]


@dataclasses.dataclass(frozen=True)
class Check:
    """A check of a diagnosis, with its function."""

    name: str
    """The name at the start of its lines."""
    place: int
    """Its order in a report, which follows the path of a request."""
    find: Find
    """The function; docs/reference/checks.md has its docstring."""
    feeds_status: bool = False
    """Whether the leader runs it at every event, where a broken result blocks the unit."""
    symptoms: tuple[str, ...] = ()
    """Anchors of docs/how-to/symptoms.md."""
    unfelt: str = ""
    """Why it has no symptom."""
    look: str = LOG
    """The command for messages that have none."""

    def run(self, facts: Facts) -> list[Message]:
        """Return its messages; if the cluster does not answer, the last one is the reason."""
        situation = facts.situation
        look = self.look.format(application=situation.application, model=situation.model)
        find = functools.partial(self.find, facts)
        return collect_messages(self.name, find, situation, look=look, symptoms=self.symptoms)


def collect_messages(
    name: str,
    find: Callable[[], Iterable[Message]],
    situation: Situation,
    *,
    look: str,
    symptoms: tuple[str, ...] = (),
) -> list[Message]:
    """Return messages as lines of a report; after an error the last one is the reason.

    `name` is at the start of the lines. `look` is the command for messages that have none.
    """
    found: list[Message] = []
    try:
        for each in find():
            found.append(each)  # noqa: PERF402 - keep the messages before an error
    except errors.ForbiddenError as error:
        right = error_messages.find_missing_right(error) or error.message
        found.append(Template.CHECK_FORBIDDEN(right=right, application=situation.application))
    except errors.CharmError as error:
        found.append(Template.CHECK_FAILED(problem=error, application=situation.application))
    return [
        dataclasses.replace(
            each,
            check=name,
            symptoms=each.symptoms or symptoms,
            otherwise="" if each.severity is Severity.NOTE else each.otherwise or look,
        )
        for each in found
    ]


CHECKS: dict[str, Check] = {}


def check(name: str, **described: Any) -> Callable[[Find], Find]:
    """Register a function as a check, with the fields of `Check`."""

    def register(find: Find) -> Find:
        CHECKS[name] = Check(name=name, find=find, **described)
        return find

    return register

"""The checks of a diagnosis: functions under `@registry.check(...)` in the modules of `checks/`.

The action, its report and docs/reference/checks.md have them from here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from istio_integrator import error_messages
from istio_integrator.kube import errors
from istio_integrator.messages import LOG, Message, Said, Severity

from .facts import Facts

Find = Callable[[Facts], Iterable[Message]]


@dataclasses.dataclass(frozen=True)
class Check:
    """A question of a diagnosis, and the function that answers it."""

    name: str
    """The first word of its lines."""
    place: int
    """Its place in a report: a request meets earlier what has a lower one."""
    find: Find
    """The function; docs/reference/checks.md has its docstring."""
    feeds_status: bool = False
    """Whether the leader runs it at every event, so that a broken result blocks the unit."""
    symptoms: tuple[str, ...] = ()
    """Anchors of docs/how-to/symptoms.md."""
    unfelt: str = ""
    """Why there is none."""
    look: str = LOG
    """The command that is shown where a message has none."""

    def run(self, facts: Facts) -> list[Message]:
        """Return its messages; a cluster that does not answer ends them with the reason."""
        application = facts.application
        found: list[Message] = []
        try:
            for each in self.find(facts):
                found.append(each)  # noqa: PERF402 - what was found before an error counts
        except errors.ForbiddenError as error:
            right = error_messages.missing_right(error) or error.message
            found.append(Said.CHECK_FORBIDDEN(right=right, application=application))
        except errors.CharmError as error:
            found.append(Said.CHECK_FAILED(problem=error, application=application))
        look = self.look.format(application=application, model=facts.model)
        return [
            dataclasses.replace(
                each,
                check=self.name,
                symptoms=each.symptoms or self.symptoms,
                otherwise="" if each.severity is Severity.NOTE else each.otherwise or look,
            )
            for each in found
        ]


CHECKS: dict[str, Check] = {}


def check(name: str, **described: Any) -> Callable[[Find], Find]:
    """Make a function a check, described by the fields of `Check`."""

    def known(find: Find) -> Find:
        CHECKS[name] = Check(name=name, find=find, **described)
        return find

    return known

"""The workload's answers about pods, and the statuses that their counts come to; pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeVar, cast

import ops
import pydantic

from integrator_contract.answers import PodAnswer, ProxyAnswer, Summary, Trouble
from integrator_contract.reasons import Reason
from istio_integrator import statuses
from istio_integrator.kube import documents, errors

_T = TypeVar("_T")
_PODS = pydantic.TypeAdapter(list[PodAnswer])
_PROXIES = pydantic.TypeAdapter(list[ProxyAnswer])
_SUMMARY = pydantic.TypeAdapter(Summary)
_LONGEST_ERROR = 500
"""Characters of what is wrong with an answer, which quotes it."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """The workload's answer about pods without the sidecar that they should have."""

    pods: list[PodAnswer]
    summary: Summary


def parse(output: str) -> Answer:
    """Read what `uninjected --output json` printed.

    Raises:
        LifecycleError: It is not what the command line promises.
    """
    *rows, last = _lines(output) or [None]
    summary = cast("dict[str, Any]", last).get("summary") if isinstance(last, dict) else None
    return Answer(_read(_PODS, rows), _read(_SUMMARY, summary))


def of_pods(output: str) -> list[PodAnswer]:
    """Read what `uninjected --restart --output json` printed.

    Raises:
        LifecycleError: It is not what the command line promises.
    """
    return _read(_PODS, _lines(output))


def of_proxies(output: str) -> list[ProxyAnswer]:
    """Read what `explain` or `stop` printed.

    Raises:
        LifecycleError: It is not what the command line promises.
    """
    return _read(_PROXIES, _lines(output))


def _lines(output: str) -> list[Any]:
    """Read what the workload printed, one document a line."""
    longest = documents.LONGEST_OBJECT
    lines = [line for line in output.split("\n") if line.strip()]
    try:
        return [documents.read_json(line, longest=longest) for line in lines]
    except documents.DocumentError as error:
        raise errors.LifecycleError(f"the workload's answer {error}") from error


def _read(adapter: pydantic.TypeAdapter[_T], value: object) -> _T:
    try:
        return adapter.validate_python(value)
    except ValueError as error:
        raise errors.LifecycleError(
            f"the workload's answer is not understood: {error!r}"[:_LONGEST_ERROR]
        ) from error


def progress(summary: Summary, *, application: str) -> Iterable[ops.StatusBase]:
    """Turn the workload's counts into what the operator sees."""
    counts = f"{summary.in_mesh}/{summary.eligible} pods in mesh"
    for guarded in summary.guarded[:1]:
        more = f" (and {len(summary.guarded) - 1} more)" if len(summary.guarded) > 1 else ""
        yield ops.BlockedStatus(f"{guarded.workload}: {guarded.message}{more}")
    for paused in summary.paused[:1]:
        yield _pause(paused, counts, application)
    if summary.converging:
        left = _left(summary.minutes_left)
        yield ops.MaintenanceStatus(f"{counts}, {summary.converging} being replaced{left}")
    elif summary.proposed:
        why = ", pods predate this charm" if summary.settled_before_us else ""
        restart = f"juju run {application}/leader restart-uninjected"
        yield ops.BlockedStatus(f"{counts}{why}; run: {restart}")
    elif summary.in_mesh < summary.eligible and not (summary.guarded or summary.paused):
        yield ops.MaintenanceStatus(f"{counts}, the others are being brought in")
    outside = f", {summary.reported} need a restart by hand" if summary.reported else ""
    old = f", {summary.stale} with an old proxy: restart-stale" if summary.stale else ""
    yield ops.ActiveStatus(f"{counts}{outside}{old}")


def _left(minutes: int) -> str:
    if not minutes:
        return ""
    hours, rest = divmod(minutes, 60)
    time = f"{hours} h {rest} min" if hours else f"{rest} min"
    return f", about {time} left"


def _pause(paused: Trouble, counts: str, application: str) -> ops.StatusBase:
    if paused.reason == Reason.FORBIDDEN.value:
        error = errors.ForbiddenError(403, paused.message)
        return statuses.of_error(error, application=application)
    return ops.WaitingStatus(f"{counts}, {paused.workload} waits: {paused.message}")

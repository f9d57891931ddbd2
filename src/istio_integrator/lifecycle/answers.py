"""The workload's answers about pods, and the statuses that their counts come to; pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar, cast

import pydantic

from integrator_contract import bounded, schema, seen
from integrator_contract.answers import Listing, ProxyAnswer, Stopped, Summary, Trouble
from integrator_contract.reasons import Reason
from istio_integrator import error_messages, texts
from istio_integrator.kube import errors
from istio_integrator.messages import Message, Said

_T = TypeVar("_T")
_LISTING = pydantic.TypeAdapter(Listing)
_GATEWAY = pydantic.TypeAdapter(seen.Answer)
_PROXIES = pydantic.TypeAdapter(list[ProxyAnswer])
_STOPPED = pydantic.TypeAdapter(Stopped)
_LONGEST_ERROR = 500
"""Characters of what is wrong with an answer, which quotes it."""


def of_listing(document: str) -> Listing:
    """Read what the service answered about pods.

    Raises:
        LifecycleError: It is not what the contract promises.
    """
    return _read_answer(_LISTING, document)


def of_gateway(document: str) -> seen.Seen:
    """Read what the service answered about the gateway.

    Raises:
        LifecycleError: It is not what the contract promises.
    """
    return _read_answer(_GATEWAY, document).seen or seen.Seen(of="")


def of_stop(document: str) -> ProxyAnswer:
    """Read what the service answered about a stop.

    Raises:
        LifecycleError: It is not what the contract promises.
    """
    return _read_answer(_STOPPED, document).proxy


def of_proxies(output: str) -> list[ProxyAnswer]:
    """Read what `explain` printed.

    Raises:
        LifecycleError: It is not what the command line promises.
    """
    return _read(_PROXIES, _lines(output))


def _lines(output: str) -> list[Any]:
    """Read what the workload printed, one document a line."""
    return [_parsed(line) for line in output.split("\n") if line.strip()]


def _parsed(document: str) -> Any:
    try:
        return bounded.read_json(document, longest=bounded.LONGEST_OBJECT)
    except bounded.DocumentError as error:
        raise errors.LifecycleError(f"the workload's answer {error}") from error


def _read_answer(adapter: pydantic.TypeAdapter[_T], document: str) -> _T:
    value = _parsed(document)
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    said = fields.get("contract")
    if said != schema.SCHEMA:
        raise errors.LifecycleError(f"the workload answers by contract {str(said)[:16]}")
    return _read(adapter, fields)


def _read(adapter: pydantic.TypeAdapter[_T], value: object) -> _T:
    try:
        return adapter.validate_python(value)
    except ValueError as error:
        said = texts.plain(f"the workload's answer is not understood: {error!r}", _LONGEST_ERROR)
        raise errors.LifecycleError(said) from error


def progress(
    summary: Summary, *, application: str, model: str, is_automatic: bool
) -> Iterable[Message]:
    """Turn the workload's counts into what the operator sees.

    Args:
        summary: The counts.
        application: For the commands that statuses name.
        model: The namespace of the pods.
        is_automatic: Whether pods are replaced without anyone asking.
    """
    pods = f"{summary.in_mesh}/{summary.eligible}"
    stop = {"command": f"juju config {application} restart-pods=manual", "more": "this stops it"}
    nothing = {"command": "", "more": ""}
    blocking = [each for each in summary.troubles if not each.passing]
    passing = [each for each in summary.troubles if each.passing]
    for trouble in blocking[:1]:
        yield _blocked(trouble, len(blocking) - 1, application, model)
    for trouble in passing[:1]:
        subject = f"{trouble.workload} waits: " if trouble.workload and not trouble.pod else ""
        hint = stop if trouble.pod and is_automatic else nothing
        yield Said.PODS_WAIT(pods=pods, problem=f"{subject}{trouble.message}", **hint)
    # Juju would show maintenance instead of what is waited for.
    is_starting = any(each.reason == Reason.REPLACEMENT_STARTING.value for each in passing)
    if summary.converging and not is_starting:
        hint = stop if is_automatic else nothing
        yield Said.PODS_BEING_REPLACED(pods=pods, count=summary.converging, **hint)
    elif summary.proposed:
        yield Said.PODS_TO_RESTART(pods=pods, application=application)
    elif summary.in_mesh < summary.eligible and not summary.troubles:
        yield Said.PODS_TO_BE_REPLACED(pods=pods, count=summary.eligible - summary.in_mesh)
    reported = f", {summary.reported} need a restart by hand" if summary.reported else ""
    outside = (
        f", {summary.unwanted} outside the mesh with a sidecar: restart-uninjected"
        if summary.unwanted
        else ""
    )
    old = f", {summary.stale} with an old proxy: restart-stale" if summary.stale else ""
    yield Said.PODS_IN_MESH(pods=pods, details=f"{reported}{outside}{old}")


def _blocked(trouble: Trouble, others: int, application: str, model: str) -> Message:
    """Name what hangs and the command that shows why, or that mends it."""
    if trouble.reason == Reason.FORBIDDEN.value:
        error = errors.ForbiddenError(403, trouble.message)
        return error_messages.of_error(error, application=application)
    command = f"juju run {application}/leader list-uninjected"
    if trouble.reason == Reason.NOT_SERVED.value:
        command = f"kubectl get namespace {model} --show-labels"
    elif trouble.reason == Reason.WRONG_ORDER.value and trouble.pod:
        command = f"juju run {application}/leader restart-uninjected"
    elif trouble.pod:
        command = f"kubectl -n {model} describe pod {trouble.pod}"
    about = f"{trouble.workload}: " if trouble.workload not in trouble.message else ""
    more = f", and {others} more" if others else ""
    return Said.PODS_HANG(problem=f"{about}{trouble.message}{more}", command=command)

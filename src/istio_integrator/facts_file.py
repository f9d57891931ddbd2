"""What a hook has found, handed to the workload to be served with its metrics."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterable

import ops
from cryptography import exceptions, x509

from integrator_contract import charm_facts, seen
from istio_integrator import order
from istio_integrator.lifecycle import settings

logger = logging.getLogger(__name__)


def part_of(step: order.Step) -> charm_facts.Part:
    """Name the part of the charm that takes a step, which is a method of it."""
    _, room, *_ = type(getattr(step, "__self__", step)).__module__.split(".")
    return next(part for part in charm_facts.PARTS if part == room)


def problems(
    part: charm_facts.Part, statuses: Iterable[ops.StatusBase]
) -> list[charm_facts.Problem]:
    """List what is not as it should be, of what a part says."""
    severities: dict[str, charm_facts.Severity] = {each: each for each in charm_facts.SEVERITIES}
    return [
        charm_facts.Problem(part=part, severity=severities[status.name])
        for status in statuses
        if status.name in severities
    ]


def collected(
    problems: Iterable[charm_facts.Problem], all_parts: order.Parts | None
) -> charm_facts.CharmFacts:
    """Put together what one hook has found."""
    if all_parts is None:
        return charm_facts.CharmFacts(looked=time.time(), problems=tuple(problems))
    ingress = all_parts.ingress
    return charm_facts.CharmFacts(
        looked=time.time(),
        problems=tuple(problems),
        gateway_ready=ingress.is_up,
        guard=ingress.decision.word if ingress.is_up is not None else None,
        certificates=(
            *_life("gateway", ingress.certificate.shown),
            *_life("webhook", all_parts.admission.certificate),
        ),
        progress=all_parts.lifecycle.progress,
        old_proxies=all_parts.lifecycle.old_proxies,
    )


def _life(owner: charm_facts.Owner, pem: str) -> Iterable[charm_facts.Certificate]:
    try:
        loaded = x509.load_pem_x509_certificate(pem.encode())
    except (ValueError, exceptions.UnsupportedAlgorithm):
        return
    since, until = loaded.not_valid_before_utc, loaded.not_valid_after_utc
    yield charm_facts.Certificate(
        owner=owner, not_before=since.timestamp(), not_after=until.timestamp()
    )


def write(
    container: ops.Container,
    facts: charm_facts.CharmFacts,
    expected: seen.Expectation | None = None,
) -> None:
    """Write them into the settings file; what can't be written now, the next hook writes.

    Args:
        container: The workload's.
        facts: What the hook has found.
        expected: What the gateway should have; None leaves it as it was told while the model is
            to be reached.
    """
    told = settings.read(container)
    if told is None:
        return
    expected = expected or (told.expected if told.gateway else None)
    made = dataclasses.replace(told, facts=facts, expected=expected)
    try:
        settings.write(container, made, told)
    except (ops.pebble.Error, TimeoutError) as error:
        logger.warning("What this hook found is not in the metrics: %s", error)

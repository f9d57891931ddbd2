"""Results of a hook, written into the workload's settings and served as metrics."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterable

import ops
from cryptography import exceptions, x509

from integrator_contract import charm_facts as contract
from integrator_contract import seen
from istio_integrator import order
from istio_integrator.kube import errors
from istio_integrator.lifecycle import settings
from istio_integrator.messages import Message

logger = logging.getLogger(__name__)


def problems(part: contract.Part, messages: Iterable[Message]) -> list[contract.Problem]:
    """List the problems among a part's messages."""
    severities: dict[str, contract.Severity] = {each: each for each in contract.SEVERITIES}
    return [
        contract.Problem(part=part, severity=severities[message.severity.value])
        for message in messages
        if message.severity.value in severities
    ]


def collected(
    problems: Iterable[contract.Problem], all_parts: order.Parts | None
) -> contract.CharmFacts:
    """Collect the results of one hook."""
    if all_parts is None:
        return contract.CharmFacts(looked=time.time(), problems=tuple(problems))
    ingress = all_parts.ingress
    return contract.CharmFacts(
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


def _life(owner: contract.Owner, pem: str) -> Iterable[contract.Certificate]:
    try:
        loaded = x509.load_pem_x509_certificate(pem.encode())
    except (ValueError, exceptions.UnsupportedAlgorithm):
        return
    since, until = loaded.not_valid_before_utc, loaded.not_valid_after_utc
    yield contract.Certificate(
        owner=owner, not_before=since.timestamp(), not_after=until.timestamp()
    )


def write(
    container: ops.Container,
    facts: contract.CharmFacts,
    expected: seen.Expectation | None = None,
) -> None:
    """Write the results into the settings file; if that fails, the next hook writes them.

    Without a new expectation, the file keeps the last one while the model has an ingress.
    """
    told = settings.read(container)
    if told is None:
        return
    expected = expected or (told.expected if told.gateway else None)
    made = dataclasses.replace(told, facts=facts, expected=expected)
    try:
        settings.write(container, made, told)
    except errors.LifecycleError as error:
        logger.warning("What this hook found is not in the metrics: %s", error)

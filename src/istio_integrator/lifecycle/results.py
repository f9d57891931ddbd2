"""The results of a hook, for the workload's metrics and its view of the gateway."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable

from cryptography import exceptions, x509

from integrator_contract import charm_facts, service
from istio_integrator.kube import errors
from istio_integrator.situation import workload

logger = logging.getLogger(__name__)


def read_life(owner: charm_facts.Owner, pem: str) -> Iterable[charm_facts.Certificate]:
    """Return when a certificate is valid; nothing if it can't be read."""
    try:
        loaded = x509.load_pem_x509_certificate(pem.encode())
    except (ValueError, exceptions.UnsupportedAlgorithm):
        return
    since, until = loaded.not_valid_before_utc, loaded.not_valid_after_utc
    yield charm_facts.Certificate(
        owner=owner, not_before=since.timestamp(), not_after=until.timestamp()
    )


def write(
    client: workload.WorkloadClient, results: service.Results, *, keeps_expected: bool
) -> None:
    """Write the file of the results; if that fails, the next hook writes it.

    With `keeps_expected` the last expectation stays while there is no new one.
    """
    if not client.container.can_connect():
        return
    if keeps_expected and results.expected is None and (last := client.results()):
        results = dataclasses.replace(results, expected=last.expected)
    try:
        client.write(workload.RESULTS, results)
    except errors.LifecycleError as error:
        logger.warning("What this hook found is not in the metrics: %s", error)

"""Who takes traces, and the authorities that may have signed its certificate.

They come by the interface `certificate_transfer`, of which there are two generations. In the first
each unit on the other side writes `certificate`, `ca` and `chain`, or some of them, as PEM or as
JSON; in the second the application writes `certificates`, once it has read that we know version 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, cast

from integrator_contract import service
from istio_integrator.kube import documents
from istio_integrator.relations import certificates, endpoints, observability

ENDPOINT = "receive-ca-cert"
VERSION = {"version": "1"}
"""Which generation the requirer reads, as it says in its own data bag."""
LONGEST = service.LONGEST_AUTHORITIES

_SECOND = "certificates"
_KEYS = (_SECOND, "ca", "certificate", "chain")


@dataclasses.dataclass(frozen=True)
class Collector:
    """Who takes traces."""

    url: str = ""
    """Empty where nobody does."""
    authorities: str = ""
    """Certificates, as PEM, that are trusted beside those that the system knows."""
    odd: tuple[str, ...] = ()
    """Applications that sent something else, or too much."""

    @property
    def is_behind_tls(self) -> bool:
        """Whether its certificate has to be trusted."""
        return self.url.startswith("https:")


NOBODY = Collector()


def collector(related: endpoints.Relations) -> Collector:
    """Find who takes traces, and whom to trust for that."""
    found = Collector(observability.traces_endpoint(related))
    if not found.is_behind_tls:
        return found
    pem, odd = read(_sent(related))
    return Collector(found.url, pem, odd)


def read(sent: Iterable[tuple[str, str]]) -> tuple[str, tuple[str, ...]]:
    """Read certificates.

    Args:
        sent: Applications, each with a value of a data bag.

    Returns:
        All of them, as PEM, and the applications that sent something else or too much.
    """
    known: list[str] = []
    odd: list[str] = []
    for application, text in ((who, each) for who, value in sent for each in _listed(value)):
        is_text = isinstance(text, str) and len(text) <= LONGEST
        found = certificates.bundled(text) if is_text else []
        new = [each for each in found if each not in known]
        if found and sum(map(len, known + new)) <= LONGEST:
            known += new
        else:
            odd.append(application)
    return "".join(known), tuple(dict.fromkeys(odd))


def _sent(related: endpoints.Relations) -> Iterable[tuple[str, str]]:
    bags = [(bag.application, bag.content) for bag in related.bags(ENDPOINT)]
    if not any(_SECOND in content for _, content in bags):
        units = sorted(related.unit_bags(ENDPOINT).items())
        bags = [(unit.partition("/")[0], content) for unit, content in units]
    for application, content in bags:
        yield from ((application, content[key]) for key in _KEYS if key in content)


def _listed(value: str) -> list[Any]:
    try:
        said = documents.read_json(value, longest=LONGEST)
    except documents.DocumentError:
        # PEM as it is, or nothing that can be read.
        said = value
    entries = cast("list[Any]", said) if isinstance(said, list) else [said]
    return [each for each in entries if each]

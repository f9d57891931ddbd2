"""Checks of what prepares new pods: the backend of admission, and certificates."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Mapping

from cryptography import x509

import admission

from . import finding

LATE = 0.9
"""Of a certificate's life: whatever renews it should have done so."""


def backend(
    wanted: str, trials: Mapping[str, admission.Trial], *, model: str
) -> Iterable[finding.Finding]:
    """Judge who changes new pods.

    Args:
        wanted: The option `admission`.
        trials: What became of a dry-run pod for each backend.
        model: Where the webhook runs.
    """
    working = [name for name, trial in trials.items() if trial.works]
    if wanted != "auto":
        working = [name for name in working if name == wanted]
    if working:
        yield finding.fine(f"a dry-run pod came back prepared by the {working[0]}")
        return
    tried = {name: trial for name, trial in trials.items() if wanted in ("auto", name)}
    problems = "; ".join(f"{name}: {trial.problem}" for name, trial in tried.items())
    pods = "istio-integrator.charmhub.io/component=admission-webhook"
    yield finding.broken(
        f"new pods are not prepared ({problems})", f"kubectl -n {model} get pods -l {pods}"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Certificate:
    """One that somebody relies on."""

    name: str
    """What for."""
    pem: str
    next: str
    """How it is replaced."""


def certificates(
    shown: Iterable[Certificate], *, now: datetime.datetime
) -> Iterable[finding.Finding]:
    """Judge how old certificates are."""
    well: list[str] = []
    for each in shown:
        try:
            loaded = x509.load_pem_x509_certificate(each.pem.encode())
        except ValueError:
            yield finding.broken(f"{each.name}: the certificate can't be read", each.next)
            continue
        since, until = loaded.not_valid_before_utc, loaded.not_valid_after_utc
        if now > until:
            yield finding.broken(f"{each.name}: the certificate ended {_day(until)}", each.next)
        elif now < since:
            yield finding.broken(
                f"{each.name}: the certificate is valid only from {_day(since)}", each.next
            )
        elif now > since + (until - since) * LATE:
            yield finding.doubtful(f"{each.name}: the certificate ends {_day(until)}", each.next)
        else:
            well.append(f"{each.name}: {(now - since).days} of {(until - since).days} days old")
    if well:
        yield finding.fine(", ".join(well))


def trust(bundles: Iterable[str], wanted: str, *, application: str) -> Iterable[finding.Finding]:
    """Judge whether API servers trust the webhook's authority.

    Args:
        bundles: Of each entry of the webhook configuration, as it is there.
        wanted: What they should be.
        application: Ours.
    """
    if any(bundle != wanted for bundle in bundles):
        yield finding.broken(
            "the webhook configuration trusts another authority than the servers' certificate has",
            f"juju run {application}/leader rotate-certificates",
        )


def _day(moment: datetime.datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M")

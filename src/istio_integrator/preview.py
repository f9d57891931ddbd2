"""Who could no longer reach whom, for options that are only asked about; nothing is written."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from istio_integrator import findings
from istio_integrator.config import config
from istio_integrator.findings import Finding
from istio_integrator.kube import errors

OPTIONS = ("authorization", "mtls", "mtls-exceptions")
"""The options that may be asked about."""


def asked_options(own: config.Config, given: Mapping[str, Any]) -> config.Config:
    """Return the application's options with those that are asked about in their place.

    Raises:
        ConfigError: One of them does not follow its grammar.
    """
    chosen = {name: given[name] for name in OPTIONS if name in given}
    asked = config.Config.load(chosen)
    fields = [name.replace("-", "_") for name in chosen]
    return own.model_copy(update={field: getattr(asked, field) for field in fields})


def lines(option: str, previewed: Iterable[Finding]) -> list[Finding]:
    """List what is found about an option; what can't be known of it is a line, too."""
    found: list[Finding] = []
    try:
        for each in previewed:
            found.append(each)  # noqa: PERF402 - what was found before an error counts
    except errors.CharmError as error:
        found.append(findings.doubtful(f"not known: {error}", "mend it, ask again"))
    return [dataclasses.replace(each, check=option) for each in found]

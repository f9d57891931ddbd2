"""Run a check: what it may not read, it says."""

from __future__ import annotations

from collections.abc import Iterable

import errors
import statuses

from . import access, checks, finding
from .finding import Finding
from .look import Look


def run(check: checks.Check, look: Look) -> Iterable[Finding]:
    """Return what a check finds, up to where the cluster does not answer."""
    found: list[Finding] = []
    try:
        for each in check(look):
            found.append(each)  # noqa: PERF402 - what was found before an error counts
    except errors.ForbiddenError as error:
        right = statuses.missing_right(error) or error.message
        found.append(
            finding.doubtful(
                f"not known: may not {right}",
                f"juju trust {look.application} --scope=cluster, or kubectl apply -f "
                f"{access.ROLES}",
            )
        )
    except errors.CharmError as error:
        found.append(finding.doubtful(f"not known: {error}", finding.own_log(look.application)))
    return found

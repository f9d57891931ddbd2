"""The checks of a diagnosis, a module for each subject: what it looks at and how it judges.

In each, a function under `@registry.check(...)` collects facts, and functions named `judge…` turn
them into findings, reading nothing themselves. A new check is a new module; no list names it but
`FEEDING`, where it feeds the status.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping

from istio_integrator.diagnosis import registry

FEEDING = ("callers", "profiles", "webhooks")
"""The modules of the checks that every hook of the leader runs; it imports no others."""


def known() -> Mapping[str, registry.Check]:
    """Return every check by its name, in the order in which a request meets what they look at."""
    return _of(each.name for each in pkgutil.iter_modules(__path__))


def feeding() -> Mapping[str, registry.Check]:
    """Return those that feed the status, in the same order."""
    return {name: each for name, each in _of(FEEDING).items() if each.feeds_status}


def _of(modules: Iterable[str]) -> Mapping[str, registry.Check]:
    for name in modules:
        importlib.import_module(f"{__name__}.{name}")
    return registry.known()

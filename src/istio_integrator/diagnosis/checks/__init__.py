"""The checks of a diagnosis, a module for each subject: what it looks at and how it judges.

In each, a function under `@registry.check(...)` collects facts, and functions named `judge…` turn
them into messages, reading nothing themselves. A new check is a new module; no list names it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from istio_integrator.diagnosis import registry


def known() -> Mapping[str, registry.Check]:
    """Return every check by its name, in the order in which a request meets what they look at."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return registry.known()

"""The checks of a diagnosis, with a module for each subject.

Functions under `@registry.check(...)` turn facts into messages. To add a check, write such a
function, also in a new module; no list of checks has to be edited.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from istio_integrator.diagnosis import registry


def list_checks() -> Mapping[str, registry.Check]:
    """Return every check by its name, in the order of the path of a request."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return dict(sorted(registry.CHECKS.items(), key=lambda pair: pair[1].place))

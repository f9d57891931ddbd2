"""The checks of a diagnosis, a module for each subject: what it looks at and how it judges.

In each, functions under `@registry.check(...)` turn facts into messages. A new check is such a
function, or a new module; no list names it.
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
    return dict(sorted(registry.CHECKS.items(), key=lambda pair: pair[1].place))

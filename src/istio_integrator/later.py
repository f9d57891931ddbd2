"""Modules that few hooks need, imported when something of them is first used.

Juju starts a process for each hook, so what every module imports is paid for hundreds of times a
day. Whoever imports one of these modules late says so in two branches, of which type checkers and
`lint-imports` read the first:

    if TYPE_CHECKING:
        from istio_integrator.kube import streams
    else:
        streams = later.module("istio_integrator.kube.streams")
"""

from __future__ import annotations

import importlib.util
import sys
import types


def module(name: str) -> types.ModuleType:
    """Return a module that is executed when something of it is first used.

    Args:
        name: Its full name.

    Raises:
        ModuleNotFoundError: There is none.
    """
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(name)
    spec.loader = importlib.util.LazyLoader(spec.loader)
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found
    spec.loader.exec_module(found)
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, found)
    return found

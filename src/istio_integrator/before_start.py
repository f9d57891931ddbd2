"""Hooks between install and start, of which start does everything.

Juju runs config-changed there, and relation-created once for each relation: dozens, where a bundle
is deployed, of which each would load the charm to find that start follows. So such a hook ends
before it loads anything.
"""

from __future__ import annotations

import os
import pathlib
import re
import sys

_LEFT_TO_START = re.compile(r"hooks/(config-changed|.+-relation-created)")
_MARK = ".before-start"
"""Is there between install and start, and as old as the pod."""


def begins(folder: pathlib.Path) -> None:
    """Note in the charm's folder that start has not come yet."""
    (folder / _MARK).touch()


def ends(folder: pathlib.Path) -> None:
    """Note that start has come."""
    (folder / _MARK).unlink(missing_ok=True)


def end_hook() -> None:
    """End this process, if it is such a hook.

    It has to be called before ops is imported, and does nothing in a process that has it already.
    """
    folder = pathlib.Path(os.environ.get("JUJU_CHARM_DIR", "."))
    is_left = _LEFT_TO_START.fullmatch(os.environ.get("JUJU_DISPATCH_PATH", ""))
    if is_left and "ops" not in sys.modules and (folder / _MARK).exists():
        sys.exit()


end_hook()

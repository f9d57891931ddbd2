"""Hooks in which there is nothing to do, and which end before they load anything.

Juju runs dozens of them where a bundle is deployed, and each would load ops and the charm first.
Between install and start come config-changed and, for each relation, relation-created: start does
what they would. And for each unit of each related application come relation-joined and -departed,
after which nobody has said anything.
"""

from __future__ import annotations

import os
import pathlib
import re
import sys

_LEFT_TO_START = re.compile(r"hooks/(config-changed|.+-relation-created)")
_UNHEARD = re.compile(r"hooks/(.+-relation-joined|(?!logging-).+-relation-departed)")
_MARK = ".before-start"
"""Is there between install and start, and as old as the pod."""


def begin(folder: pathlib.Path) -> None:
    """Note in the charm's folder that start is to come."""
    (folder / _MARK).touch()


def end(folder: pathlib.Path) -> None:
    """Note that start has come."""
    (folder / _MARK).unlink(missing_ok=True)


def is_idle(hook: str, folder: pathlib.Path) -> bool:
    """Tell whether there is nothing to do.

    Args:
        hook: As Juju names it in JUJU_DISPATCH_PATH.
        folder: The charm's.
    """
    if _UNHEARD.fullmatch(hook):
        return True
    return bool(_LEFT_TO_START.fullmatch(hook)) and (folder / _MARK).exists()


def leave() -> None:
    """End this process, if it is such a hook.

    It has to be called before ops is imported, and does nothing in a process that has it already.
    """
    folder = pathlib.Path(os.environ.get("JUJU_CHARM_DIR", "."))
    if "ops" not in sys.modules and is_idle(os.environ.get("JUJU_DISPATCH_PATH", ""), folder):
        sys.exit()


leave()

"""What was seen not to be there, so that not every hook looks for it again.

Most of what the charm can make is not asked for, and to look what there may be left of it takes
most of a hook's requests. A file beside the charm remembers: only the unit's own pod can write it,
and it goes with the pod. Whatever it says, all it can do is save a look: nothing is deleted or
made by it, and where everything has to be looked for it is forgotten first.
"""

from __future__ import annotations

import contextlib
import pathlib
import time
from collections.abc import Callable

import msgspec

SECONDS = 3600
"""After which everything is looked for again, whatever has happened meanwhile."""
_LONGEST = 64 << 10
"""Bytes of the file; each kind that there is takes some 50."""


class _Kept(msgspec.Struct, forbid_unknown_fields=True):
    since: float
    """When the oldest of it was seen, in seconds since 1970."""
    absent: set[str]


class Absences:
    """Remembers what is not there, from one hook of a unit to its next ones.

    Args:
        path: The file; None: nothing is remembered.
        clock: Tells the seconds since 1970.
    """

    def __init__(
        self, path: pathlib.Path | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._path = path
        self._clock = clock
        self._kept: _Kept | None = None
        self._is_saved = True

    def __contains__(self, name: str) -> bool:
        return self._path is not None and name in self._read().absent

    def add(self, name: str) -> None:
        """Remember that there is nothing of that name, after having looked.

        The next hook knows it once it is saved: what is lost costs it a look.
        """
        if self._path is not None and name not in self._read().absent:
            self._read().absent.add(name)
            self._is_saved = False

    def save(self) -> None:
        """Have the next hook know what was added, of which a hook may see thirty."""
        if not self._is_saved:
            self._write()

    def discard(self, name: str) -> None:
        """Remember nothing of a name any more, before something is made.

        That is written at once: what the hook makes has to be looked for, however it ends.
        """
        if name in self:
            self._read().absent.remove(name)
            self._write()

    def forget(self) -> None:
        """Have everything be looked for again."""
        self._kept = _Kept(self._clock(), set())
        self._is_saved = True
        self._unlink()

    def _read(self) -> _Kept:
        if self._kept is None:
            self._kept = self._found() or _Kept(self._clock(), set())
        return self._kept

    def _found(self) -> _Kept | None:
        """Read the file; None where it is none of ours, or too old."""
        if self._path is None:
            return None
        try:
            with self._path.open("rb") as file:
                kept = msgspec.json.decode(file.read(_LONGEST), type=_Kept)
        except (OSError, RecursionError, msgspec.MsgspecError):
            return None
        return kept if 0 <= self._clock() - kept.since < SECONDS else None

    def _write(self) -> None:
        """Replace the file at once; where that can't be done there is none."""
        if self._path is None:
            return
        self._is_saved = True
        beside = self._path.with_suffix(".new")
        try:
            beside.write_bytes(msgspec.json.encode(self._read()))
            beside.replace(self._path)
        except OSError:
            self._unlink()

    def _unlink(self) -> None:
        with contextlib.suppress(OSError):
            if self._path is not None:
                self._path.unlink()

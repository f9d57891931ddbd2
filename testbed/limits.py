"""Limits of the machine that many sidecars on one node run into."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from testbed import paths

INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")


@contextlib.contextmanager
def many_sidecars(wanted: int = 1024) -> Iterator[None]:
    """Let more than some forty proxies run while the context lasts.

    Agent and Envoy take three inotify instances, all proxies run as the same user, and a kernel
    allows a user 128 of them by default: Envoy then aborts. The limit belongs to the machine, so
    the last process that needs it puts it back.
    """
    paths.states().mkdir(parents=True, exist_ok=True)
    with (paths.states() / ".many-sidecars").open("a+") as shared:
        fcntl.flock(shared, fcntl.LOCK_SH)
        before = INSTANCES.read_text()
        if int(before) < wanted:
            shared.write(before)
            shared.flush()
            INSTANCES.write_text(str(wanted))
        try:
            yield
        finally:
            _put_back(shared)


def _put_back(shared: TextIO) -> None:
    """Restore what was there before the first, unless others still need it."""
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(shared, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shared.seek(0)
        if before := shared.readline():
            INSTANCES.write_text(before)
            shared.truncate(0)

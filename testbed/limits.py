"""Limits of the machine that many sidecars on one node run into."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")


@contextlib.contextmanager
def many_sidecars(wanted: int = 1024) -> Iterator[None]:
    """Let more than some forty proxies run while the context lasts.

    Agent and Envoy take three inotify instances, all proxies run as the same user, and a kernel
    allows a user 128 of them by default: Envoy then aborts. The limit belongs to the machine, so
    it is put back.
    """
    before = INSTANCES.read_text()
    if int(before) >= wanted:
        yield
        return
    INSTANCES.write_text(str(wanted))
    try:
        yield
    finally:
        INSTANCES.write_text(before)

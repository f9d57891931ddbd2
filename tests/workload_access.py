"""Run the workload's program from outside of a pod, by a kubeconfig.

Usage: python -m tests.workload_access KUBECONFIG COMMAND [OPTION…]
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import structlog
from lightkube.config import client_adapter, kubeconfig
from sidecar_lifecycle.shell import cli
from sidecar_lifecycle.shell.kube import client

if TYPE_CHECKING:
    from lightkube.config.kubeconfig import SingleConfig


def of_context(config: SingleConfig) -> client.Client:
    """Return a client for one context of a kubeconfig."""
    server, user = config.cluster.server, config.user
    tls = None
    if server.startswith("https") and user:
        tls = client_adapter.verify_cluster(config.cluster, user, config.abs_file, trust_env=False)
    if user and user.token_file:
        return client.Client(server, tls=tls, token=Path(user.token_file).read_text)
    token = user.token if user else None
    return client.Client(server, tls=tls, token=lambda: token or "")


def connect(file: str | os.PathLike[str]) -> client.Client:
    """Return a client for the current context of a kubeconfig."""
    config = kubeconfig.KubeConfig.from_file(file).get()
    assert config is not None
    return of_context(config)


def at(server: str, token: str) -> client.Client:
    """Return a client for a server without TLS."""
    return client.Client(server, token=lambda: token)


@contextlib.asynccontextmanager
async def service(connection: client.Client, *options: str) -> AsyncIterator[None]:
    """Run the service in this event loop for the time of the block, and see it end in order."""
    runs: list[Coroutine[None, None, None]] = []
    level = logging.getLogger().level
    with (
        mock.patch.object(client, "connect_from_pod", return_value=connection),
        mock.patch.object(asyncio, "run", runs.append),
        # Collecting garbage is tuned for a process that does nothing else.
        mock.patch.multiple(gc, freeze=mock.DEFAULT, set_threshold=mock.DEFAULT),
    ):
        assert cli.main(["run", *options]) == 0
    # Only a main thread takes signals.
    with mock.patch.object(asyncio.get_running_loop(), "add_signal_handler") as added:
        task = asyncio.create_task(runs[0])
        try:
            yield
        finally:
            handlers = {call.args[0]: call.args[1] for call in added.call_args_list}
            handlers[signal.SIGTERM]()
            await task
            structlog.reset_defaults()
            logging.getLogger().setLevel(level)


def main(file: str | os.PathLike[str], argv: Sequence[str]) -> int:
    """Run a command with the access of a kubeconfig in place of a pod's."""
    with mock.patch.object(client, "connect_from_pod", return_value=connect(file)):
        return cli.main(list(argv))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

"""`sidecar-lifecycle run`: the service on every unit."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import gc
import signal
from collections.abc import Coroutine, Mapping
from typing import Any

import structlog
from aiohttp import web

from integrator_contract import answers, names, service
from sidecar_lifecycle.shell import InputError, logs, metrics, serving
from sidecar_lifecycle.shell import settings as options
from sidecar_lifecycle.shell.convergence import cluster, listing, rejections
from sidecar_lifecycle.shell.convergence import controller as convergence
from sidecar_lifecycle.shell.kube import client, events
from sidecar_lifecycle.shell.observers import notices, observe, seen
from sidecar_lifecycle.shell.shutdown import controller as shutdown
from sidecar_lifecycle.shell.shutdown import stop

log = structlog.get_logger(__name__)


def main(arguments: argparse.Namespace) -> None:
    """Run until SIGTERM."""
    load = functools.partial(options.read, arguments.settings)
    live = options.Live(load(), load)
    file = service.name_results_file(arguments.settings)
    results = options.Results(None, functools.partial(options.read_results, file))
    # The part that follows the file reports its errors.
    with contextlib.suppress(InputError):
        results.refresh()
    logs.configure_logs(live.current.log_level)
    connection = client.connect_from_pod()
    tune_garbage_collection()
    program = Program(connection, live, results, listen=arguments.listen, port=arguments.port)
    asyncio.run(_run_until_signalled(program.run()))


def tune_garbage_collection() -> None:
    """Run the garbage collector less often.

    Watched pods live long and contain no reference cycles. With 5,000 pods, scanning them took a
    third of the CPU time. The young generations are collected more often. Otherwise the ended
    streams of a quiet model would accumulate for hours.
    """
    gc.set_threshold(10_000, 50, 100)


class Program:
    """The parts of `run`, connected to each other."""

    def __init__(
        self,
        connection: client.Client,
        live: options.Live,
        results: options.Results | None = None,
        *,
        listen: tuple[str, int],
        port: int = service.LISTENER_PORT,
    ) -> None:
        self.client = connection
        self.live = live
        self.results = results or options.Results(None)
        self.listen = listen
        self.port = port
        self.notifier = notices.Notifier()
        self.looker = seen.EnvoyReader(connection, self._notify_charm)
        self.recorder = events.Recorder(connection)
        self.shutdown = shutdown.ShutdownController(connection, live, self.recorder)

    def ready(self) -> Mapping[str, bool]:
        """Return the conditions of readiness."""
        return {"watch": self.shutdown.pods.live}

    async def run(self) -> None:
        """Run all parts until cancelled."""
        loop = asyncio.get_running_loop()
        metrics.CHARM_FACTS.read = lambda: self.results.current and self.results.current.facts
        metrics.TASKS.set_function(lambda: len(asyncio.all_tasks(loop)))
        metrics.OLDEST_PENDING.set_function(self.shutdown.oldest_pending)
        try:
            async with (
                serving.serve(
                    serving.make_health_application(self.ready, metrics.REGISTRY), self.listen
                ),
                serving.serve(self._make_application(), ("127.0.0.1", self.port)) as self.port,
                asyncio.TaskGroup() as tasks,
            ):
                for name, part in self._list_parts().items():
                    tasks.create_task(part, name=name)
        finally:
            await self.client.close()

    def _make_application(self) -> web.Application:
        model = cluster.ModelClient(self.client, self.live)
        return serving.make_charm_application(
            self._token,
            reads={
                "/uninjected": functools.partial(listing.list_uninjected, model),
                "/seen": self.looker.answer_state,
                "/outbound": self.looker.answer_has_chain,
                "/ended": self.shutdown.list_ended,
            },
            acts={
                "/restart": functools.partial(listing.restart_pods, model),
                "/stop": functools.partial(stop.answer_stop, self.client, self.live),
            },
        )

    def _token(self) -> str:
        """Return the token of the settings file, which a hook may write just before it asks."""
        # The part that follows the file reports its errors.
        with contextlib.suppress(InputError):
            self.live.refresh()
        return self.live.current.token

    def _list_parts(self) -> dict[str, Coroutine[Any, Any, None]]:
        settings = self.live.current
        return {
            "shutdown": self.shutdown.run(),
            "convergence": convergence.run(
                self.client, self.live, progress=self._notify_progress, recorder=self.recorder
            ),
            "rejections": rejections.run(self.client, self.live, tell=self._notify_charm),
            "mesh": observe.follow(
                observe.watch_mesh(self.client, settings.model, joined=settings.joined),
                self._notify_charm,
            ),
            "gateway": self.live.restart(lambda now: now.gateway, self._observe_gateway),
            "seen": self.results.restart(lambda now: now and now.expected, self.looker.run),
            "notices": self.notifier.run(),
            "settings": options.follow(
                {"settings": self.live.refresh, "results": self.results.refresh}
            ),
            "log level": self._follow_log_level(),
        }

    async def _observe_gateway(self, gateway: service.Gateway | None) -> None:
        if gateway is None:
            return
        settings = self.live.current
        kinds = observe.watch_gateway(
            self.client,
            model=settings.model,
            owner=names.name_owner(settings.model, settings.application),
            named=gateway,
        )
        await observe.follow(kinds, self._notify_charm)

    def _notify_charm(self) -> None:
        self.notifier.notify(names.MESH_NOTICE)

    def _notify_progress(self, summary: answers.Summary) -> None:
        """Notify the charm, unless its last hook already knows this progress."""
        word = summary.digest()

        def is_news() -> bool:
            last = self.results.current
            return last is None or last.facts.progress != word

        self.notifier.notify(names.PROGRESS_NOTICE, is_news)

    async def _follow_log_level(self) -> None:
        async for level in self.live.changes(lambda now: now.log_level):
            logs.configure_logs(level)
            log.info("log level", now=level)


async def _run_until_signalled(program: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(program, name="program")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
    log.info("service ended")

"""`sidecar-lifecycle run`: the long-running part, on every unit."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import gc
import signal
from collections.abc import Coroutine, Mapping
from typing import Any

import prometheus_client
import structlog
from aiohttp import web

from integrator_contract import answers, names, schema, service
from sidecar_lifecycle.shell import charm_facts, logs, metrics
from sidecar_lifecycle.shell import settings as options
from sidecar_lifecycle.shell.admission import settings as admission_settings
from sidecar_lifecycle.shell.convergence import controller as convergence
from sidecar_lifecycle.shell.convergence import listing, rejections
from sidecar_lifecycle.shell.kube import client, errors, events
from sidecar_lifecycle.shell.observers import gateways, notices, observe, seen
from sidecar_lifecycle.shell.serving import health, local
from sidecar_lifecycle.shell.shutdown import controller as shutdown
from sidecar_lifecycle.shell.shutdown import requested

from . import command

log = structlog.get_logger(__name__)


def add_parser(subparsers: command.Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "run",
        help="watch pods and act, as the charm's service does",
        **command.texts(
            "Watch pods and act, until SIGTERM. Every unit stops proxies, each later than the one"
            " before it; only Juju's leader evicts and deletes pods.",
            "sidecar-lifecycle run --settings settings.json",
        ),
    )
    parser.add_argument(
        "--contract",
        type=_contract,
        metavar="WORD",
        help="that the charm keeps to; --version ends with this program's",
    )
    command.add_settings(parser)
    parser.add_argument(
        "--listen",
        default=":8080",
        metavar="[HOST]:PORT",
        help="for metrics and health; without a host on every address (default: %(default)s)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=service.LISTENER_PORT,
        metavar="PORT",
        help="on 127.0.0.1, where the charm asks (default: %(default)s)",
    )
    parser.set_defaults(main=main)


def _contract(text: str) -> str:
    if text != schema.SCHEMA:
        raise argparse.ArgumentTypeError(
            f"the charm keeps to contract {text}, this image to {schema.SCHEMA}:"
            " run both from the same revision of the charm"
        )
    return text


def main(arguments: argparse.Namespace) -> int:
    """Run until SIGTERM."""
    live = options.Live(command.read_settings(arguments.settings), arguments.settings)
    logs.configure(live.current.log_level)
    try:
        connection = client.connect()
    except errors.NoAccess as error:
        raise command.InputError(f"no cluster to connect to: {error}") from error
    tune_garbage_collection()
    asyncio.run(
        _until_signalled(
            Program(connection, live, listen=arguments.listen, port=arguments.port).run()
        )
    )
    return 0


def tune_garbage_collection() -> None:
    """Look for cycles seldom.

    Pods under watch live long and are no cycles: with 5,000 of them, going through them again and
    again was a third of the work. What is new is looked through more often, or the ended streams
    of a quiet model would pile up for hours.
    """
    gc.freeze()
    gc.set_threshold(10_000, 50, 100)


class Program:
    """The parts of `run`, wired."""

    def __init__(
        self,
        connection: client.Client,
        live: options.Live,
        *,
        listen: str,
        port: int = service.LISTENER_PORT,
        registry: prometheus_client.CollectorRegistry = metrics.REGISTRY,
    ) -> None:
        self.registry = registry
        self.client = connection
        self.live = live
        self.listen = listen
        self.port = port
        self.notifier = notices.Notifier()
        self.looker = seen.Looker(connection, self._tell)
        self.recorder = events.Recorder(connection, instance=live.current.unit)
        self.shutdown = shutdown.Controller(connection, live, self.recorder)

    def ready(self) -> Mapping[str, bool]:
        """Return the conditions of readiness."""
        return {"watch": self.shutdown.pods.live}

    async def run(self) -> None:
        """Run all parts until cancelled."""
        loop = asyncio.get_running_loop()
        self.registry.register(charm_facts.Collector(lambda: self.live.current.facts))
        metrics.TASKS.set_function(lambda: len(asyncio.all_tasks(loop)))
        metrics.OLDEST_PENDING.set_function(self.shutdown.oldest_pending)
        try:
            async with (
                health.serve(self.listen, self.ready, self.registry),
                local.serve(self._answers(), self.port) as self.port,
                asyncio.TaskGroup() as tasks,
            ):
                for name, part in self._parts().items():
                    tasks.create_task(part, name=name)
        finally:
            await self.client.close()

    def _answers(self) -> web.Application:
        lister = listing.Lister(self.client, self.live)
        return local.application(
            lambda: self.live.current.token,
            reads={"/uninjected": lister.uninjected, "/seen": self.looker.tell},
            acts={
                "/restart": lister.restart,
                "/stop": functools.partial(requested.answer, self.client, self.live),
            },
        )

    def _parts(self) -> dict[str, Coroutine[Any, Any, None]]:
        settings = self.live.current
        observer = observe.Observer(
            self.client, settings.model, self._tell, joined=settings.joined
        )
        return {
            "shutdown": self.shutdown.run(),
            "convergence": convergence.run(
                self.client,
                self.live,
                registry=self.registry,
                progress=self._tell_progress,
                recorder=self.recorder,
            ),
            "rejections": rejections.run(
                self.client,
                self.live,
                load=admission_settings.load,
                tell=self._tell,
            ),
            "observer": observer.run(),
            "gateways": self.live.restart(lambda now: now.gateway, self._observe_gateway),
            "seen": self.live.restart(lambda now: now.expected, self.looker.run),
            "notices": self.notifier.run(),
            "settings": self.live.follow(),
            "log level": self._follow_level(),
        }

    async def _observe_gateway(self, gateway: service.Gateway | None) -> None:
        if gateway is None:
            return
        settings = self.live.current
        observer = gateways.Observer(
            self.client,
            model=settings.model,
            owner=names.owner(settings.model, settings.application),
            named=gateway.service,
            changed=self._tell,
        )
        await observer.run()

    def _tell(self) -> None:
        self.notifier.notify(names.MESH_NOTICE)

    def _tell_progress(self, summary: answers.Summary) -> None:
        """Have the charm told, unless a hook finds out by itself, as the one that started us."""
        word = summary.named()

        def is_news() -> bool:
            facts = self.live.current.facts
            return facts is None or facts.progress != word

        self.notifier.notify(names.PROGRESS_NOTICE, is_news)

    async def _follow_level(self) -> None:
        async for level in self.live.changes(lambda now: now.log_level):
            logs.configure(level)
            log.info("log level", level=level)


async def _until_signalled(program: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(program, name="program")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
    log.info("service ended")

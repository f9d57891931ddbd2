"""`sidecar-lifecycle run`: the long-running part, one acting among several that stand by."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import gc
import os
import pathlib
import signal
import socket
from collections.abc import Coroutine, Mapping
from typing import Any, get_args

import prometheus_client
import structlog
from lightkube.core import exceptions

from . import command, explain, gateways, health, logs, metrics, names, notices, observe
from . import settings as options
from .admission import probe
from .convergence import controller as convergence
from .convergence import settings as convergence_settings
from .kube import client, events, lease
from .rules import scope, selectors
from .shutdown import controller as shutdown

log = structlog.get_logger(__name__)

SAMPLE = 5.0
"""Seconds between samples of gauges that only a look can tell."""


def add_parser(subparsers: command.Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "run",
        help="watch pods and act, as the charm's service does",
        **command.texts(
            "Watch pods and act, until SIGTERM: one process among several leads, the others stand"
            " by.",
            "sidecar-lifecycle run --model kubeflow --application istio-integrator"
            " --unit istio-integrator/0 --mesh-namespace istio-system",
            "sidecar-lifecycle run --model kubeflow --application me --unit me/0"
            " --kubeconfig ~/.kube/config --log-level debug",
        ),
    )
    parser.add_argument("--model", required=True, metavar="NAMESPACE", help="of the model")
    parser.add_argument("--application", required=True, metavar="NAME", help="that this is")
    parser.add_argument("--unit", required=True, metavar="NAME/N", help="that this is")
    parser.add_argument(
        "--mesh-namespace",
        default="",
        metavar="NAMESPACE",
        help="where istiod is; empty while the model has not joined",
    )
    parser.add_argument("--mesh-revision", default="", metavar="REVISION", help="of istiod")
    parser.add_argument("--membership", choices=get_args(options.Membership), default="namespace")
    parser.add_argument("--included-pods", default="", metavar="SELECTOR")
    parser.add_argument("--excluded-pods", default="", metavar="SELECTOR")
    parser.add_argument(
        "--lifecycle-namespaces",
        type=_kinds,
        default=frozenset(scope.KINDS),
        metavar="KIND,…",
        help=f"of {', '.join(scope.KINDS)} (default: all)",
    )
    parser.add_argument("--proxy-shutdown", type=command.boolean, default=True, metavar="BOOL")
    explain.add_policy_options(parser)
    parser.add_argument(
        "--replace-broken-pods", type=command.boolean, default=False, metavar="BOOL"
    )
    parser.add_argument("--convergence", choices=get_args(options.Convergence), default="auto")
    parser.add_argument("--convergence-max-unavailable", type=int, default=2, metavar="N")
    parser.add_argument(
        "--observe-gateways",
        type=command.boolean,
        default=False,
        metavar="BOOL",
        help="tell the charm when the ingress gateway changes",
    )
    parser.add_argument("--listen", default="0.0.0.0:8080", metavar="HOST:PORT")
    parser.add_argument("--log-level", choices=tuple(logs.LEVELS), default="info")
    parser.add_argument(
        "--log-level-file",
        default="",
        metavar="FILE",
        help="that names the level, read again every second while it runs",
    )
    parser.add_argument("--kubeconfig", metavar="FILE", help="(default: the ServiceAccount)")
    parser.set_defaults(main=main)


def _kinds(text: str) -> frozenset[scope.Kind]:
    wanted = command.names(text)
    for name in wanted:
        if name not in scope.KINDS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(scope.KINDS)}")
    return frozenset(kind for kind in scope.KINDS if kind in wanted)


def settings_of(arguments: argparse.Namespace) -> options.Settings:
    """Return the options as a typed value."""
    fields = options.Settings.__dataclass_fields__
    return options.Settings(**{name: getattr(arguments, name) for name in fields})


def main(arguments: argparse.Namespace) -> int:
    """Run until SIGTERM."""
    logs.configure(arguments.log_level)
    settings = settings_of(arguments)
    _convergence_settings(settings)
    try:
        connection = client.connect(settings.kubeconfig)
    except exceptions.ConfigError as error:
        raise command.InputError(f"no cluster to connect to: {error}") from error
    tune_garbage_collection()
    asyncio.run(_until_signalled(Program(connection, settings).run()))
    return 0


def tune_garbage_collection() -> None:
    """Look for cycles seldom.

    Pods under watch live long and are no cycles: with 5,000 of them, going through them again and
    again was a third of the work. What is new is looked through more often, or the ended streams
    of a quiet model would pile up for hours.
    """
    gc.freeze()
    gc.set_threshold(10_000, 50, 100)


def identity(unit: str, process: int) -> str:
    """Return who holds the Lease: a process of a unit's container."""
    return f"{unit}_{socket.gethostname()}_{process}"


def is_earlier_run(unit: str, holder: str) -> bool:
    """Tell whether a holder was this unit's process in this container, and is no more."""
    process = holder.rpartition("_")[2]
    if not process.isdecimal() or holder != identity(unit, int(process)):
        return False
    return not pathlib.Path("/proc", process).exists()


class Program:
    """The parts of `run`, wired."""

    def __init__(
        self,
        connection: client.Client,
        settings: options.Settings,
        registry: prometheus_client.CollectorRegistry = metrics.REGISTRY,
    ) -> None:
        self.registry = registry
        self.client = connection
        self.settings = settings
        application = settings.application
        self.leadership = lease.Leadership(
            connection,
            namespace=settings.model,
            name=f"{application}-lifecycle",
            identity=identity(settings.unit, os.getpid()),
            labels=names.labels(settings.model, application, "lifecycle"),
            has_ended=functools.partial(is_earlier_run, settings.unit),
        )
        self.notifier = notices.Notifier()
        self.recorder = events.Recorder(connection, instance=settings.unit)
        self.shutdown = shutdown.Controller(connection, settings, self.leadership, self.recorder)

    def ready(self) -> Mapping[str, bool]:
        """Return the conditions of readiness."""
        return {"lease": self.leadership.reachable, "watch": self.shutdown.pods.live}

    async def run(self) -> None:
        """Run all parts until cancelled, then give the Lease away last."""
        loop = asyncio.get_running_loop()
        metrics.TASKS.set_function(lambda: len(asyncio.all_tasks(loop)))
        try:
            async with health.serve(self.settings.listen, self.ready, self.registry):
                election = asyncio.create_task(self.leadership.run(), name="election")
                try:
                    async with asyncio.TaskGroup() as tasks:
                        tasks.create_task(_outlive(election), name="election guard")
                        for name, part in self._parts().items():
                            tasks.create_task(part, name=name)
                finally:
                    election.cancel()
                    await asyncio.gather(election, return_exceptions=True)
        finally:
            await self.client.close()

    def _parts(self) -> dict[str, Coroutine[Any, Any, None]]:
        settings = self.settings
        observer = observe.Observer(self.client, settings.model, self._tell)
        owner = names.owner(settings.model, settings.application)
        gateway_observer = gateways.Observer(self.client, owner, self._tell)
        return {
            "shutdown": self.shutdown.run(),
            "convergence": convergence.run(
                self.client,
                _convergence_settings(self.settings),
                self.leadership,
                registry=self.registry,
                progress=lambda: self.notifier.notify(notices.PROGRESS),
                recorder=self.recorder,
            ),
            "admission": probe.run(
                self.client, self.settings.model, self.leadership, registry=self.registry
            ),
            "observer": observer.run(),
            **({"gateways": gateway_observer.run()} if settings.observe_gateways else {}),
            "notices": self.notifier.run(),
            "gauges": self._sample(),
            "log level": self._follow_level(),
        }

    def _tell(self) -> None:
        self.notifier.notify(notices.MESH)

    async def _follow_level(self) -> None:
        if file := self.settings.log_level_file:
            await logs.follow(pathlib.Path(file), self.settings.log_level)

    async def _sample(self) -> None:
        while True:
            metrics.OLDEST_PENDING.set(self.shutdown.oldest_pending())
            await asyncio.sleep(SAMPLE)


async def _outlive(task: asyncio.Task[None]) -> None:
    """Fail when a task fails, without cancelling it when we are cancelled."""
    await asyncio.shield(task)


def _convergence_settings(settings: options.Settings) -> convergence_settings.Settings:
    try:
        included = selectors.parse(settings.included_pods)
        excluded = selectors.parse(settings.excluded_pods)
    except ValueError as error:
        raise command.InputError(f"a pod selector can't be read: {error}") from error
    return convergence_settings.Settings(
        model=settings.model,
        application=settings.application,
        revision=settings.mesh_revision,
        joined=bool(settings.mesh_namespace),
        membership=settings.membership,
        included=included,
        excluded=excluded,
        mode=settings.convergence,
        max_unavailable=settings.convergence_max_unavailable,
    )


async def _until_signalled(program: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(program, name="program")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
    log.info("ended")

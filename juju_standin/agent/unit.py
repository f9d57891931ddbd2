"""`unit`: the unit agent's process, which lasts as long as the charm container."""

import argparse
import json
import logging
import queue
import signal
import threading
import time
from pathlib import Path

from . import health, jujuc, pace
from .api import Controller, ControllerError
from .process import LogLine, Paths
from .uniter import BounceError, Settings, Uniter

logger = logging.getLogger(__name__)

CONTAINERS = Path("/charm/containers")
"""A folder for each workload container, with the socket of its Pebble."""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Define the command."""
    parser = commands.add_parser("unit", help="run the unit agent")
    parser.add_argument("--data-dir", type=Path, required=True)
    # A new version of the charm makes another pod: the agent itself has no use for it.
    parser.add_argument("--charm-modified-version", type=int, default=0)
    parser.add_argument("--containers", default="", help="workload containers, comma-separated")
    parser.set_defaults(run=run)


class ModelLog:
    """Sends log lines to the controller in the background, in order, in batches."""

    def __init__(self, controller: Controller, unit: str) -> None:
        self._controller = controller
        self._unit = unit
        self._lines: queue.Queue[list[str]] = queue.Queue()
        threading.Thread(target=self._send, name="log", daemon=True).start()

    def write(self, level: str, module: str, message: str) -> None:
        """Log one line; `module` is what follows the unit's name in its logger."""
        logger.info("%s %s %s", level, module, message)
        self._lines.put([level, f"unit.{self._unit}.{module}", message])

    def flush(self, seconds: float = 3) -> None:
        """Wait until everything is sent, but not long."""
        deadline = time.monotonic() + seconds
        while self._lines.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.05)

    def _send(self) -> None:
        while True:
            batch = [self._lines.get()]
            while not self._lines.empty():
                batch.append(self._lines.get())
            try:
                self._controller.call("log", lines=batch)
            except (OSError, ControllerError) as error:
                logger.warning("log lines lost: %s", error)
            for _ in batch:
                self._lines.task_done()


def run(arguments: argparse.Namespace) -> int:
    """Run the uniter until the unit ends or the pod goes."""
    configuration = json.loads((arguments.data_dir / "template-agent.json").read_text())
    identity = {key: configuration[key] for key in ("model", "application", "password", "unit")}
    controller = Controller(configuration["address"], configuration["ca_certificate"], identity)
    unit = configuration["unit"]
    paths = Paths(arguments.data_dir, unit)
    log = ModelLog(controller, unit)
    jujuc.install_tools(arguments.data_dir, paths.tools)
    settings = Settings(
        unit=unit,
        paths=paths,
        sockets={
            name: CONTAINERS / name / "pebble.socket"
            for name in arguments.containers.split(",")
            if name
        },
    )
    tools = jujuc.ToolServer(paths.socket)
    uniter = Uniter(controller, settings, log.write, tools)
    signal.signal(signal.SIGTERM, lambda _number, _frame: uniter.terminate())
    probes = health.serve(lambda: uniter.is_ready)
    if live(uniter, log.write):
        controller.call("unit_dead")
    log.flush()
    probes.shutdown()
    tools.close()
    return 0


def live(uniter: Uniter, log: LogLine) -> bool:
    """Run the uniter until the unit is dead (true) or its pod goes away (false)."""
    while True:
        try:
            return uniter.run()
        except (OSError, ControllerError, BounceError) as error:
            log("ERROR", "worker.uniter", f"bounced: {error}")
            # The controller no longer knows a unit that it ended without a hook.
            if uniter.is_terminated and isinstance(error, ControllerError):
                return False
            time.sleep(pace.BOUNCE_PAUSE)

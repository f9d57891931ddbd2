"""Run the charm: one fresh process per hook, in Juju's environment and nothing else."""

import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .context import HookContext

KUBERNETES = (
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
    "KUBERNETES_SERVICE_PORT_HTTPS",
)
OUTPUT_WAIT = 0.2
"""Seconds for the rest of a hook's output once its process has ended."""
LOOK_UP = 0.5
"""Seconds after which a signal is noticed that did not interrupt the waiting."""

LogLine = Callable[[str, str, str], None]
Result = subprocess.CompletedProcess[str]


def inherited() -> dict[str, str]:
    """The agent's own environment, of which a hook sees little."""
    return dict(os.environ)


@dataclass(frozen=True)
class Paths:
    """Where a unit's files are, below Juju's data folder."""

    data: Path
    unit: str

    @property
    def tag(self) -> str:
        """The unit's name as used in file names."""
        return f"unit-{self.unit.replace('/', '-')}"

    @property
    def agent(self) -> Path:
        """The unit's own folder."""
        return self.data / "agents" / self.tag

    @property
    def charm(self) -> Path:
        """The unpacked charm; gone with the pod, and the charm's stored state with it."""
        return self.agent / "charm"

    @property
    def tools(self) -> Path:
        """The hook tools."""
        return self.data / "tools" / self.tag

    @property
    def socket(self) -> Path:
        """Where the hook tools call."""
        return self.agent / "agent.socket"


def environment(
    context: HookContext, paths: Paths, model: dict[str, Any], agent: dict[str, str]
) -> dict[str, str]:
    """Compose a hook's environment; of the pod's own only Kubernetes' addresses pass."""
    hook, action = context.hook, context.action
    path = agent.get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    result = {
        "PATH": f"{paths.tools}:{path}",
        "LANG": "C.UTF-8",
        "CHARM_DIR": str(paths.charm),
        "JUJU_CHARM_DIR": str(paths.charm),
        "JUJU_CONTEXT_ID": context.id,
        "JUJU_HOOK_NAME": hook.name if hook else "",
        "JUJU_AGENT_SOCKET_ADDRESS": str(paths.socket),
        "JUJU_AGENT_SOCKET_NETWORK": "unix",
        "JUJU_UNIT_NAME": context.unit,
        "JUJU_MODEL_NAME": model["name"],
        "JUJU_MODEL_UUID": model["uuid"],
        "JUJU_API_ADDRESSES": context.controller.address,
        "JUJU_MACHINE_ID": "",
        "JUJU_PRINCIPAL_UNIT": "",
        "JUJU_AVAILABILITY_ZONE": "",
        "JUJU_VERSION": model["juju_version"],
        "CLOUD_API_VERSION": model["cloud_version"],
        "JUJU_CHARM_HTTP_PROXY": "",
        "JUJU_CHARM_HTTPS_PROXY": "",
        "JUJU_CHARM_FTP_PROXY": "",
        "JUJU_CHARM_NO_PROXY": "",
        "JUJU_CHARM_TRACE_CONFIG_HTTP": "",
        "JUJU_CHARM_TRACE_CONFIG_GRPC": "",
        "JUJU_CHARM_TRACE_CONFIG_CA_CERT": "",
    }
    result |= {
        name: value
        for name, value in agent.items()
        if name in KUBERNETES or name.startswith("KUBERNETES_PORT")
    }
    if action:
        result |= {
            "JUJU_DISPATCH_PATH": f"actions/{action.name}",
            "JUJU_ACTION_NAME": action.name,
            "JUJU_ACTION_UUID": action.number,
            "JUJU_ACTION_TAG": f"action-{action.number}",
        }
    elif hook:
        result["JUJU_DISPATCH_PATH"] = f"hooks/{hook.name}"
        result |= _hook_variables(context)
    return result


def _hook_variables(context: HookContext) -> dict[str, str]:
    hook = context.hook
    assert hook
    result: dict[str, str] = {}
    if hook.is_relation:
        result |= {
            "JUJU_RELATION": hook.endpoint,
            "JUJU_RELATION_ID": hook.relation_key,
            "JUJU_REMOTE_UNIT": hook.remote_unit,
            "JUJU_REMOTE_APP": hook.remote_application,
        }
        if hook.kind == "relation-departed":
            result["JUJU_DEPARTING_UNIT"] = hook.departing_unit
    if hook.is_pebble:
        result["JUJU_WORKLOAD_NAME"] = hook.workload
    if hook.kind == "pebble-custom-notice":
        result |= {
            "JUJU_NOTICE_ID": hook.notice_id,
            "JUJU_NOTICE_TYPE": hook.notice_type,
            "JUJU_NOTICE_KEY": hook.notice_key,
        }
    if hook.check:
        result["JUJU_PEBBLE_CHECK_NAME"] = hook.check
    return result


def _wait(process: subprocess.Popen[str]) -> int:
    """Wait for a process, and look up now and then.

    A signal that comes right before the waiting begins, or to another thread, interrupts nothing,
    and Python's handler would not run before the process ends.
    """
    descriptor = os.pidfd_open(process.pid)
    try:
        while not select.select([descriptor], [], [], LOOK_UP)[0]:
            pass
    finally:
        os.close(descriptor)
    return process.wait()


class Runner:
    """Starts the charm's processes, one at a time, and can end the one that runs."""

    def __init__(self, log: LogLine) -> None:
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.RLock()

    def run(self, charm: Path, variables: dict[str, str], name: str) -> Result:
        """Run `dispatch` (or the hook's own file) to its end; a missing file is a success."""
        program = charm / "dispatch"
        if not program.exists():
            program = charm / variables["JUJU_DISPATCH_PATH"]
        if not program.exists():
            return subprocess.CompletedProcess([str(program)], 0, "", "")
        with self._lock:
            self._process = subprocess.Popen(
                [str(program)],
                cwd=charm,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        process = self._process
        output: dict[str, list[str]] = {"DEBUG": [], "WARNING": []}

        def copy(level: str, stream: Any) -> None:
            with stream:
                for line in stream:
                    output[level].append(line)
                    self._log(level, name, line.rstrip("\n"))

        readers = [
            threading.Thread(target=copy, args=(level, stream), daemon=True)
            for level, stream in (("DEBUG", process.stdout), ("WARNING", process.stderr))
        ]
        for reader in readers:
            reader.start()
        code = _wait(process)
        for reader in readers:
            # A child left in the background may hold the pipes for longer than the hook lasts.
            reader.join(OUTPUT_WAIT)
        with self._lock:
            self._process = None
        return subprocess.CompletedProcess(
            [str(program)], code, "".join(output["DEBUG"]), "".join(output["WARNING"])
        )

    def terminate(self) -> None:
        """Send SIGTERM to the running hook and its children."""
        with self._lock:
            if self._process:
                try:
                    os.killpg(self._process.pid, signal.SIGTERM)
                except ProcessLookupError:
                    return

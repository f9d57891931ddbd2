"""The one process that holds a testbed; run as `python -m testbed.supervisor STATE`.

It starts the components in their order, restarts those that exit, reaps orphans (with a node
it is process 1 of its own PID namespace) and writes `status.json`. Ending it, however, ends
everything: by the namespace, or without one by the kernel's parent-death signal.
"""

import contextlib
import ctypes
import dataclasses
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path
from typing import Any

from testbed import namespaces

_SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}
_PR_SET_PDEATHSIG = 1
_SLOWEST_RESTART = 8.0


@dataclasses.dataclass
class Process:
    """A component and how it is doing."""

    spec: dict[str, Any]
    child: subprocess.Popen[bytes] | None = None
    ready_after: float | None = None
    """Seconds since the supervisor's start."""
    restarts: int = 0
    start_at: float = 0.0
    """Not before this moment of the monotonic clock."""
    last_exit: int | None = None

    @property
    def name(self) -> str:
        """The component's name."""
        return self.spec["name"]

    def status(self) -> dict[str, Any]:
        """Return what `testbed status` shows."""
        return {
            "pid": self.child.pid if self.child else None,
            "ready": self.ready_after is not None and self.child is not None,
            "ready_after": self.ready_after,
            "restarts": self.restarts,
            "last_exit": self.last_exit,
        }


def _become_child() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def probe(target: str, authority: str) -> bool:
    """Tell whether something answers at `tcp://`, `unix://` or `https://`."""
    url = urllib.parse.urlsplit(target)
    try:
        if url.scheme == "unix":
            with contextlib.closing(socket.socket(socket.AF_UNIX)) as connection:
                connection.connect(url.path)
            return True
        host, port = url.hostname or "", url.port or 0
        if url.scheme == "tcp":
            socket.create_connection((host, port), timeout=0.5).close()
            return True
        context = ssl.create_default_context(cafile=authority)
        client = http.client.HTTPSConnection(host, port, timeout=1, context=context)
        with contextlib.closing(client):
            client.request("GET", url.path)
            return client.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False


class Supervisor:
    """Starts, watches and reaps the components listed in `spec.json`."""

    def __init__(self, state: Path) -> None:
        spec = json.loads((state / "spec.json").read_text())
        self._state = state
        self._authority: str = spec["authority"]
        self._began = time.monotonic()
        self._processes = [Process(component) for component in spec["components"]]
        self._written = ""

    def run(self) -> None:
        """Hold the testbed until a termination signal comes."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        while True:
            self._start_due()
            self._probe_started()
            self._write_status()
            settled = all(process.ready_after is not None for process in self._processes)
            received = signal.sigtimedwait(_SIGNALS, 1.0 if settled else 0.05)
            if received and received.si_signo != signal.SIGCHLD:
                break
            self._reap()
        for process in self._processes:
            if process.child:
                process.child.kill()
                process.child.wait()

    def _is_ready(self, name: str) -> bool:
        return any(
            process.name == name and process.ready_after is not None for process in self._processes
        )

    def _start_due(self) -> None:
        now = time.monotonic()
        for process in self._processes:
            due = process.child is None and now >= process.start_at
            if due and all(self._is_ready(name) for name in process.spec["after"]):
                self._start(process)

    def _start(self, process: Process) -> None:
        with (self._state / "logs" / f"{process.name}.log").open("ab") as log:
            process.child = subprocess.Popen(
                process.spec["argv"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **process.spec["environment"]},
                preexec_fn=_become_child,  # noqa: PLW1509  the supervisor has no threads
            )

    def _probe_started(self) -> None:
        for process in self._processes:
            if process.child is None or process.ready_after is not None:
                continue
            target = process.spec["probe"]
            if not target or probe(target, self._authority):
                process.ready_after = round(time.monotonic() - self._began, 2)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for process in self._processes:
                if process.child and process.child.pid == pid:
                    self._exited(process, os.waitstatus_to_exitcode(status))

    def _exited(self, process: Process, code: int) -> None:
        assert process.child is not None
        # Popen would ask the kernel for a status that has just been collected here.
        process.child.returncode = code
        process.child = None
        process.ready_after = None
        process.last_exit = code
        process.start_at = time.monotonic() + min(0.25 * 2**process.restarts, _SLOWEST_RESTART)
        process.restarts += 1
        print(f"{process.name} exited with {code}", file=sys.stderr, flush=True)

    def _write_status(self) -> None:
        text = json.dumps({process.name: process.status() for process in self._processes})
        if text != self._written:
            scratch = self._state / ".status.json"
            scratch.write_text(text)
            scratch.rename(self._state / "status.json")
            self._written = text


def main() -> None:
    """Hold the testbed whose state directory is the only argument."""
    state = Path(sys.argv[1])
    if node := json.loads((state / "spec.json").read_text())["node"]:
        namespaces.furnish(node)
    Supervisor(state).run()


if __name__ == "__main__":
    main()

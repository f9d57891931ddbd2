"""One testbed from Python: start it, use it, end it."""

import contextlib
import dataclasses
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from testbed import addresses, components, launch, options, paths, prepare, programs
from testbed.options import Options, OptionsError

__all__ = ["ClusterError", "Options", "OptionsError", "Testbed"]

Progress = programs.Progress


class ClusterError(Exception):
    """A testbed could not do what was asked."""


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Testbed:
    """A testbed by its name; the object holds no state beside what is on disk."""

    __test__ = False

    def __init__(self, name: str = "default", progress: Progress = _say):
        options.validate_name(name)
        self.name = name
        self.state_dir = paths.state(name)
        self._progress = progress
        self._began = time.monotonic()

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig; it works on the host and inside the node."""
        return self.state_dir / "kubeconfig"

    @property
    def programs(self) -> Path:
        """Directory with kubectl and the other programs of this testbed."""
        return self.state_dir / "bin"

    @property
    def holder(self) -> launch.Holder | None:
        """The process that holds the testbed, None when it is down."""
        return launch.holder(self.state_dir)

    @property
    def options(self) -> Options:
        """The switches that the running testbed was started with."""
        try:
            values = json.loads((self.state_dir / "options.json").read_text())
        except OSError:
            raise ClusterError(f"testbed {self.name} is not up") from None
        return Options(**{**values, "extras": tuple(values["extras"])})

    @property
    def environment(self) -> dict[str, str]:
        """The environment of programs that use the testbed."""
        return {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "PATH": f"{self.programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        }

    @property
    def plan(self) -> addresses.Plan:
        """The addresses of the running testbed's node."""
        return addresses.plan(self._require_node().slot or 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    def up(self, wanted: Options | None = None, *, wait: bool = True) -> float:
        """Start the testbed.

        Args:
            wanted: the switches; None takes the defaults.
            wait: until everything asked for is ready, else only until it can be used.

        Returns:
            The seconds it took, without building programs and images.

        Raises:
            ClusterError: when something needed is missing, or a component does not get ready.
        """
        wanted = wanted or Options()
        wanted.validate()
        with self._lock():
            if self.holder:
                if self.options != wanted:
                    raise ClusterError(
                        f"testbed {self.name} is up with other switches: down first"
                    )
                self._progress(f"testbed {self.name} is up already")
                return 0.0
            launch.clean(self.state_dir, f"/istio-integrator-{self.name}")
            if wanted.control_plane_only:
                return self._up_control_plane(wanted)
            raise ClusterError("not yet")

    def _up_control_plane(self, wanted: Options) -> float:
        programs.ensure(programs.CONTROL_PLANE, self._progress)
        began = self._began = time.monotonic()
        apiserver_port, etcd_port = prepare.free_ports(2)
        layout = components.Layout(
            name=self.name,
            state=self.state_dir,
            binaries=self.programs,
            options=wanted,
            plan=addresses.plan(0),
            apiserver_port=apiserver_port,
            etcd_port=etcd_port,
        )
        self._write(layout, programs.CONTROL_PLANE)
        launch.start(self.state_dir, None)
        with self._ending_on_failure():
            self.wait_for("kube-controller-manager")
        took = time.monotonic() - began
        self._progress(f"control plane ready in {took:.1f} s: {self.kubeconfig}")
        return took

    def _write(self, layout: components.Layout, products: Sequence[str]) -> None:
        self.state_dir.mkdir(parents=True, mode=0o700, exist_ok=True)
        prepare.link_programs(self.programs, products)
        prepare.write(layout)
        text = json.dumps(dataclasses.asdict(layout.options))
        (self.state_dir / "options.json").write_text(text)

    def down(self) -> None:
        """End the testbed and remove what it left on disk."""
        with self._lock():
            if found := self.holder:
                launch.end(found, self.state_dir)
            launch.clean(self.state_dir, f"/istio-integrator-{self.name}")

    def status(self) -> dict[str, Any]:
        """Return what is known without asking the cluster."""
        found = self.holder
        if not found:
            return {"name": self.name, "up": False}
        return {
            "name": self.name,
            "up": True,
            "pid": found.pid,
            "kubeconfig": str(self.kubeconfig),
            "options": dataclasses.asdict(self.options),
            "components": self.components(),
        }

    def components(self) -> dict[str, Any]:
        """Return the supervisor's view of each component."""
        try:
            return json.loads((self.state_dir / "status.json").read_text())
        except (OSError, ValueError):
            return {}

    def wait_for(self, *names: str, seconds: float = 120) -> None:
        """Wait until the components are ready.

        Raises:
            ClusterError: when they are not in time, with the end of the log of the first.
        """
        deadline = time.monotonic() + seconds
        while True:
            status = self.components()
            late = [name for name in names if not status.get(name, {}).get("ready")]
            if not late:
                return
            if not self.holder:
                raise ClusterError(f"the supervisor ended\n{self.log_end('supervisor')}")
            if time.monotonic() > deadline:
                raise ClusterError(f"{', '.join(late)} not ready\n{self.log_end(late[0])}")
            time.sleep(0.05)

    def log_end(self, component: str, lines: int = 20) -> str:
        """Return the last lines of a component's log."""
        try:
            text = (self.state_dir / "logs" / f"{component}.log").read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def kubectl(
        self, *argv: str, text: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator.

        Raises:
            ClusterError: when it fails and `check` is set.
        """
        run = subprocess.run(
            ["kubectl", *argv],
            input=text,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and run.returncode:
            raise ClusterError(f"kubectl {' '.join(argv)}: {run.stderr.strip()}")
        return run

    def exec(
        self, argv: Sequence[str], *, environment: Mapping[str, str] | None = None, **popen: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside the node's namespaces, or with no node just on the host."""
        found = self._require_up()
        command = list(argv) if found.slot is None else launch.inside(found, argv)
        settings = {"text": True, "check": False, **popen}
        return subprocess.run(command, env={**self.environment, **(environment or {})}, **settings)

    def _require_up(self) -> launch.Holder:
        found = self.holder
        if not found:
            raise ClusterError(f"testbed {self.name} is not up")
        return found

    def _require_node(self) -> launch.Holder:
        found = self._require_up()
        if found.slot is None:
            raise ClusterError(f"testbed {self.name} has no node (--control-plane-only)")
        return found

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        paths.states().mkdir(parents=True, exist_ok=True)
        with (paths.states() / f".{self.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def _ending_on_failure(self) -> Iterator[None]:
        """End a testbed that did not come up, but keep its logs."""
        try:
            yield
        except BaseException:
            if found := self.holder:
                launch.end(found, self.state_dir)
            raise

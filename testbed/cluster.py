"""One testbed from Python: start it, use it, end it."""

import contextlib
import dataclasses
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from testbed import (
    addresses,
    components,
    errors,
    images,
    launch,
    node,
    options,
    paths,
    prepare,
    programs,
)
from testbed.options import Options, OptionsError

__all__ = ["ClusterError", "Options", "OptionsError", "Testbed"]

Progress = programs.Progress


# Server-side validation would cost the download of the whole schema.
_APPLY = ("--server-side", "--force-conflicts", "--validate=false")


class ClusterError(errors.TestbedError):
    """A testbed could not do what was asked."""


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Testbed:
    """A testbed by its name; the object holds no state beside what is on disk."""

    __test__ = False

    def __init__(self, name: str = "default", progress: Progress = _say) -> None:
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
        system = launch.environment()
        return {
            **system,
            "KUBECONFIG": str(self.kubeconfig),
            "PATH": f"{self.programs}{os.pathsep}{system['PATH']}",
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
            complete = self.state_dir / "complete"
            if (found := self.holder) and complete.exists():
                if self.options != wanted:
                    raise ClusterError(f"{self.name} is up with other switches: down first")
                self._progress(f"testbed {self.name} is up already")
                return 0.0
            if found:
                launch.end(found, self.state_dir)
            launch.clean(self.state_dir, f"/istio-integrator-{self.name}")
            if wanted.control_plane_only:
                took = self._up_control_plane(wanted)
            else:
                took = self._up_node(wanted, wait=wait)
            complete.touch()
            return took

    def _up_control_plane(self, wanted: Options) -> float:
        products = [*programs.CONTROL_PLANE]
        if wanted.kubernetes:
            # Last, as its apiserver takes the place of the other.
            products.append(f"kubernetes-{wanted.kubernetes}")
        programs.ensure(products, self._progress)
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
        self._write(layout, products)
        launch.start(self.state_dir, None)
        with self._ending_on_failure():
            self.wait_for("kube-controller-manager")
            # Until then no pod can be created in the namespace.
            self._wait_for_object("serviceaccount/default")
        took = time.monotonic() - began
        self._progress(f"control plane ready in {took:.1f} s: {self.kubeconfig}")
        return took

    def _up_node(self, wanted: Options, *, wait: bool) -> float:
        node.check_needs()
        products = node.products(wanted)
        programs.ensure(products, self._progress)
        images.build(node.wanted_images(wanted), self._progress)
        began = time.monotonic()
        with launch.slot_lock():
            layout = node.layout(self, wanted, launch.free_slot())
            self._write(layout, products)
            launch.start(self.state_dir, layout.plan)
        with self._ending_on_failure():
            marks = node.furnish(self, wanted, wait=wait)
        took = time.monotonic() - began
        steps = ", ".join(f"{name} {seconds:.1f}" for name, seconds in marks.items())
        self._progress(
            f"testbed {self.name} {'ready' if wait else 'up'} in {took:.1f} s ({steps})"
        )
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

    def _wait_for_object(self, name: str, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while self.kubectl("get", name, check=False).returncode:
            if time.monotonic() > deadline:
                raise ClusterError(f"{name} did not appear")
            time.sleep(0.1)

    def restart(self, component: str) -> None:
        """Kill a component's process; the supervisor starts it again after a moment."""
        process = self.components().get(component, {}).get("pid")
        if not process:
            raise ClusterError(f"{component} is not running")
        self.exec(["kill", "-KILL", str(process)], check=True)

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

    def apply(self, text: str) -> None:
        """Apply JSON or YAML documents."""
        self.kubectl("apply", *_APPLY, "--filename=-", text=text)

    def apply_file(self, path: Path) -> None:
        """Apply the documents of a file."""
        self.kubectl("apply", *_APPLY, f"--filename={path}")

    def load_images(self, names: Iterable[str]) -> dict[str, str]:
        """Build images of `testbed.images` if needed, and give containerd what it lacks.

        Returns:
            The reference of each, by which pods name it.
        """
        ctr = ("ctr", f"--address={components.CONTAINERD_SOCKET}", "--namespace=k8s.io")
        return images.load(names, launch.inside(self._require_node(), ctr), self._progress)

    def spawn(self, argv: Sequence[str], log: str) -> subprocess.Popen[bytes]:
        """Start a process that lives in the node's namespaces and ends with them at the latest.

        Args:
            argv: the command line.
            log: name of its log, as `testbed logs` takes it.
        """
        found = self._require_up()
        command = list(argv) if found.slot is None else launch.inside(found, argv)
        with (self.state_dir / "logs" / f"{log}.log").open("ab") as output:
            return subprocess.Popen(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def exec(
        self, argv: Sequence[str], *, environment: Mapping[str, str] | None = None, **popen: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside the node's namespaces, or with no node just on the host."""
        found = self._require_up()
        command = list(argv) if found.slot is None else launch.inside(found, argv)
        settings = {"text": True, "check": False, **popen}
        return subprocess.run(  # noqa: PLW1510  the caller's choice, see settings
            command, env={**self.environment, **(environment or {})}, **settings
        )

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

"""What can be done with a testbed that is up: ask, apply, load images, run programs inside."""

import concurrent.futures
import dataclasses
import json
import os
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed import addresses, components, errors, images, launch, nodes, options, paths
from testbed.options import Options
from testbed.progress import Progress, say

# Server-side validation would cost the download of the whole schema.
_APPLY = ("--server-side", "--force-conflicts", "--validate=false")


class ClusterError(errors.TestbedError):
    """A testbed could not do what was asked."""


class RunningTestbed:
    """A testbed by its name, once it is up; it holds no state beside what is on disk."""

    def __init__(self, name: str = "default", progress: Progress = say) -> None:
        options.validate_name(name)
        self.name = name
        self.state_dir = paths.state(name)
        self._progress = progress

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
            # By the server's address alone, which another testbed may have had before.
            "KUBECACHEDIR": str(self.kubeconfig.parent / "kubectl"),
            "PATH": f"{self.programs}{os.pathsep}{system['PATH']}",
        }

    @property
    def plan(self) -> addresses.Plan:
        """The addresses of the running testbed's node."""
        return addresses.plan(self._require_node().slot or 0)

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

    def node(self, index: int) -> nodes.Node:
        """Return a node by its number.

        Raises:
            ClusterError: when there is none of that number.
        """
        found = self.nodes
        if not 0 <= index < len(found):
            last = len(found) - 1
            raise ClusterError(f"testbed {self.name} has no node {index}; the last is {last}")
        return found[index]

    @property
    def nodes(self) -> list[nodes.Node]:
        """The nodes, up or not; the first has the control plane."""
        return nodes.of(self.state_dir, self.options.nodes)

    def components(self) -> dict[str, Any]:
        """Return the supervisors' view of each component, of further nodes after NODE and /."""
        if not self.holder:
            return {}
        first, *further = self.nodes
        found = first.components()
        for node in further:
            found |= {f"{node.name}/{name}": one for name, one in node.components().items()}
        return found

    def log(self, component: str) -> Path:
        """Return the path of a component's log."""
        name, slash, rest = component.rpartition("/")
        every = nodes.of(self.state_dir, addresses.NODES)
        folders = [node.folder for node in every if slash and node.name == name]
        return (folders or [self.state_dir])[0] / "logs" / f"{rest}.log"

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

    def restart(self, component: str) -> None:
        """Kill a component's process; its supervisor starts it again after a moment."""
        process = self.components().get(component, {}).get("pid")
        if not process:
            raise ClusterError(f"{component} is not running")
        name = component.rpartition("/")[0]
        index = next((node.index for node in self.nodes if node.name == name), 0)
        self.exec(["kill", "-KILL", str(process)], node=index, check=True)

    def log_end(self, component: str, lines: int = 20) -> str:
        """Return the last lines of a component's log."""
        try:
            text = self.log(component).read_text(errors="replace")
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
        """Build images of `testbed.images` if needed, and give each node that is up what it lacks.

        Returns:
            The reference of each, by which pods name it.
        """
        self._require_node()
        wanted = tuple(names)
        ctr = ("ctr", f"--address={components.CONTAINERD_SOCKET}", "--namespace=k8s.io")

        def load(holder: launch.Holder) -> dict[str, str]:
            return images.load(wanted, launch.inside(holder, ctr), self._progress)

        with concurrent.futures.ThreadPoolExecutor() as pool:
            first, *_ = list(pool.map(load, filter(None, (node.holder for node in self.nodes))))
        return first

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
        self,
        argv: Sequence[str],
        *,
        node: int = 0,
        environment: Mapping[str, str] | None = None,
        **popen: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside a node's namespaces, or with no node just on the host."""
        found = self._require_up()
        if node:
            found = self.node(node).require()
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

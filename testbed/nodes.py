"""The further nodes of a testbed: killed, started again, cut off from the first one.

Each is a supervisor of its own with a kubelet, containerd and kube-proxy, in a network that is
linked to the first node's. That has the control plane, routes between the others, and takes them
along when it ends.
"""

import contextlib
import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any

from testbed import addresses, components, errors, launch


class NodeError(errors.TestbedError):
    """A node could not do what was asked."""


@dataclasses.dataclass(frozen=True)
class Node:
    """One of a testbed's nodes, up or not; number 0 is the first."""

    state: Path
    """The testbed's directory."""
    index: int

    @property
    def name(self) -> str:
        """Its name in the cluster."""
        return components.node_name(self.index)

    @property
    def folder(self) -> Path:
        """Its directory."""
        return components.home(self.state, self.index)

    @property
    def holder(self) -> launch.Holder | None:
        """The process that it lives and dies with, None when it is down."""
        return launch.holder(self.folder)

    def components(self) -> dict[str, Any]:
        """Return its supervisor's view of each component, empty when it is down."""
        if not self.holder:
            return {}
        try:
            return json.loads((self.folder / "status.json").read_text())
        except (OSError, ValueError):
            return {}

    def require(self) -> launch.Holder:
        """Return its holder.

        Raises:
            NodeError: when it is down.
        """
        if found := self.holder:
            return found
        raise NodeError(f"node {self.name} is not up")

    def start(self) -> None:
        """Start it, with what its disk has; kubelet and containerd get ready later.

        Raises:
            NodeError: when it is the first one, which `testbed up` starts, or that one is down.
        """
        first = self._first()
        if self.holder:
            return
        launch.end_further(self.folder, first, self.index)
        # No cgroup outlives a machine; the kubelet spends seconds on each that it finds.
        launch.remove_cgroups(components.cgroup(self.state.name, self.index))
        plan = addresses.plan(first.slot or 0)
        launch.start_further(self.folder, first, plan, self.index)

    def kill(self) -> None:
        """Take its power: every process on it ends at once, and its disk stays."""
        launch.end_further(self.folder, self._first(), self.index)

    def cut(self) -> None:
        """Keep from it, and from its pods, what runs on the first node outside of pods.

        That is the API server and the cluster's names. Pods reach each other on all nodes.
        """
        self.mend()
        for rule in self._rules():
            self._on_first("iptables", "-I", *rule)

    def mend(self) -> None:
        """Undo `cut`."""
        for rule in self._rules():
            with contextlib.suppress(subprocess.CalledProcessError):
                self._on_first("iptables", "-D", *rule)

    def _rules(self) -> list[tuple[str, ...]]:
        link = launch.link_to(self.index)
        return [("INPUT", "-i", link, "-j", "DROP"), ("OUTPUT", "-o", link, "-j", "DROP")]

    def _on_first(self, *argv: str) -> None:
        command = launch.inside(self._first(), argv)
        subprocess.run(command, env=launch.environment(), check=True, capture_output=True)

    def _first(self) -> launch.Holder:
        if not self.index:
            raise NodeError(f"{self.name} is the first node: it is up as long as the testbed")
        return Node(self.state, 0).require()


def of(state: Path, count: int) -> list[Node]:
    """Return the nodes of a testbed."""
    return [Node(state, index) for index in range(count)]

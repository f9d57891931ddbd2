"""One testbed from Python: start it and end it."""

import contextlib
import dataclasses
import fcntl
import json
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from testbed import (
    addresses,
    components,
    images,
    launch,
    loopback,
    node,
    paths,
    prepare,
    programs,
    running,
)
from testbed.options import Options, OptionsError
from testbed.running import ClusterError

__all__ = ["ClusterError", "Options", "OptionsError", "Testbed"]


class Testbed(running.RunningTestbed):
    """A testbed that can be started and ended."""

    __test__ = False

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
            self._clean()
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
        began = time.monotonic()
        apiserver_port, etcd_port = loopback.free_ports(2)
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
            self.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=30s")
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
            for further in self.nodes[1:]:
                prepare.write(dataclasses.replace(layout, index=further.index))
                further.start()
            marks = node.furnish(self, wanted)
            if wait:
                node.settle(self, wanted)
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

    def settle(self) -> None:
        """Wait until everything that a testbed with a node was started with is ready."""
        node.settle(self, self.options)

    def down(self) -> None:
        """End the testbed and remove what it left on disk."""
        with self._lock():
            if found := self.holder:
                launch.end(found, self.state_dir)
            self._clean()

    def _clean(self) -> None:
        every = range(addresses.NODES)
        launch.clean(self.state_dir, [components.cgroup(self.name, index) for index in every])

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

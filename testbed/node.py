"""Bringing up a testbed with a node: what is done while the components start."""

import concurrent.futures
import os
import shutil
import time

from testbed import (
    addons,
    addresses,
    components,
    errors,
    images,
    istio,
    launch,
    mesh,
    namespaces,
    outside,
    programs,
)
from testbed.options import Options
from testbed.running import RunningTestbed

_SYSTEM_PROGRAMS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
}
"""Program to the Debian package that has it."""

_ALWAYS = ("pause", "app")


class NeedsError(errors.TestbedError):
    """This machine lacks something that a node needs."""


def check_needs() -> None:
    """Raise NeedsError naming what to do when this machine can't run a node."""
    if os.geteuid() != 0:
        raise NeedsError("a node needs root; --control-plane-only does not")
    path = launch.environment()["PATH"]
    lacking = {
        package
        for program, package in _SYSTEM_PROGRAMS.items()
        if not shutil.which(program, path=path)
    }
    if not namespaces.SYSTEM_CNI_PROGRAMS.is_dir():
        lacking.add("containernetworking-plugins")
    if lacking:
        packages = " ".join(sorted(lacking))
        raise NeedsError(f"missing; run: apt-get install --no-install-recommends {packages}")


def products(wanted: Options) -> tuple[str, ...]:
    """Return the Go products of a node with these options."""
    # Without Istio now, it may still be installed later.
    return (*programs.NODE, "istio", *wanted.extras)


def wanted_images(wanted: Options) -> tuple[str, ...]:
    """Return the images to load before the first pod starts."""
    mesh_images = () if wanted.without_istio else istio.images(cni=wanted.cni)
    return (*_ALWAYS, *mesh_images, *wanted.extras)


def layout(testbed: RunningTestbed, wanted: Options, slot: int) -> components.Layout:
    """Return the facts of a node's components."""
    return components.Layout(
        name=testbed.name,
        state=testbed.state_dir,
        binaries=testbed.programs,
        options=wanted,
        plan=addresses.plan(slot),
        pause_image=images.reference("pause"),
        istiod=_outside(wanted, addresses.plan(slot)),
    )


def _outside(wanted: Options, plan: addresses.Plan) -> outside.Process | None:
    installation = _mesh(wanted, plan)
    if installation is None or not installation.outside:
        return None
    return outside.Process.read(istio.render(installation).process)


def furnish(testbed: RunningTestbed, wanted: Options) -> dict[str, float]:
    """Load images and install what the options ask for, on components that are starting.

    Returns:
        Seconds from now to each milestone.
    """
    began = time.monotonic()
    marks: dict[str, float] = {}

    def mark(name: str) -> None:
        marks[name] = time.monotonic() - began

    def load() -> None:
        testbed.wait_for("containerd")
        testbed.wait_for(*(f"{node.name}/containerd" for node in testbed.nodes[1:]))
        testbed.load_images(wanted_images(wanted))
        mark("images")

    mesh_wanted = _mesh(wanted, testbed.plan)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        loading = pool.submit(load)
        testbed.wait_for("kube-apiserver")
        mark("apiserver")
        testbed.apply(addons.dump(addons.cluster_dns(testbed.plan)))
        if mesh_wanted:
            mesh.apply_settings(testbed, mesh_wanted)
        late: list[dict[str, object]] = []
        if "training-operator" in wanted.extras:
            early, late = addons.training_operator(
                images.reference("training-operator"), images.reference("app")
            )
            testbed.apply(addons.dump(early))
        loading.result()
        if mesh_wanted:
            mesh.apply_workloads(testbed, mesh_wanted)
        if late:
            testbed.apply(addons.dump(late))
    mark("installed")
    return marks


def settle(testbed: RunningTestbed, wanted: Options) -> None:
    """Wait until everything that the options ask for is ready."""
    testbed.wait_for(*testbed.components())
    names = [f"node/{node.name}" for node in testbed.nodes]
    testbed.kubectl("wait", "--for=create", *names, "--timeout=120s")
    testbed.kubectl("wait", "--for=condition=Ready", *names, "--timeout=120s")
    if mesh_wanted := _mesh(wanted, testbed.plan):
        mesh.wait(testbed, mesh_wanted)
    if "training-operator" in wanted.extras:
        where = ("--namespace", addons.TRAINING_OPERATOR, "--timeout=120s")
        testbed.kubectl("rollout", "status", f"deployment/{addons.TRAINING_OPERATOR}", *where)


def _mesh(wanted: Options, plan: addresses.Plan) -> istio.Installation | None:
    if wanted.without_istio:
        return None
    return mesh.installation(
        revision=wanted.revision,
        classic_sidecars=wanted.classic_sidecars,
        cni=wanted.cni,
        outside=str(plan.istiod) if wanted.external_istiod else "",
    )

"""A testbed whose supervisor is killed leaves no process, mount, interface or rule."""

import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

from testbed import cluster

pytestmark = pytest.mark.timeout(300)

PROGRAMS = re.compile(
    r"etcd|kube-|kubelet|containerd|coredns|pilot-|envoy|pebble|runc|training-operator|pause"
)


def output(*argv):
    """The lines that a command prints, empty when the machine does not have it."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return frozenset()
    return frozenset(re.sub(r"\[\d+:\d+\]", "", line) for line in done.stdout.splitlines())


def machine():
    """What a testbed could leave on the machine."""
    links = output("ip", "-o", "link")
    return {
        "processes": frozenset(
            (path.name, command)
            for path in pathlib.Path("/proc").glob("[0-9]*")
            if (command := command_of(path)) and PROGRAMS.search(command.split(" ")[0])
        ),
        "mounts": frozenset(pathlib.Path("/proc/self/mountinfo").read_text().splitlines()),
        "interfaces": frozenset(line.split(": ")[1].split("@")[0] for line in links),
        "routes": output("ip", "route"),
        "rules": output("iptables-save"),
    }


def command_of(process):
    """A process's command line; empty when it is gone or the kernel's."""
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def test_a_killed_supervisor_leaves_nothing(root):
    testbed = cluster.Testbed(f"e2e-killed-{os.getpid()}")
    before = machine()
    try:
        testbed.up(cluster.Options(without_istio=True))
        during = machine()
        assert during["processes"] > before["processes"]
        assert during["interfaces"] > before["interfaces"]
        os.kill(testbed.holder.pid, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while left := difference(before, machine()):
            assert time.monotonic() < deadline, left
            time.sleep(0.1)
    finally:
        testbed.down()
    assert difference(before, machine()) == {}
    assert not testbed.state_dir.joinpath("supervisor.pid").exists()


def difference(before, after):
    """What is there now and was not before."""
    return {name: new for name in before if (new := after[name] - before[name])}

"""A testbed whose supervisor is killed leaves no process, mount, interface or rule."""

import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

from testbed import addresses, cluster, launch, paths

# There it fits into the time in which applications grow a minute old.
pytestmark = [pytest.mark.cluster("today"), pytest.mark.timeout(300)]

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


def machine(testbed):
    """What a testbed could leave on the machine, where others run at the same time."""
    holders = [
        holder
        for state in paths.states().glob("*/")
        if state != testbed.state_dir and (holder := launch.holder(state))
    ]
    links = {addresses.plan(each.slot).interface for each in holders if each.slot is not None}
    interfaces = {line.split(": ")[1].split("@")[0] for line in output("ip", "-o", "link")} - links
    return {
        "processes": frozenset(
            (path.name, command)
            for path in pathlib.Path("/proc").glob("[0-9]*")
            if (command := command_of(path))
            and PROGRAMS.search(command.split(" ")[0])
            and not ancestors(path.name) & {each.pid for each in holders}
        ),
        "mounts": frozenset(pathlib.Path("/proc/self/mountinfo").read_text().splitlines()),
        "interfaces": frozenset(interfaces),
        "routes": frozenset(
            line for line in output("ip", "route") if not links & set(line.split())
        ),
        "rules": output("iptables-save"),
    }


def ancestors(process):
    """The process ids above a process, as far as they are still there."""
    found = set()
    while int(process):
        try:
            text = pathlib.Path("/proc", str(process), "stat").read_text()
        except OSError:
            break
        process = int(text.rpartition(")")[2].split()[1])
        found.add(process)
    return found


def command_of(process):
    """A process's command line; empty when it is gone or the kernel's."""
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def test_a_killed_supervisor_leaves_nothing(root):
    testbed = cluster.Testbed(f"e2e-killed-{os.getpid()}")
    before = machine(testbed)
    try:
        testbed.up(cluster.Options(without_istio=True))
        during = machine(testbed)
        assert difference(before, during).keys() >= {"processes", "interfaces"}
        os.kill(testbed.holder.pid, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while left := difference(before, machine(testbed)):
            assert time.monotonic() < deadline, left
            time.sleep(0.1)
    finally:
        testbed.down()
    assert difference(before, machine(testbed)) == {}
    assert not testbed.state_dir.joinpath("supervisor.pid").exists()


def difference(before, after):
    """What is there now and was not before."""
    return {name: new for name in before if (new := after[name] - before[name])}

"""Starting and ending the supervisor, and what belongs to it on the host."""

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from testbed import addresses, errors, namespaces, paths

_UNSHARE = (
    "unshare",
    "--net",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child=SIGKILL",
    "--mount-proc",
    "--",
)


_INTO = "nsenter", "--pid"
"""A further node's processes are in a PID namespace below the first one's and end with it."""


class LaunchError(errors.TestbedError):
    """The supervisor could not be started or ended."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Holder:
    """The process that a testbed lives and dies with, as recorded in its state directory."""

    pid: int
    """Of `unshare`, of `nsenter` for a further node, of the supervisor when there is no node."""
    started: str
    """Its start in clock ticks, since process ids are used again."""
    init: int
    """The supervisor, as the host sees it."""
    slot: int | None
    """None without a node."""
    link: int = 0
    """Index of the host's end of the link; the next testbed in the slot gets another."""

    @property
    def alive(self) -> bool:
        """Tell whether this very process still runs."""
        return start_ticks(self.pid) == self.started


def environment() -> dict[str, str]:
    """Return the environment of the system's programs, which Debian keeps out of some PATHs."""
    path = os.environ.get("PATH", os.defpath)
    return {**os.environ, "PATH": f"{path}{os.pathsep}/usr/sbin{os.pathsep}/sbin"}


def start_ticks(pid: int) -> str:
    """Return when a process was started, empty when it is gone or only a zombie is left."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The command's name, in parentheses, may itself hold spaces and parentheses.
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def holder(state: Path) -> Holder | None:
    """Return the running holder of a state directory, if any."""
    found = _recorded(state)
    return found if found and found.alive else None


def _recorded(state: Path) -> Holder | None:
    try:
        return Holder(**json.loads((state / "supervisor.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


@contextlib.contextmanager
def slot_lock() -> Iterator[None]:
    """Hold the lock under which slots are chosen and links are made."""
    paths.states().mkdir(parents=True, exist_ok=True)
    with (paths.states() / ".slots.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def free_slot() -> int:
    """Return a slot that no running testbed of this user and no route of the host uses."""
    taken = {slot for slot in range(addresses.SLOTS) if _link_index(slot)}
    for state in paths.states().glob("*/supervisor.json"):
        found = holder(state.parent)
        if found and found.slot is not None:
            taken.add(found.slot)
    output = subprocess.run(
        ["ip", "-4", "-json", "route", "show", "table", "all"],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    routes = addresses.parse_routes(route["dst"] for route in json.loads(output or "[]"))
    return addresses.choose_slot(taken, routes)


def start(state: Path, plan: addresses.Plan | None) -> Holder:
    """Start the supervisor on `spec.json`, and with a plan link its network to the host."""
    process = _spawn(state, _UNSHARE if plan else ())
    init = _child(process, process.pid) if plan else process.pid
    found = _begun(state, process, init, plan.slot if plan else None)
    if plan:
        with _ending_on_failure(found, state, "linking the node to the host"):
            _link(plan, init)
        found = dataclasses.replace(found, link=_link_index(plan.slot))
        _record(state, found)
    return found


def start_further(state: Path, first: Holder, plan: addresses.Plan, index: int) -> None:
    """Start the supervisor of a further node, and link its network to the first one's."""
    # What an earlier run has left says nothing of this one.
    (state / "status.json").unlink(missing_ok=True)
    process = _spawn(state, (*_INTO, f"--target={first.init}", "--", *_UNSHARE))
    init = _child(process, _child(process, process.pid))
    found = _begun(state, process, init, first.slot)
    with _ending_on_failure(found, state, "linking the node to the first one"):
        for command in _further_link(plan, index, first.init, init):
            _system(*command)


def _spawn(state: Path, wrapper: Sequence[str]) -> subprocess.Popen[bytes]:
    log = (state / "logs" / "supervisor.log").open("ab")
    supervisor = (sys.executable, "-m", "testbed.supervisor", str(state))
    with log:
        return subprocess.Popen(
            [*wrapper, *supervisor],
            cwd=state,
            env={**environment(), "PYTHONPATH": str(paths.SOURCE)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _begun(state: Path, process: subprocess.Popen[bytes], init: int, slot: int | None) -> Holder:
    found = Holder(pid=process.pid, started=start_ticks(process.pid), init=init, slot=slot)
    _record(state, found)
    # The testbed outlives this program; Popen would complain about that.
    process.returncode = 0
    return found


@contextlib.contextmanager
def _ending_on_failure(found: Holder, state: Path, what: str) -> Iterator[None]:
    try:
        yield
    except subprocess.CalledProcessError as error:
        end(found, state)
        raise LaunchError(f"{what} failed: {error.stderr}") from error


def _record(state: Path, found: Holder) -> None:
    scratch = state / ".supervisor.json"
    scratch.write_text(json.dumps(dataclasses.asdict(found)))
    scratch.rename(state / "supervisor.json")


def _link_index(slot: int) -> int:
    try:
        return int(Path("/sys/class/net", addresses.plan(slot).interface, "ifindex").read_text())
    except OSError:
        return 0


def _child(process: subprocess.Popen[bytes], parent: int) -> int:
    children = Path(f"/proc/{parent}/task/{parent}/children")
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            # Between fork and the new program the child still looks like unshare itself.
            for pid in children.read_text().split():
                if "testbed.supervisor" in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
                    return int(pid)
        if process.poll() is not None:
            raise LaunchError("unshare failed; see logs/supervisor.log")
        time.sleep(0.01)
    raise LaunchError("unshare did not start the supervisor")


def _system(*argv: object) -> None:
    subprocess.run(
        [*map(str, argv)], env=environment(), check=True, capture_output=True, text=True
    )


def _ip(*argv: object) -> None:
    _system("ip", *argv)


def _link(plan: addresses.Plan, init: int) -> None:
    name = plan.interface
    peer = ("peer", "name", namespaces.LINK, "netns", init)
    _ip("link", "add", name, "type", "veth", *peer)
    _ip("address", "add", f"{plan.host}/{plan.link.prefixlen}", "dev", name)
    _ip("link", "set", name, "up")
    for network in (plan.services, plan.pods):
        _ip("route", "add", network, "via", plan.node, "dev", name)


def _further_link(
    plan: addresses.Plan, index: int, first: int, further: int
) -> list[tuple[object, ...]]:
    """Return the commands that link a further node to the first; the first one's end is as new."""
    name, gateway, address = link_to(index), plan.gateway_to(index), plan.node_of(index)
    on_first = ("nsenter", f"--target={first}", "--net", "--", "ip")
    peer = ("peer", "name", namespaces.LINK, "netns", further)
    return [
        ("ip", "link", "add", name, "netns", first, "type", "veth", *peer),
        (*on_first, "address", "add", f"{gateway}/{plan.link.prefixlen}", "dev", name),
        (*on_first, "link", "set", name, "up"),
        (*on_first, "route", "add", plan.pods_of(index), "via", address, "dev", name),
    ]


def link_to(index: int) -> str:
    """Return the name of the first node's end of the link to a further one."""
    return f"further{index}"


def end_further(state: Path, first: Holder, index: int) -> None:
    """Kill a further node, as if its power had failed, and wait until nothing of it runs."""
    if found := holder(state):
        end(found, state)
    # Connections that nobody ends would keep it for a while.
    with contextlib.suppress(subprocess.CalledProcessError):
        _system(*inside(first, ["ip", "link", "delete", link_to(index)]))


def end(found: Holder, state: Path) -> None:
    """Kill the supervisor and wait until nothing of it is left.

    Raises:
        LaunchError: when processes or the link are still there after a while.
    """
    components = component_pids(state) if found.slot is None else []
    for pid in (found.init, found.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while True:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(found.pid, os.WNOHANG)
        left = [pid for pid in (found.pid, found.init, *components) if start_ticks(pid)]
        if not left and not _unlink(found):
            return
        if time.monotonic() > deadline:
            raise LaunchError(f"processes {left} or the link of {state.name} are still there")
        time.sleep(0.02)


def _unlink(found: Holder) -> bool:
    """Delete the link, which else goes once the kernel has given up the last connection.

    Returns:
        Whether it was still there.
    """
    if found.slot is None or not found.link or _link_index(found.slot) != found.link:
        return False
    with contextlib.suppress(subprocess.CalledProcessError):
        _ip("link", "delete", addresses.plan(found.slot).interface)
    return True


def component_pids(state: Path) -> list[int]:
    """Return the process ids in `status.json`; those of a node count in its own namespace."""
    try:
        status: dict[str, Any] = json.loads((state / "status.json").read_text())
    except (OSError, ValueError):
        return []
    return [entry["pid"] for entry in status.values() if entry["pid"]]


def clean(state: Path, cgroups: Iterable[str]) -> None:
    """Remove the files, empty cgroup directories and a late link that an ended testbed left."""
    if found := _recorded(state):
        _unlink(found)
    for cgroup in cgroups:
        remove_cgroups(cgroup)
    if state.exists():
        shutil.rmtree(state)


def remove_cgroups(cgroup: str) -> None:
    """Remove a cgroup and those below it, in each hierarchy, where no process is left."""
    for directory in namespaces.cgroup_directories(cgroup):
        for folder, _, _ in os.walk(directory, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()


def inside(found: Holder, argv: Sequence[str], directory: Path | None = None) -> list[str]:
    """Return the command line that runs another one inside the node's namespaces."""
    where = directory or Path.cwd()
    if where.is_relative_to("/run"):
        # The node has a /run of its own.
        where = Path("/")
    return [
        "nsenter",
        f"--target={found.init}",
        "--net",
        "--mount",
        "--pid",
        f"--wd={where}",
        "--",
        *argv,
    ]

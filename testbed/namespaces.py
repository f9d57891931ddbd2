"""What the supervisor of a node prepares inside its own namespaces, before any component."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed import components, outside

LINK = "node0"
"""Name of a node's end of its link, to the host or to the first node."""

SYSTEM_CNI_PROGRAMS = Path("/usr/lib/cni")
"""Where Debian's containernetworking-plugins are."""

# The kubelet insists on these and would set them for the whole machine. A file laid over each
# inside the mount namespace lets it find what it wants.
_KERNEL_SETTINGS: Mapping[str, str] = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}

_NETWORK_SETTINGS: Mapping[str, str] = {
    "ip_forward": "1",
    "conf/all/rp_filter": "0",
    # A connection whose ends were both killed would keep the network alive for two minutes.
    "tcp_orphan_retries": "1",
}


def _run(*argv: str | Path) -> None:
    subprocess.run(argv, check=True)


def furnish(node: Mapping[str, Any]) -> None:
    """Mount what keeps the host's files clean, and bring up the network.

    Args:
        node: the part of `spec.json` that says `keep` (directories that must stay visible),
            `address` on the link, `routes` (arguments of `ip route add`), `cgroup`, `networks`
            (directory of the configuration of pod networks), and `istiod` (`address` and
            `gateway` of one outside of the cluster, or nothing).
    """
    _mounts([Path(path) for path in node["keep"]])
    _pod_networks(Path(node["networks"]))
    _settings()
    _cgroups(node["cgroup"])
    _network(node["address"], node["routes"])
    if istiod := node["istiod"]:
        for command in outside.network(istiod["address"], istiod["gateway"]):
            _run(*command)


def _mounts(keep: Sequence[Path]) -> None:
    # Volumes of pods must reach the containers that the same namespace starts later.
    _run("mount", "--make-rshared", "/")
    _run("mount", "-t", "tmpfs", "tmpfs", "/run")
    kept = [path for path in keep if path.is_relative_to("/var") or path.is_relative_to("/run")]
    if any(path.is_relative_to("/run") for path in kept):
        raise SystemExit("the state directory can't be below /run, which is private to a testbed")
    # The kubelet, CNI and their plugins write to fixed places below /var.
    for name in ("upper", "work", "lower"):
        Path("/run/var", name).mkdir(parents=True)
    _run("mount", "--rbind", "/var", "/run/var/lower")
    options = "lowerdir=/run/var/lower,upperdir=/run/var/upper,workdir=/run/var/work"
    _run("mount", "-t", "overlay", "overlay", "-o", options, "/var")
    for path in kept:
        _run("mount", "--bind", Path("/run/var/lower") / path.relative_to("/var"), path)


def _pod_networks(networks: Path) -> None:
    """Lay out what Istio's CNI installer adds to, so that the machine's own stays as it is."""
    programs = Path(components.CNI_PROGRAMS)
    programs.mkdir(parents=True)
    for program in SYSTEM_CNI_PROGRAMS.iterdir():
        (programs / program.name).symlink_to(program)
    Path(components.CNI_NETWORKS).symlink_to(networks)


def _settings() -> None:
    for name, value in _KERNEL_SETTINGS.items():
        setting = Path("/proc/sys") / name
        if not setting.exists() or setting.read_text().strip() == value:
            continue
        cover = Path("/run/kernel-settings") / name
        cover.parent.mkdir(parents=True, exist_ok=True)
        cover.write_text(value)
        _run("mount", "--bind", cover, setting)


def cgroup_directories(cgroup: str) -> list[Path]:
    """Return the directory of a cgroup in each hierarchy: many in version 1, one in 2."""
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists():
        return [root / cgroup.lstrip("/")]
    found: dict[Path, None] = {}
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind in {"cgroup", "cgroup2"}:
            found[Path(place) / cgroup.lstrip("/")] = None
    return list(found)


def _cgroups(cgroup: str) -> None:
    for directory in cgroup_directories(cgroup):
        directory.mkdir(exist_ok=True)
        control = directory / "cgroup.subtree_control"
        available = directory / "cgroup.controllers"
        if control.exists() and available.exists():
            names = available.read_text().split()
            control.write_text(" ".join(f"+{name}" for name in names))
        # A version 1 child starts without processors and refuses every process.
        for name in ("cpuset.cpus", "cpuset.mems"):
            own = directory / name
            if own.exists() and not (directory / "cgroup.controllers").exists():
                own.write_text((directory.parent / name).read_text())


def _network(address: str, routes: Sequence[Sequence[str]]) -> None:
    _run("ip", "link", "set", "lo", "up")
    deadline = time.monotonic() + 20
    while not Path("/proc/sys/net/ipv4/conf", LINK).exists():
        if time.monotonic() > deadline:
            raise SystemExit(f"the link {LINK} did not appear")
        time.sleep(0.01)
    _run("ip", "address", "add", f"{address}/30", "dev", LINK)
    _run("ip", "link", "set", LINK, "up")
    for route in routes:
        _run("ip", "route", "add", *route)
    for name, value in _NETWORK_SETTINGS.items():
        Path("/proc/sys/net/ipv4", name).write_text(value)

"""The Debian (or Ubuntu) below the images: the host's own suite from the host's own mirror."""

import dataclasses
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath

from testbed.images.errors import ImageError
from testbed.images.tree import Tree, content_key

Progress = Callable[[str], None]

_ARGUMENTS = ("--variant=minbase", "--include=python3,ca-certificates,iptables")
"""What to bootstrap, as debootstrap's options."""

ROOTFS = "rootfs-"
"""What the names of bootstrapped systems in the cache begin with."""

_LEFT_OUT = re.compile(
    r"(dev|proc|sys|run|tmp|mnt)/.+"
    r"|etc/(hostname|machine-id|resolv\.conf|[^/]+-)"
    r"|var/(cache|log|backups)/.+|var/lib/(apt|dpkg/info|systemd)/.+"
    r"|usr/share/(doc|man|locale|info|lintian|bash-completion|bug|common-licenses)/.+"
    r"|usr/lib/[^/]+/(gconv|perl)/.+|usr/lib/python3[.\d]*/(lib2to3|pydoc_data|test)/.+"
)
"""Paths that no image needs, and what debootstrap leaves that differs from run to run."""

_COMPILE = """
import compileall, py_compile, sysconfig
# Bytecode that holds a hash depends on nothing but the source, and is never checked against it.
mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
for path in (sysconfig.get_path("stdlib"), "/usr/lib/python3"):
    compileall.compile_dir(path, force=True, quiet=2, invalidation_mode=mode)
"""


@dataclasses.dataclass(frozen=True)
class Suite:
    """What to bootstrap, and from where."""

    codename: str
    mirror: str


def host_suite() -> Suite:
    """Return the host's suite and the mirror that its apt is configured with.

    Raises:
        ImageError: when the host is no Debian or Ubuntu, or its apt knows no usable mirror.
    """
    codename = _codename()
    targets = _run(
        [
            "apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(CODENAME) $(COMPONENT)",
            "Created-By: Packages",
        ]
    )  # fmt: skip
    mirror = find_mirror(targets, codename)
    if mirror is None:
        raise ImageError(f"apt has no source for {codename} main that debootstrap can read")
    return Suite(codename, mirror)


def find_mirror(targets: str, codename: str) -> str | None:
    """Return the first mirror among apt's index targets that has the suite itself.

    Args:
        targets: lines of site, release, codename and component; the codename is missing while
            apt has not been updated yet.
        codename: of the suite, not of its updates or security archive.
    """
    for line in targets.splitlines():
        site, *names = line.split()
        readable = site.startswith(("http://", "https://", "file:", "ftp://"))
        if readable and names[:1] == [codename] and names[-1] == "main":
            return site
    return None


def key() -> str:
    """Return the key of the layers that are made here."""
    return content_key(_rootfs_key(), Path(__file__))


def _rootfs_key() -> str:
    # An edit elsewhere in this module is no reason to bootstrap again.
    return content_key(_codename(), platform.machine(), *_ARGUMENTS, _COMPILE)


def rootfs(cache: Path, progress: Progress) -> Path:
    """Return the directory of the bootstrapped system, made at first use.

    Args:
        cache: where it is kept.
        progress: called with a line now and then.

    Raises:
        ImageError: when debootstrap is missing, fails, or is not run by root.
    """
    target = cache / f"{ROOTFS}{_rootfs_key()[:16]}"
    if target.is_dir():
        os.utime(target)
        return target
    if os.geteuid() != 0:
        raise ImageError("images are built by root: debootstrap needs chroot")
    if not shutil.which("debootstrap"):
        raise ImageError("debootstrap is missing: apt-get install debootstrap")
    part = cache / f"{target.name}.part"
    shutil.rmtree(part, ignore_errors=True)
    _bootstrap(part, host_suite(), progress)
    part.rename(target)
    return target


def python_version(root: Path) -> str:
    """Return the version of the system's Python as in `3.11`."""
    return str((root / "usr/bin/python3").readlink()).removeprefix("python")


def base(tree: Tree, root: Path) -> None:
    """Fill the layer that every image with a Python has."""
    tree.copy_all(root, skip=is_left_out)


def is_left_out(path: str) -> bool:
    """Say whether a path of the bootstrapped system stays out of the base layer."""
    return _LEFT_OUT.fullmatch(path) is not None


def runtime(tree: Tree, root: Path) -> None:
    """Fill the layer below the proxy: the C library, iptables, certificates, and no shell."""
    installed = _run(
        ["chroot", str(root), "dpkg-query", "-W", "-f", "${Package}\t${Pre-Depends}, ${Depends}\n"]
    )
    depends = dict(line.split("\t", 1) for line in installed.splitlines())
    packages = closure(["iptables", "libc6"], depends)
    links = {path.name: path for path in root.iterdir() if path.is_symlink()}
    for name, path in links.items():
        tree.copy(path, name)
    for listed in _run(["chroot", str(root), "dpkg-query", "-L", *packages]).splitlines():
        path = _real_path(listed, links)
        if _is_needed(root / path) and not _is_documentation(path):
            tree.copy(root / path, path)
    for pattern in ("usr/sbin/ip*tables*", "etc/alternatives/ip*tables*"):
        for found in root.glob(pattern):
            if found.is_symlink():
                tree.copy(found, found.relative_to(root).as_posix())
    tree.copy(root / "etc/ssl/certs/ca-certificates.crt", "etc/ssl/certs/ca-certificates.crt")
    tree.copy(root / "etc/nsswitch.conf", "etc/nsswitch.conf")
    tree.directory("run")
    tree.directory("tmp", mode=0o1777)


def closure(roots: Iterable[str], depends: Mapping[str, str]) -> list[str]:
    """Return packages with all they depend on, of those that are installed.

    Args:
        roots: packages to begin with.
        depends: each installed package's dependencies as dpkg writes them.
    """
    found: dict[str, None] = {}
    waiting = list(roots)
    while waiting:
        package = waiting.pop()
        if package in found or package not in depends:
            continue
        found[package] = None
        for group in depends[package].split(","):
            names = [re.split(r"[\s(:]", option.strip())[0] for option in group.split("|")]
            waiting.extend([name for name in names if name in depends][:1])
    return sorted(found)


def _codename() -> str:
    release = platform.freedesktop_os_release()
    if not {"debian", "ubuntu"} & {release.get("ID", ""), *release.get("ID_LIKE", "").split()}:
        raise ImageError("images are built on Debian or Ubuntu: this host is neither")
    codename = release.get("VERSION_CODENAME", "")
    if not codename:
        raise ImageError("/etc/os-release names no VERSION_CODENAME")
    return codename


def _bootstrap(target: Path, suite: Suite, progress: Progress) -> None:
    progress(f"base: bootstrapping {suite.codename}, about a minute")
    # What debootstrap mounts is gone with this namespace, also when it is interrupted.
    argv = [
        *("unshare", "--mount", "debootstrap", *_ARGUMENTS),
        *(suite.codename, str(target), suite.mirror),
    ]
    said: list[str] = []
    spoke = time.monotonic()
    with subprocess.Popen(
        argv, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if time.monotonic() - spoke > 10:
                spoke = time.monotonic()
                progress(f"base: {line.strip()}")
    if process.returncode:
        raise ImageError(f"debootstrap failed:\n{''.join(said[-15:])}")
    _run(["chroot", str(target), "python3", "-c", _COMPILE])


def _environment() -> dict[str, str]:
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    for scheme in ("http", "https"):
        proxy = re.search(
            r"='(.+)'", _run(["apt-config", "shell", "P", f"Acquire::{scheme}::Proxy"])
        )
        if proxy and proxy.group(1) != "DIRECT":
            environment.setdefault(f"{scheme}_proxy", proxy.group(1))
    return environment


def _real_path(listed: str, links: Mapping[str, Path]) -> str:
    """Return a path of a package without the links of the merged /usr, relative to the root."""
    parts = PurePosixPath(listed.lstrip("/")).parts
    if len(parts) > 1 and parts[0] in links:
        parts = (str(links[parts[0]].readlink()).lstrip("/"), *parts[1:])
    return "/".join(parts) if parts != (".",) else ""


def _is_needed(path: Path) -> bool:
    if path.is_symlink():
        return True
    # A script would need an interpreter, and there is none.
    return path.is_file() and path.read_bytes()[:2] != b"#!"


def _is_documentation(path: str) -> bool:
    return path.startswith(("usr/share/", "usr/include/")) or "/gconv/" in path


def _run(argv: list[str]) -> str:
    try:
        run = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise ImageError(f"{argv[0]} is missing on this host") from error
    if run.returncode:
        raise ImageError(f"{' '.join(argv[:4])} failed: {run.stderr.strip()[-500:]}")
    return run.stdout

"""Pack the charm with charmcraft, on this machine as it is.

charmcraft builds for the release that it runs on. On Ubuntu 24.04 that is a platform of
charmcraft.yaml, and the result is what is published. Elsewhere a copy of the project gets this
machine's release as a platform: the same recipe and content, for trying out only.
"""

import contextlib
import fcntl
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from testbed import command_line, environments, errors, paths

_COPIED = (
    "charmcraft.yaml", "requirements", "metadata.yaml", "config.yaml", "actions.yaml", "icon.svg",
    "LICENSE", "README.md", "src", "lib", "templates", "rbac",
)  # fmt: skip
"""What the recipe and its parts read."""
_IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
_SYSTEM_PYTHON = "/usr/bin/python3"
_SYSTEM_MODULES = Path("/usr/lib/python3/dist-packages")
ADDRESSES = ("docs", "issues", "source", "website")
"""Keys of metadata.yaml for public addresses, which everything that names one reads from there."""
_STARTED = re.compile(rb"^(charmcraft-started-at: ).*", re.MULTILINE)
_CHECKED, _UNCHECKED = b"\3\0\0\0", b"\1\0\0\0"
"""Flags of bytecode with a hash of its source, by PEP 552: compared at import, or not."""
_IGNORED_LINTERS = "entrypoint,language,framework"
"""They look for an older way in which `dispatch`, which charmcraft writes, names the charm."""


class CharmcraftError(errors.TestbedError):
    """charmcraft can't run here, or says no."""


def release() -> str:
    """Return this machine's release and architecture as charmcraft writes platforms."""
    system = platform.freedesktop_os_release()
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    return f"{system['ID']}@{system['VERSION_ID']}:{architecture}"


def build(source: Path, out: Path) -> Path:
    """Pack a charm and have its linters look at it.

    Args:
        source: The charm's folder.
        out: The folder to put `NAME.charm` into.

    Returns:
        The archive.

    Raises:
        CharmcraftError: charmcraft failed, or its linters found an error.
    """
    with _empty_project() as project:
        for entry in _COPIED:
            if (source / entry).is_dir():
                shutil.copytree(source / entry, project / entry, ignore=_IGNORED)
            elif (source / entry).exists():
                shutil.copy2(source / entry, project / entry)
        recipe: dict[str, Any] = yaml.safe_load((project / "charmcraft.yaml").read_text())
        recipe["platforms"] = {release(): None}
        (project / "charmcraft.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
        _charmcraft(project, "pack", "--destructive-mode", "--platform", release())
        packed = next(project.glob("*.charm"))
        _charmcraft(project, "analyse", packed.name, f"--ignore={_IGNORED_LINTERS}")
        name = yaml.safe_load((source / "metadata.yaml").read_text())["name"]
        out.mkdir(parents=True, exist_ok=True)
        target = out / f"{name}.charm"
        _write_reproducibly(packed, target)
    return target


@contextlib.contextmanager
def _empty_project() -> Iterator[Path]:
    """Yield the folder to build in. Its path is in what is built, so every build has the same."""
    folder = paths.cache() / "charmcraft"
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder / "scratch"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(scratch, ignore_errors=True)
        (scratch / "project").mkdir(parents=True)
        try:
            yield scratch / "project"
        finally:
            shutil.rmtree(scratch)


def _write_reproducibly(packed: Path, target: Path) -> None:
    """Copy an archive without what differs between builds: order, times and modes of its files."""
    with (
        zipfile.ZipFile(packed) as source,
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name in sorted(source.namelist()):
            content = source.read(name)
            if name == "manifest.yaml":
                content = _STARTED.sub(rb"\g<1>1980-01-01T00:00:00+00:00", content)
            elif name.endswith(".pyc") and content[4:8] == _CHECKED:
                content = content[:4] + _UNCHECKED + content[8:]
            entry = zipfile.ZipInfo(name)
            is_program = source.getinfo(name).external_attr >> 16 & stat.S_IXUSR
            entry.external_attr = (stat.S_IFREG | (0o755 if is_program else 0o644)) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)


def missing(source: Path) -> list[str]:
    """Return the public addresses that a charm's metadata.yaml does not have.

    Args:
        source: The charm's folder.
    """
    metadata: dict[str, Any] = yaml.safe_load((source / "metadata.yaml").read_text())
    return [key for key in ADDRESSES if not metadata.get(key)]


def _charmcraft(project: Path, *arguments: str) -> None:
    program = environment() / "bin" / "charmcraft"
    places = {f"XDG_{kind}_HOME": str(project.parent / kind) for kind in ("STATE", "DATA")}
    runtime = project.parent / "run"
    runtime.mkdir(exist_ok=True)
    command = [program, *arguments, "--verbosity=brief"]
    run = subprocess.run(
        command,
        cwd=project,
        env={**os.environ, **places, "XDG_RUNTIME_DIR": str(runtime)},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise CharmcraftError(f"charmcraft {arguments[0]}: {(run.stdout + run.stderr).strip()}")


def environment() -> Path:
    """Return charmcraft's own Python environment, made when it is missing."""
    modules = [*_SYSTEM_MODULES.glob("apt"), *_SYSTEM_MODULES.glob("apt_pkg.*.so")]
    if not modules:
        raise CharmcraftError("charmcraft needs apt's Python modules: apt-get install python3-apt")
    return environments.ensure("charmcraft", _SYSTEM_PYTHON, modules)


def main(argv: list[str] | None = None) -> int:
    """Pack from the command line: `python -m testbed.charmcraft`."""
    parser = command_line.parser(
        "testbed.charmcraft",
        "Pack the charm with charmcraft, for the release of this machine.",
        "python -m testbed.charmcraft --output build",
    )
    parser.add_argument("charm", type=Path, nargs="?", default=paths.SOURCE, help="its folder")
    parser.add_argument("--output", type=Path, default=Path("build"), metavar="FOLDER")
    parser.add_argument(
        "--release", action="store_true", help="fail where a public address is missing"
    )
    arguments = parser.parse_args(argv)
    if keys := missing(arguments.charm):
        listed = ", ".join(keys)
        if arguments.release:
            print(f"charmcraft: metadata.yaml needs an address for: {listed}", file=sys.stderr)
            return 1
        print(
            f"charmcraft: not for publication, as it has no address for {listed}", file=sys.stderr
        )
    print(f"charmcraft: packing for {release()}", file=sys.stderr, flush=True)
    try:
        print(build(arguments.charm, arguments.output))
    except errors.TestbedError as error:
        print(f"charmcraft: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

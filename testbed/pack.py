"""Pack a charm's folder into an archive with the content that `charmcraft pack` gives it.

Packages are installed from wheels, for the Python of the charm image, which is this machine's.
`testbed.charmcraft` packs with charmcraft itself.
"""

import compileall
import hashlib
import os
import platform
import py_compile
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import yaml

from testbed import command_line, errors, paths
from testbed.images import debian

_COPIED = (
    "metadata.yaml", "config.yaml", "actions.yaml", "icon.svg", "LICENSE", "README.md",
    "src", "lib", "templates", "rbac",
)  # fmt: skip
"""What goes into the archive, if the charm has it."""

_IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
_REQUIREMENTS = ("requirements/charm.txt", "requirements.txt")

_DISPATCH = """#!/bin/sh
dispatch_path="$(dirname "$(realpath "$0")")"
python_path="${dispatch_path}/venv/bin/python"
if [ ! -e "${python_path}" ]; then
    mkdir -p "${dispatch_path}/venv/bin"
    ln -s "$(command -v python3)" "${python_path}"
fi
export PYTHONPATH="${dispatch_path}/lib:${dispatch_path}/src"
export LD_LIBRARY_PATH="${dispatch_path}/usr/lib:${dispatch_path}/lib"
exec "${python_path}" "${dispatch_path}/src/charm.py"
"""
_PYVENV = "home = /usr/bin\ninclude-system-site-packages = false\nversion = {}\n"


class PackError(errors.TestbedError):
    """The folder is not a charm, or its packages cannot be installed."""


def pack(source: Path, out: Path) -> Path:
    """Pack a charm and return the archive, `NAME.charm`.

    Args:
        source: The charm's folder, with metadata.yaml and src/charm.py.
        out: The folder of the archive.

    Raises:
        PackError: The folder is not a charm, or its packages cannot be installed.
    """
    if not (source / "metadata.yaml").exists() or not (source / "src" / "charm.py").exists():
        raise PackError(f"{source}: not a charm: metadata.yaml or src/charm.py is missing")
    name = yaml.safe_load((source / "metadata.yaml").read_text())["name"]
    requirements = [source / name for name in _REQUIREMENTS if (source / name).exists()]
    out.mkdir(parents=True, exist_ok=True)
    # Another process may write the same archive at the same time.
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        stage = Path(scratch) / "stage"
        stage.mkdir()
        for entry in _COPIED:
            if (source / entry).is_dir():
                shutil.copytree(source / entry, stage / entry, ignore=_IGNORED, symlinks=True)
            elif (source / entry).exists():
                shutil.copy2(source / entry, stage / entry)
        (stage / "src" / "charm.py").chmod(0o755)
        (stage / "dispatch").write_text(_DISPATCH)
        (stage / "dispatch").chmod(0o755)
        partial = Path(scratch) / f"{name}.charm"
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            _add_folder(archive, stage, "")
            if requirements:
                _add_folder(archive, _make_environment(requirements[0]), "venv/")
        return partial.replace(out / partial.name)


def _add_folder(archive: zipfile.ZipFile, folder: Path, prefix: str) -> None:
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            continue
        entry = zipfile.ZipInfo(f"{prefix}{path.relative_to(folder).as_posix()}")
        entry.external_attr = mode << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(entry, str(path.readlink()) if path.is_symlink() else path.read_bytes())


def _make_environment(requirements: Path) -> Path:
    """Return the folder of a charm's virtual environment, from the cache if it has one."""
    python = debian.python_version(Path("/"))
    inputs = ["4", python, platform.machine(), requirements.read_text()]
    key = hashlib.sha256("\n".join(inputs).encode()).hexdigest()
    folder = paths.cache() / "charm-venv" / key[:16]
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        stage = Path(scratch) / "venv"
        packages = stage / "lib" / f"python{python}" / "site-packages"
        packages.mkdir(parents=True)
        _install(requirements, packages, python)
        if python == f"{sys.version_info.major}.{sys.version_info.minor}":
            # As charmcraft's venv has it: else the first hook of each pod spends seconds on it.
            unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
            compileall.compile_dir(packages, quiet=2, invalidation_mode=unchecked)
        (stage / "pyvenv.cfg").write_text(_PYVENV.format(python))
        try:
            stage.rename(folder)
        except OSError:
            # Another process has made the same folder meanwhile.
            if not folder.exists():
                raise
    return folder


def _install(requirements: Path, target: Path, python: str) -> None:
    command = [
        *(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable),
        *("--target", str(target), "--python-version", python),
        *("--python-platform", f"{platform.machine()}-manylinux_2_28"),
        *("--requirement", str(requirements.absolute())),
    ]
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        raise PackError(f"{requirements}: {run.stderr.strip()[-2000:]}")


def main(argv: list[str] | None = None) -> int:
    """Pack from the command line: `python -m testbed.pack`."""
    parser = command_line.parser(
        "testbed.pack",
        "Pack a charm within seconds, for the testbed.",
        "python -m testbed.pack . --output build",
    )
    parser.add_argument("charm", type=Path, nargs="?", default=Path(), help="its folder")
    parser.add_argument("--output", type=Path, default=Path("build"), metavar="FOLDER")
    arguments = parser.parse_args(argv)
    try:
        print(pack(arguments.charm, arguments.output))
    except errors.TestbedError as error:
        print(f"pack: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Pack a charm's folder into the archive that `charmcraft pack` would make.

The layout and the way `dispatch` finds Python, the libraries and the virtual environment are
charmcraft's. What differs: packages come as wheels for the charm image's Python where there are
any, and the archive names the base of that image.
"""

import platform
import shutil
import stat
import sys
import tempfile
import zipfile
from pathlib import Path

import yaml

from juju_standin import bases, packages
from testbed import command_line, errors

COPIED = (
    "metadata.yaml", "config.yaml", "actions.yaml", "icon.svg", "LICENSE", "README.md", "version",
    "src", "lib", "templates", "rbac", "hooks",
)  # fmt: skip
"""What goes into the archive, where the charm has it."""

IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")

DISPATCH = """#!/bin/sh
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


class PackError(errors.TestbedError):
    """The folder is not a charm."""


def pack(source: Path, out: Path) -> Path:
    """Pack a charm.

    Args:
        source: The charm's folder, with metadata.yaml and src/charm.py.
        out: The archive to write, or a folder to write `<name>.charm` into.

    Returns:
        The archive.

    Raises:
        PackError: when the folder is not a charm.
        juju_standin.packages.PackageError: when its requirements can't be read or installed.
        juju_standin.bases.BaseError: when no image has the Python that it needs.
    """
    if not (source / "metadata.yaml").exists() or not (source / "src" / "charm.py").exists():
        raise PackError(f"{source}: not a charm: metadata.yaml or src/charm.py is missing")
    name = yaml.safe_load((source / "metadata.yaml").read_text())["name"]
    wanted, base = packages.find(source), bases.choose(source)
    target = out / f"{name}.charm" if out.suffix != ".charm" else out
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target, which another process may be writing at the same time.
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        stage = Path(scratch) / "stage"
        stage.mkdir()
        for entry in COPIED:
            if (source / entry).is_dir():
                shutil.copytree(source / entry, stage / entry, ignore=IGNORED, symlinks=True)
            elif (source / entry).exists():
                shutil.copy2(source / entry, stage / entry)
        (stage / "src" / "charm.py").chmod(0o755)
        (stage / "dispatch").write_text(DISPATCH)
        (stage / "dispatch").chmod(0o755)
        (stage / "manifest.yaml").write_text(_manifest(base))
        partial = Path(scratch) / target.name
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            _add(archive, stage, "")
            if wanted:
                _add(archive, packages.environment(wanted, base.python), "venv")
        partial.replace(target)
    return target


def _manifest(base: bases.Base) -> str:
    given = {"name": base.name, "channel": base.channel, "architectures": [architecture()]}
    return yaml.safe_dump({"charmcraft-version": "testbed", "analysis": {}, "bases": [given]})


def architecture() -> str:
    """Return this machine's architecture as Debian and Juju name it."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def _add(archive: zipfile.ZipFile, folder: Path, prefix: str) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            continue
        relative = path.relative_to(folder).as_posix()
        entry = zipfile.ZipInfo(f"{prefix}/{relative}" if prefix else relative)
        mode = path.lstat().st_mode
        entry.external_attr = mode << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        is_link = stat.S_ISLNK(mode)
        archive.writestr(entry, str(path.readlink()) if is_link else path.read_bytes())


def main(argv: list[str] | None = None) -> int:
    """Pack from the command line: `python -m juju_standin.pack`."""
    parser = command_line.parser(
        "juju_standin.pack",
        "Pack a charm in a moment, for the testbed; see juju_standin.charmcraft.",
        "python -m juju_standin.pack . --output build",
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

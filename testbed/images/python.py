"""Python packages for the images: installed for the image's Python, compiled by it."""

import os
import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from testbed.images.errors import ImageError


def select(requirements: str, names: Collection[str]) -> str:
    """Return the entries of some packages from a file of hashed requirements."""
    kept: list[str] = []
    keeping = False
    for line in requirements.splitlines():
        if line and not line[0].isspace():
            name = re.match(r"[A-Za-z0-9._-]+", line)
            keeping = name is not None and name.group().lower() in names
        if keeping:
            kept.append(line)
    return "".join(f"{line}\n" for line in kept)


def install(requirements: str, target: Path, version: str) -> None:
    """Install hashed requirements into a directory, as wheels for a version of Python.

    Raises:
        ImageError: when uv can't.
    """
    argv = [
        sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable,
        "--target", str(target), "--python-version", version, "--only-binary", ":all:",
        "--no-deps", "--require-hashes", "--requirements", "-",
    ]  # fmt: skip
    run = subprocess.run(argv, input=requirements, capture_output=True, text=True, check=False)
    if run.returncode:
        raise ImageError(f"uv pip install failed: {run.stderr.strip()[-2000:]}")


def compile_all(source: Path, place: str, root: Path) -> None:
    """Write the bytecode of a directory, by the image's own Python.

    Args:
        source: the directory, on the host.
        place: where it will be in the image: tracebacks name that.
        root: the bootstrapped system whose Python compiles.

    Raises:
        ImageError: when that Python can't be run. A file that does not compile stays as it is.
    """
    if os.geteuid() != 0:
        raise ImageError("images are built by root: the image's Python runs in a chroot")
    script = (
        'mount --bind "$1" "$2/mnt" && exec chroot "$2" python3 -m compileall -qq -f'
        ' --invalidation-mode unchecked-hash -s /mnt -p "$3" /mnt'
    )
    # The mount lives in a namespace of its own and ends with it.
    argv = ["unshare", "--mount", "sh", "-c", script, "sh", str(source), str(root), place]
    run = subprocess.run(argv, capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1) or "mount:" in run.stderr:
        raise ImageError(f"the image's Python can't compile: {run.stderr.strip()[-500:]}")


def is_dispensable(path: str) -> bool:
    """Say whether a path of an installed package is of no use at run time."""
    parts = path.split("/")
    return (
        parts[0] in ("bin", ".lock")
        or (parts[0] == "numpy" and "tests" in parts)
        or parts[-1] in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json")
        or path.endswith((".pyi", ".pyx", ".pxd", ".a", ".h"))
    )

"""The Python packages that a charm brings: found and installed as charmcraft's plugins do.

Where charmcraft builds each of them from its source, a wheel is taken where there is one.
"""

import compileall
import dataclasses
import hashlib
import os
import platform
import py_compile
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml

from testbed import environments, errors, paths

_FILES = ("requirements/charm.txt", "requirements/charm.in", "requirements.txt")
_PLUGINS = ("uv", "poetry", "python", "charm")
_PYVENV = "home = /usr/bin\ninclude-system-site-packages = false\nversion = {}\n"


class PackageError(errors.TestbedError):
    """A charm's packages can't be read or installed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Requirements:
    """What to install, in pip's words."""

    origin: Path
    """The file that says it."""
    text: str
    is_complete: bool
    """Whether it names every package, as a lock does."""


def find(source: Path) -> Requirements | None:
    """Return what a charm wants to be installed, None when that is nothing.

    A lock counts where charmcraft.yaml names its plugin, or where nothing else says it.

    Raises:
        PackageError: when a lock can't be read, or does not fit its project.
    """
    part = _part(source)
    plugin = part.get("plugin")
    uv, poetry = source / "uv.lock", source / "poetry.lock"
    if plugin == "uv" and uv.exists():
        return _of_uv(source, part)
    if plugin == "poetry" and poetry.exists():
        return _of_poetry(source, part)
    for name in _FILES:
        if (source / name).exists():
            text = (source / name).read_text()
            return Requirements(origin=source / name, text=text, is_complete=False)
    if uv.exists():
        return _of_uv(source, part)
    return _of_poetry(source, part) if poetry.exists() else None


def _part(source: Path) -> Mapping[str, Any]:
    """The part of charmcraft.yaml with the charm's Python."""
    file = source / "charmcraft.yaml"
    try:
        recipe: Any = yaml.safe_load(file.read_text()) if file.exists() else {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PackageError(f"{file}: {error}") from error
    parts: Any = recipe.get("parts") if isinstance(recipe, dict) else None
    found = list(cast("dict[str, Any]", parts).values()) if isinstance(parts, dict) else []
    return next(
        (one for one in found if isinstance(one, dict) and one.get("plugin") in _PLUGINS), {}
    )


def _words(part: Mapping[str, Any], key: str) -> list[str]:
    given = part.get(key) or []
    return [str(word) for word in given] if isinstance(given, list) else []


def _of_uv(source: Path, part: Mapping[str, Any]) -> Requirements:
    command = [
        *(sys.executable, "-m", "uv", "export", "--quiet", "--frozen", "--no-dev"),
        *("--no-emit-project", "--no-header", "--no-annotate", "--format", "requirements.txt"),
    ]
    for option, key in (("--extra", "uv-extras"), ("--group", "uv-groups")):
        command += [word for name in _words(part, key) for word in (option, name)]
    return _locked(source / "uv.lock", command)


def _of_poetry(source: Path, part: Mapping[str, Any]) -> Requirements:
    poetry = environments.ensure("poetry") / "bin" / "poetry"
    command = [str(poetry), "export", "--no-interaction", "--format=requirements.txt"]
    if groups := _words(part, "poetry-with"):
        command.append(f"--with={','.join(groups)}")
    return _locked(source / "poetry.lock", [*command, *_words(part, "poetry-export-extra-args")])


def _locked(lock: Path, command: Sequence[str]) -> Requirements:
    run = subprocess.run(command, cwd=lock.parent, capture_output=True, text=True, check=False)
    if run.returncode:
        raise PackageError(f"{lock}: {run.stderr.strip()[-2000:]}")
    return Requirements(origin=lock, text=run.stdout, is_complete=True)


def environment(wanted: Requirements, python: str) -> Path:
    """Return the folder of a charm's virtual environment, made when the cache lacks it.

    What comes as source only is built by this program's own Python.

    Args:
        wanted: what `find` returned.
        python: the version of Python that it is for, as in `3.11`.

    Raises:
        PackageError: when the packages can't be installed or built.
    """
    inputs = ["3", python, platform.machine(), str(wanted.is_complete), wanted.text]
    key = hashlib.sha256("\n".join(inputs).encode()).hexdigest()
    folder = paths.cache() / "charm-venv" / key[:16]
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        stage = Path(scratch) / "venv"
        packages = stage / "lib" / f"python{python}" / "site-packages"
        packages.mkdir(parents=True)
        _install(wanted, packages, python)
        if python == f"{sys.version_info.major}.{sys.version_info.minor}":
            # As charmcraft's venv has it: else the first hook of each pod spends seconds on it.
            unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
            compileall.compile_dir(packages, quiet=2, invalidation_mode=unchecked)
        (stage / "pyvenv.cfg").write_text(_PYVENV.format(python))
        try:
            stage.rename(folder)
        except OSError:
            # Somebody else was faster; theirs is the same.
            if not folder.exists():
                raise
    return folder


def _install(wanted: Requirements, target: Path, python: str) -> None:
    command = [
        *(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable),
        *("--target", str(target), "--python-version", python),
        *("--python-platform", f"{platform.machine()}-manylinux_2_28"),
        *(("--no-deps", "--requirement", "-") if wanted.is_complete else ()),
        *(() if wanted.is_complete else ("--requirement", str(wanted.origin.absolute()))),
    ]
    run = subprocess.run(
        command,
        input=wanted.text if wanted.is_complete else None,
        # Paths in it are relative to the charm.
        cwd=wanted.origin.parent if wanted.is_complete else None,
        env={**os.environ, "UV_PYTHON_DOWNLOADS": "never"},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise PackageError(f"{wanted.origin}: {run.stderr.strip()[-2000:]}")

"""Charms that bring a lock, or packages of which there is only the source."""

import os
import subprocess
import sys
import tarfile
import zipfile

import pytest

from testbed import environments, paths
from testbed.juju import bases, pack, packages

BACKEND = """
import pathlib, zipfile

def build_wheel(folder, *_):
    info = "{name}-1.0.dist-info/"
    with zipfile.ZipFile(pathlib.Path(folder) / "{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("{name}.py", "WORD = 'built'")
        wheel.writestr(info + "METADATA", pathlib.Path("PKG-INFO").read_text())
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "")
    return "{name}-1.0-py3-none-any.whl"
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "{name}"
version = "1.0"
"""
INFO = "Metadata-Version: 2.2\nName: {name}\nVersion: 1.0\n"
NAMES = ("plain", "grouped", "optional", "later")
UV = """
[project]
name = "locked"
version = "0"
requires-python = ">=3.11"
dependencies = ["plain"]
optional-dependencies = {some = ["optional"]}
[dependency-groups]
more = ["grouped"]
dev = ["later"]
"""
POETRY = """
[project]
name = "locked"
version = "0"
requires-python = ">=3.11"
[tool.poetry]
package-mode = false
[tool.poetry.dependencies]
plain = {{path = "{links}/plain-1.0.tar.gz"}}
[tool.poetry.group.more.dependencies]
grouped = {{path = "{links}/grouped-1.0.tar.gz"}}
[tool.poetry.group.dev.dependencies]
later = {{path = "{links}/later-1.0.tar.gz"}}
"""
PLUGIN = "parts:\n  files: {{plugin: dump}}\n  charm: {{plugin: {plugin}, {options}}}\n"


@pytest.fixture
def links(tmp_path, monkeypatch):
    """An index of packages, each as source only."""
    folder = tmp_path / "links"
    folder.mkdir()
    for name in NAMES:
        add_source(folder, name, BACKEND.format(name=name))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def add_source(folder, name, backend):
    root = folder.parent / "sources" / f"{name}-1.0"
    root.mkdir(parents=True)
    (root / "backend.py").write_text(backend)
    (root / "pyproject.toml").write_text(PROJECT.format(name=name))
    (root / "PKG-INFO").write_text(INFO.format(name=name))
    with tarfile.open(folder / f"{name}-1.0.tar.gz", "w:gz") as archive:
        archive.add(root, root.name)


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "charm"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "charm.py").touch()
    (folder / "metadata.yaml").write_text("name: locked\n")
    return folder


def installed(source):
    """The packages in the charm's archive."""
    with zipfile.ZipFile(pack.pack(source, source.parent / "out")) as charm:
        names = charm.namelist()
    packed = f"venv/lib/python{bases.image_python()}/site-packages/"
    return {name for name in NAMES if f"{packed}{name}.py" in names}


def lock_with_uv(source):
    (source / "pyproject.toml").write_text(UV)
    command = [sys.executable, "-m", "uv", "lock", "--quiet", "--python", sys.executable]
    subprocess.run(command, cwd=source, check=True)


def test_package_that_comes_as_source_only_is_built(links, source):
    (source / "requirements.txt").write_text("plain==1.0\n")
    assert installed(source) == {"plain"}


def test_package_that_can_not_be_built_is_named(links, source):
    add_source(links, "broken", "raise SystemError('no compiler')")
    (source / "requirements.txt").write_text("broken\n")
    with pytest.raises(packages.PackageError, match=r"(?s)requirements\.txt: .*broken"):
        pack.pack(source, source.parent)


@pytest.mark.parametrize(
    ("options", "want"),
    [
        pytest.param("", {"plain"}, id="no more"),
        pytest.param("uv-groups: [more]", {"plain", "grouped"}, id="group"),
        pytest.param("uv-extras: [some]", {"plain", "optional"}, id="extra"),
    ],
)
def test_lock_of_uv_says_what_is_packed(links, source, options, want):
    lock_with_uv(source)
    (source / "charmcraft.yaml").write_text(PLUGIN.format(plugin="uv", options=options))
    assert installed(source) == want


def test_lock_counts_before_other_files_only_where_its_plugin_is_used(links, source):
    lock_with_uv(source)
    assert installed(source) == {"plain"}
    (source / "requirements.txt").write_text("grouped\n")
    assert installed(source) == {"grouped"}
    (source / "charmcraft.yaml").write_text(PLUGIN.format(plugin="uv", options=""))
    assert installed(source) == {"plain"}


@pytest.mark.parametrize(
    ("name", "text"), [("uv.lock", "neither"), ("charmcraft.yaml", "parts: [")]
)
def test_file_that_can_not_be_read_is_named(links, source, name, text):
    lock_with_uv(source)
    (source / name).write_text(text)
    with pytest.raises(packages.PackageError, match=name):
        pack.pack(source, source.parent)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "parts: 1", "parts: {charm: }", "parts: {charm: {plugin: uv, uv-groups: 1}}"],
)
def test_odd_recipe_is_as_good_as_none(links, source, text):
    lock_with_uv(source)
    without = packages.find(source)
    (source / "charmcraft.yaml").write_text(text)
    assert packages.find(source) == without
    assert without.text.startswith("plain==1.0")


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("options", "want"),
    [
        pytest.param("", {"plain"}, id="no more"),
        pytest.param("poetry-with: [more]", {"plain", "grouped"}, id="group"),
        pytest.param("poetry-export-extra-args: [--only, more]", {"grouped"}, id="group alone"),
    ],
)
def test_lock_of_poetry_says_what_is_packed(links, source, options, want, monkeypatch):
    (source / "pyproject.toml").write_text(POETRY.format(links=os.path.relpath(links, source)))
    with monkeypatch.context() as real:
        real.delenv("XDG_CACHE_HOME")
        real.delenv("UV_NO_INDEX")
        poetry = environments.ensure("poetry")
    place = paths.cache() / "environments" / poetry.name
    place.parent.mkdir(parents=True)
    place.symlink_to(poetry)
    subprocess.run([poetry / "bin" / "poetry", "lock", "--quiet"], cwd=source, check=True)
    (source / "charmcraft.yaml").write_text(PLUGIN.format(plugin="poetry", options=options))
    assert installed(source) == want

    (source / "poetry.lock").write_text("neither")
    with pytest.raises(packages.PackageError, match=r"poetry\.lock"):
        pack.pack(source, source.parent)

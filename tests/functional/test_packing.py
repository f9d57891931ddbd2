"""What charmcraft packs is what the testbed packs in a hundredth of the time."""

import re
import shutil
import zipfile

import pytest

from testbed import environments, paths
from testbed.juju import charmcraft, pack

PLACED_BY_TOOLS = re.compile(
    r"manifest\.yaml|dispatch|README\.md|.*/__pycache__/.*|.*\.pyc|venv/pyvenv\.cfg|venv/bin/.*"
    r"|venv/lib/[^/]+/site-packages/(bin/.*|\.lock|_virtualenv.*|[^/]+\.dist-info/.*)"
)
"""What says who packed, or is only there to start faster."""
COMPILED = re.compile(r".*\.so(\.\d+)*$")
"""Of these each may take another of the wheels that fit."""


def content(archive):
    with zipfile.ZipFile(archive) as opened:
        return {
            name: None if COMPILED.match(name) else opened.read(name)
            for name in opened.namelist()
            if not name.endswith("/") and not PLACED_BY_TOOLS.fullmatch(name)
        }


def packages(archive):
    with zipfile.ZipFile(archive) as opened:
        found = (re.search(r"/([^/]+)\.dist-info/METADATA$", each) for each in opened.namelist())
        return {match[1] for match in found if match}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_charmcraft_packs_the_same_as_the_testbed(tmp_path):
    # Somebody may be editing.
    source = tmp_path / "source"
    skipped = shutil.ignore_patterns(".*", "build", "testbed", "tests", "docs", "demo", "bench")
    shutil.copytree(paths.SOURCE, source, ignore=skipped)
    theirs = charmcraft.build(source, tmp_path / "charmcraft")
    ours = pack.pack(source, tmp_path / "testbed")
    one, other = content(theirs), content(ours)
    assert sorted(one) == sorted(other)
    assert [name for name in one if one[name] != other[name]] == []
    assert packages(theirs) == packages(ours)


@pytest.mark.long
def test_charmcraft_that_fails_says_why(tmp_path):
    source = tmp_path / "charm"
    (source / "src").mkdir(parents=True)
    (source / "metadata.yaml").write_text("name: broken\n")
    (source / "charmcraft.yaml").write_text("type: charm\nparts: {charm: {plugin: none}}\n")
    with pytest.raises(charmcraft.CharmcraftError, match="plugin"):
        charmcraft.build(source, tmp_path)


def test_environment_that_can_not_be_made_says_why(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "odd.txt").write_text("without-a-hash==1\n")
    monkeypatch.setattr(paths, "SOURCE", tmp_path)
    with pytest.raises(environments.EnvironmentFailed, match="odd: "):
        environments.ensure("odd")
    assert not list(tmp_path.glob("istio-integrator/environments/*/complete"))

"""Which system a charm lives in: by what it says of Python, and by its manifest afterwards."""

import platform
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import errors
from testbed.juju import bases, pack

USUAL = bases.Base(image="charm", name="debian", channel="12", python="3.11")
NEWER = bases.Base(image="charm-newer", name="debian", channel="13", python="3.13")

OLD_BASES = """
bases:
  - build-on: [{name: ubuntu, channel: "22.04"}]
    run-on: [{name: ubuntu, channel: "22.04"}, {name: ubuntu, channel: "24.04"}]
"""


@pytest.fixture(autouse=True)
def known(monkeypatch):
    monkeypatch.setattr(bases, "known", lambda: [USUAL, NEWER])


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "charm"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "charm.py").touch()
    (folder / "metadata.yaml").write_text("name: some\n")
    return folder


def project(requires):
    return f"[project]\nname = 'a'\nrequires-python = '{requires}'\n"


def poetry(python):
    return f"[tool.poetry.dependencies]\npython = '{python}'\n"


@pytest.mark.parametrize(
    ("pyproject", "charmcraft", "want"),
    [
        pytest.param("", "", USUAL, id="nothing is said"),
        pytest.param("[tool.ruff]\n", "type: charm\n", USUAL, id="nothing of Python"),
        pytest.param(project(">=3.11"), "platforms: {ubuntu@24.04:amd64: }", USUAL, id="range"),
        pytest.param(project(">=3.12"), "base: ubuntu@22.04", NEWER, id="newer"),
        pytest.param(project("~=3.10"), "", USUAL, id="compatible"),
        pytest.param(project(">=3.13,<3.14"), "", NEWER, id="exact"),
        pytest.param(poetry("^3.12"), "", NEWER, id="Poetry's newer"),
        pytest.param(poetry("^3.10.6"), "", USUAL, id="Poetry's older"),
        pytest.param("", "base: ubuntu@24.04\nplatforms: {amd64: }", NEWER, id="base"),
        pytest.param("", "base: ubuntu@22.04\nplatforms: {amd64: }", USUAL, id="older base"),
        pytest.param(
            "", "platforms: {noble: {build-on: [ubuntu@24.04:amd64]}}", NEWER, id="platform"
        ),
        pytest.param(
            "", "platforms: {ubuntu@22.04:amd64: , ubuntu@24.04:amd64: }", USUAL, id="both"
        ),
        pytest.param("", OLD_BASES, USUAL, id="bases"),
        pytest.param("", 'bases: [{name: ubuntu, channel: "24.04"}]', NEWER, id="one base"),
        pytest.param("", "base: ubuntu@26.04", NEWER, id="newer than there is"),
        pytest.param("", "base: ubuntu@38.04", NEWER, id="unheard of"),
        pytest.param("", "base: ubuntu@20.04", USUAL, id="long ago"),
        pytest.param("", "[]", USUAL, id="no recipe"),
    ],
)
def test_charm_gets_the_first_python_that_it_asks_for(source, pyproject, charmcraft, want):
    for name, text in (("pyproject.toml", pyproject), ("charmcraft.yaml", charmcraft)):
        if text:
            (source / name).write_text(text)
    assert bases.choose(source) == want


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("pyproject.toml", project(">=3.14"), r"needs Python >=3\.14.*have 3\.11 and 3\.13"),
        ("pyproject.toml", project("<3.11"), r"needs Python <3\.11"),
        ("pyproject.toml", project("soon"), r"pyproject\.toml: .*soon"),
        ("pyproject.toml", "[project", r"pyproject\.toml"),
        ("pyproject.toml", "project = 1", r"pyproject\.toml"),
        ("pyproject.toml", "[project]\nrequires-python = 3.11", r"pyproject\.toml"),
        ("charmcraft.yaml", "base: [", r"charmcraft\.yaml"),
    ],
)
def test_charm_that_no_image_fits_is_refused_with_the_reason(source, name, text, said):
    (source / name).write_text(text)
    with pytest.raises(errors.TestbedError, match=f"(?s){said}"):
        pack.pack(source, source.parent)


@given(oldest=st.integers(6, 16), newest=st.integers(6, 16))
def test_chosen_python_is_one_of_those_asked_for(tmp_path_factory, oldest, newest):
    folder = tmp_path_factory.mktemp("charm")
    (folder / "pyproject.toml").write_text(project(f">=3.{oldest},<=3.{newest}.99"))
    fitting = [base for base, minor in ((USUAL, 11), (NEWER, 13)) if oldest <= minor <= newest]
    if fitting:
        assert bases.choose(folder) == fitting[0]
    else:
        with pytest.raises(bases.BaseError):
            bases.choose(folder)


@pytest.mark.parametrize("base", [USUAL, NEWER], ids=["usual", "newer"])
def test_packed_charm_names_the_image_that_it_was_packed_for(source, base):
    (source / "pyproject.toml").write_text(project(f"=={base.python}.*"))
    packed = pack.pack(source, source.parent)
    assert bases.image_of(packed) == base.image


@pytest.mark.parametrize("manifest", [None, "[", "[]", "bases: 1", "bases: [a]", "bases: []"])
def test_archive_that_says_nothing_of_its_base_gets_the_usual_image(tmp_path, manifest):
    packed = tmp_path / "some.charm"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("metadata.yaml", "name: some\n")
        if manifest is not None:
            archive.writestr("manifest.yaml", manifest)
    assert bases.image_of(packed) == "charm"
    packed.write_text("no archive")
    assert bases.image_of(packed) == "charm"


def test_release_without_a_later_one_has_its_own_python_alone(monkeypatch, source):
    monkeypatch.undo()
    release = {"ID": "ubuntu", "VERSION_ID": "24.04", "VERSION_CODENAME": "noble"}
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)
    (source / "charmcraft.yaml").write_text("base: ubuntu@24.04\n")
    (only,) = bases.known()
    assert (only.name, only.channel) == ("ubuntu", "24.04")
    assert bases.choose(source) == only

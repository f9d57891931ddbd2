import json
from pathlib import Path

import pytest

from testbed import cli, images, paths, programs


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        pytest.param(["up", "--with", "argo"], "unknown", id="extra"),
        pytest.param(["--name", "A/B", "up"], "--name", id="name"),
        pytest.param(["up", "--control-plane-only", "--revision=a"], "needs a node", id="clash"),
        pytest.param(["exec", "--"], "no command", id="exec"),
    ],
)
def test_bad_switches_end_with_2_and_say_which(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
):
    assert cli.main(argv) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [["exec", "--", "true"], ["shell"], ["logs", "etcd"], ["istio", "stop"], ["restart", "etcd"]],
)
def test_commands_on_a_testbed_that_is_down_end_with_1(
    argv: list[str], capsys: pytest.CaptureFixture[str]
):
    assert cli.main(argv) == 1
    assert capsys.readouterr().err.startswith("testbed: ")


def test_status_of_a_testbed_that_is_down_says_so(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["--name", "none", "status"]) == 1
    assert "none is down" in capsys.readouterr().out


def test_paths_ignore_relative_xdg_variables(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert paths.cache() == Path.home() / ".cache" / paths.PRODUCT


@pytest.mark.parametrize(
    ("argv", "want"),
    [
        pytest.param(["juju", "status", "--help"], ("default", ["status", "--help"]), id="plain"),
        pytest.param(["--name", "a", "juju", "--help"], ("a", ["--help"]), id="name"),
        pytest.param(["--name=a", "juju"], ("a", []), id="equals"),
        pytest.param(["--name", "juju", "up"], None, id="a testbed named juju"),
        pytest.param(["exec", "--", "juju"], None, id="another command"),
        pytest.param([], None, id="nothing"),
    ],
)
def test_split_juju_hands_over_what_is_jujus(argv: list[str], want: tuple[str, list[str]] | None):
    assert cli.split_juju(argv) == want


def test_programs_of_an_unknown_product_names_the_known(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["programs", "build", "nonesuch"]) == 2
    assert "kubernetes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        pytest.param("images", (*images.NAMES, *images.ON_DEMAND), id="images"),
        pytest.param("programs", programs.PRODUCTS, id="programs"),
    ],
)
def test_lists_are_the_same_in_json_as_in_lines(listed, names, capsys):
    assert cli.main([listed, "list"]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert cli.main([listed, "list", "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found] == list(names)
    shown = [one.get("reference", one["name"]) for one in found]
    states = ["built" if one["built"] else "not built" for one in found]
    assert lines == [list(pair) for pair in zip(shown, states, strict=True)]

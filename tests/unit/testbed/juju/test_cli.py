import json
import types

import pytest

from testbed.juju import bootstrap, cli
from tests import waiting


@pytest.fixture(scope="module")
def controller(running_model):
    """A controller without a cluster that has the model `m`."""
    with running_model() as model:
        yield model.controller


@pytest.fixture
def run(controller, tmp_path, monkeypatch, capsys):
    """The command line of who has chosen no model yet; returns exit code and output."""
    (tmp_path / "juju").mkdir()
    monkeypatch.setattr(bootstrap, "controller", lambda _testbed: controller)

    def invoke(*argv):
        code = cli.main(types.SimpleNamespace(state_dir=tmp_path), argv)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return invoke


def test_commands_change_what_status_shows(run, plain, tmp_path):
    data = tmp_path / "data.yaml"
    data.write_text("application: {url: here}\n")
    before = run("models")[1].split()
    for command in (
        ("add-model", "kubeflow"),
        ("deploy", str(plain), "app", "-n", "2", "--config", "script=true"),
        ("fake-app", "sql", "--endpoint", "db", "--databag", str(data)),
        ("integrate", "app:database", "sql:db"),
        ("trust", "app", "--scope=cluster"),
    ):
        assert run(*command) == (0, "", "")
    status = json.loads(run("status", "--format", "json")[1])
    assert status["model"]["name"] == "kubeflow"
    app = status["applications"]["app"]
    assert (app["scale"], sorted(app["units"])) == (2, ["app/0", "app/1"])
    assert app["relations"]["database"][0]["related-application"] == "sql"
    assert run("config", "app", "script")[1] == "true\n"
    table = run("status")[1]
    assert "app/0" in table
    assert "installing agent" in table
    assert "app:database" not in table
    related = run("status", "--relations")[1].splitlines()
    assert [line.split()[:2] for line in related if "app:database" in line] == [
        ["app:database", "sql"]
    ]
    assert sorted(run("models")[1].split()) == sorted([*before, "kubeflow"])


def test_removed_application_is_gone_from_status(run, plain):
    run("add-model", "emptied")
    run("deploy", str(plain))
    assert run("remove-application", "plain") == (0, "", "")
    assert waiting.eventually(lambda: '"plain"' not in run("status", "--format", "json")[1])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        pytest.param(("status", "-m", "none"), 'model "none" not found', id="model"),
        pytest.param(("config", "-m", "m", "none"), 'application "none" not found', id="app"),
        pytest.param(("deploy", "-m", "m", "/nowhere.charm"), "no charm at", id="charm"),
        pytest.param(("deploy", "-m", "m", "."), "from directory not supported", id="folder"),
        pytest.param(("status",), "no model", id="no model chosen"),
        pytest.param(("add-model", "m"), 'model "m" already exists', id="model twice"),
    ],
)
def test_refusal_is_one_error_line(run, argv, message):
    code, out, err = run(*argv)
    assert (code, out) == (1, "")
    assert err.startswith("ERROR ")
    assert message in err


def test_command_that_juju_4_does_not_have_is_none_here(run):
    with pytest.raises(SystemExit):
        run("wait-for", "application", "plain")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        pytest.param("nothing=1", 'unknown option "nothing"', id="unknown"),
        pytest.param("level=high", 'option "level" expected int, got "high"', id="type"),
        pytest.param("level", 'expected "key=value"', id="no value"),
    ],
)
def test_bad_option_is_refused_at_deploy(run, tiny, option, message):
    code, _, err = run("deploy", "-m", "m", str(tiny), "--config", option)
    assert code == 1
    assert message in err

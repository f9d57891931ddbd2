"""The commands that the tutorial and the how-to pages give, on a model without a cluster."""

import re

import pytest
import yaml

from juju_standin import __main__ as command_line
from juju_standin import bootstrap

SCRIPT = """\
status-set --application=False active "it serves"
[ -z "$JUJU_ACTION_NAME" ] || eval "$(action-get code)"
"""


@pytest.fixture
def juju(model, monkeypatch, tmp_path, capsys):
    """Run a command; it returns the exit code, and what is printed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(bootstrap, "juju", lambda _testbed, _name: model.juju)

    def run(*words):
        code = command_line.main([*words, "-m", model.juju.model])
        return code, *capsys.readouterr()

    return run


def test_charm_is_deployed_related_and_asked_by_the_commands_of_the_pages(model, plain, juju):
    assert juju("deploy", str(plain), "web", "--config", f"script={SCRIPT}") == (0, "", "")
    model.juju.fake_app("sql", {"db": {"role": "provides", "interface": "sql"}})
    assert juju("integrate", "web:database", "sql")[0] == 0
    model.start("web/0")
    model.wait_idle("web", "active")
    assert model.juju.status()["applications"]["web"]["charm"] == "plain"
    _, table, _ = juju("status", "--relations")
    # The tutorial waits for this line.
    assert re.search(r"^web/0.* active *idle", table, re.MULTILINE)
    assert re.search(r"^web +active +1/1 +it serves$", table, re.MULTILINE)
    assert re.search(r"^web:database +sql +sql$", table, re.MULTILINE)
    assert yaml.safe_load(juju("config", "web")[1]) == {"script": SCRIPT}
    code, printed, _ = juju(
        "run", "web/leader", "shell", "code=action-set a=\"$(printf '1\\n✓ 2')\""
    )
    assert (code, printed) == (0, "a: |-\n  1\n  ✓ 2\nreturn-code: 0\n")
    code, printed, _ = juju("run", "web/leader", "shell", "code=action-fail it; action-set a=1")
    assert (code, printed) == (1, "a: '1'\nreturn-code: 0\n")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["deploy", "."], "ERROR . is not a packed charm\n"),
        (["config", "nothing", "a"], 'ERROR expected "key=value", got "a"\n'),
    ],
)
def test_command_that_juju_refuses_fails_with_the_reason(juju, words, error):
    assert juju(*words) == (1, "", error)


def test_command_without_a_model_names_the_two_ways_to_give_one(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert command_line.main(["status"]) == 1
    assert capsys.readouterr().err == "ERROR no model: use add-model, or -m MODEL\n"

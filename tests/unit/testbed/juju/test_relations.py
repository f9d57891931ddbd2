"""Who may write to relations (facades/agent/uniter/uniter.go), and what a commit needs."""

import json

import pytest

from testbed.juju import client

EVALUATING = '[ -z "$JUJU_ACTION_NAME" ] || eval "$(action-get code)"'


def deploy(model, plain, script):
    model.juju.deploy(plain, num_units=2, config={"script": script})
    for unit in ("plain/0", "plain/1"):
        model.start(unit)
        model.wait_for_hook(unit, "start")


def info(model, unit, endpoint):
    found = model.juju.show_unit(unit)["relation-info"]
    return next(relation for relation in found if relation["endpoint"] == endpoint)


def test_follower_is_refused_what_only_the_leader_may(model, plain):
    deploy(model, plain, EVALUATING)
    model.juju.fake_app("sql", {"db": {"role": "provides", "application": {"a": "1"}}})
    model.juju.integrate("plain:database", "sql")
    model.wait_for_hook("plain/1", "database-relation-joined")
    where = f"-r database:{info(model, 'plain/1', 'database')['relation-id']}"
    refusals = {
        f"relation-set {where} --app a=b": "ERROR cannot write relation settings",
        f"relation-get {where} --app - plain": "ERROR permission denied",
        "status-set --application=True active": "ERROR this unit is not the leader",
        "relation-get -r database:99 - sql/0": (
            'ERROR invalid value "database:99" for option -r: relation not found'
        ),
    }
    for code, words in refusals.items():
        with pytest.raises(client.ActionFailedError) as failed:
            model.juju.run("plain/1", "shell", {"code": code})
        results = failed.value.outcome["results"]
        # A wrong argument has another exit code.
        assert results["return-code"] == (2 if "99" in code else 1)
        assert results["stderr"].strip() == words
    code = f"relation-get --format=json {where} --app - sql"
    other = model.juju.run("plain/1", "shell", {"code": code})
    assert json.loads(other["results"]["stdout"]) == {"a": "1"}


def test_leadership_lost_in_the_hook_fails_its_commit(model, plain):
    script = """
if [ "$JUJU_UNIT_NAME $JUJU_HOOK_NAME $(is-leader)" = "plain/0 update-status True" ]; then
  relation-set -r "$(relation-ids cluster)" --app lost=yes
  relation-set -r "$(relation-ids cluster)" unit-too=yes
  juju-log 'SAW written'
  sleep 2
fi
"""
    deploy(model, plain, script)
    model.juju.model_config({"update-status-hook-interval": "100ms"})
    model.wait_for_hook("plain/0", "written")
    model.juju.lead("plain/1")
    model.juju.model_config({"update-status-hook-interval": "0"})
    model.wait_for_hook("plain/0", "update-status", 2)
    model.wait_idle("plain")
    found = info(model, "plain/0", "cluster")
    assert "unit-too" not in found["local-unit"]["data"]
    assert "lost" not in found["local-application-data"]
    assert any("cannot commit" in line for _, line in model.log)

"""Who may write to relations (facades/agent/uniter/uniter.go), and what a commit needs."""

import json

from testbed.juju import client

EVALUATING = '[ -z "$JUJU_ACTION_NAME" ] || eval "$(action-get code)"'


def deploy(model, plain, app="plain", units=1, script=""):
    model.juju.deploy(plain, app, num_units=units, config={"script": script})
    for number in range(units):
        model.start_pod(f"{app}/{number}")
        model.wait_for_hook(f"{app}/{number}", "start")


def info(model, unit, endpoint):
    found = model.juju.show_unit(unit)["relation-info"]
    return next(relation for relation in found if relation["endpoint"] == endpoint)


def shell(model, unit, code):
    """Run code in an action: the script `EVALUATING` lets it."""
    try:
        return model.juju.run(unit, "shell", {"code": code})["results"]
    except client.ActionFailedError as error:
        return error.outcome["results"]


def test_follower_is_refused_what_only_the_leader_may(model, plain):
    deploy(model, plain, units=2, script=EVALUATING)
    model.juju.fake_app("sql", {"db": {"role": "provides", "application": {"a": "1"}}})
    model.juju.integrate("plain:database", "sql")
    model.wait_for_hook("plain/1", "database-relation-joined")
    number = info(model, "plain/1", "database")["relation-id"]

    def error(code):
        results = shell(model, "plain/1", code)
        return results["return-code"], results.get("stderr", "").strip()

    where = f"-r database:{number}"
    assert error(f"relation-set {where} --app a=b") == (
        1,
        "ERROR cannot write relation settings",
    )
    assert error(f"relation-get {where} --app - plain") == (1, "ERROR permission denied")
    assert error("status-set --application=True active") == (
        1,
        "ERROR this unit is not the leader",
    )
    assert error("relation-get -r database:99 - sql/0") == (
        2,
        'ERROR invalid value "database:99" for option -r: relation not found',
    )
    other = shell(model, "plain/1", f"relation-get --format=json {where} --app - sql")
    assert json.loads(other["stdout"]) == {"a": "1"}


def test_leadership_lost_in_the_hook_fails_its_commit(model, plain):
    script = """
if [ "$JUJU_UNIT_NAME $JUJU_HOOK_NAME $(is-leader)" = "plain/0 update-status True" ]; then
  relation-set -r "$(relation-ids cluster)" --app lost=yes
  relation-set -r "$(relation-ids cluster)" unit-too=yes
  juju-log 'SAW {"hook": "written", "remote": ""}'
  sleep 2
fi
"""
    deploy(model, plain, units=2, script=script)
    model.juju.model_config({"update-status-hook-interval": "100ms"})
    model.wait_for_hook("plain/0", "written")
    model.juju.lead("plain/1")
    model.juju.model_config({"update-status-hook-interval": "0"})
    model.wait_for_hook("plain/0", "update-status", 2)
    model.wait_idle("plain", "unknown")
    found = info(model, "plain/0", "cluster")
    assert "unit-too" not in found["local-unit"]["data"]
    assert "lost" not in found["local-application-data"]
    assert "cannot commit" in model.juju.debug_log()

import json

import pytest

from testbed.juju import client

EVALUATING = '[ -z "$JUJU_ACTION_NAME" ] || eval "$(action-get code)"'
SET_BOTH = """
case $JUJU_HOOK_NAME in
database-relation-joined)
  relation-set unit-key="$JUJU_UNIT_NAME"
  if [ "$(is-leader)" = True ]; then relation-set --app app-key=written; fi ;;
esac
"""


def deploy(model, plain, app="plain", units=1, script=""):
    model.juju.deploy(plain, app, num_units=units, config={"script": script})
    for number in range(units):
        model.start_pod(f"{app}/{number}")
        model.wait_for_hook(f"{app}/{number}", "start")


def relation_hooks(model, unit, endpoint):
    return [
        (seen["hook"].removeprefix(f"{endpoint}-relation-"), seen["remote"])
        for seen in model.saw(unit)
        if seen["hook"].startswith(f"{endpoint}-relation-")
    ]


def info(model, unit, endpoint):
    found = model.juju.show_unit(unit)["relation-info"]
    return next(relation for relation in found if relation["endpoint"] == endpoint)


def shell(model, unit, code):
    """Run code in an action: the script `EVALUATING` lets it."""
    try:
        return model.juju.run(unit, "shell", {"code": code})["results"]
    except client.ActionFailedError as error:
        return error.outcome["results"]


def test_scripted_side_is_met_in_jujus_order(model, plain):
    deploy(model, plain, script=SET_BOTH)
    model.juju.fake_app(
        "sql", {"db": {"role": "provides", "application": {"a": "1"}, "unit": {"u": "1"}}}
    )
    model.juju.integrate("plain:database", "sql")
    model.wait_for_hook("plain/0", "database-relation-changed", 2)
    assert relation_hooks(model, "plain/0", "database") == [
        ("created", ""),
        ("changed", ""),
        ("joined", "sql/0"),
        ("changed", "sql/0"),
    ]
    found = info(model, "plain/0", "database")
    assert found["local-unit"]["data"]["unit-key"] == "plain/0"
    assert found["local-application-data"] == {"app-key": "written"}


def test_several_writes_of_the_other_side_are_one_changed(model, plain):
    deploy(model, plain, script='[ "$JUJU_HOOK_NAME" != update-status ] || sleep 1')
    script = {"role": "provides", "unit": {"n": "0"}}
    model.juju.fake_app("sql", {"db": script})
    model.juju.integrate("plain:database", "sql")
    model.wait_for_hook("plain/0", "database-relation-changed")
    model.juju.model_config({"update-status-hook-interval": "50ms"})
    model.wait_for_hook("plain/0", "update-status")
    model.juju.model_config({"update-status-hook-interval": "0"})
    for number in range(1, 4):
        model.juju.fake_app("sql", {"db": {**script, "unit": {"n": str(number)}}})
    model.wait_for_hook("plain/0", "database-relation-changed", 2)
    model.juju.config("plain", {"script": ""})
    model.wait_for_hook("plain/0", "config-changed", 2)
    assert model.hooks("plain/0").count("database-relation-changed") == 2


def test_removed_relation_is_departed_then_broken(model, plain):
    deploy(model, plain)
    model.juju.fake_app("sql", {"db": {"role": "provides"}})
    model.juju.integrate("plain:database", "sql")
    model.wait_for_hook("plain/0", "database-relation-joined")
    model.juju.remove_relation("plain:database", "sql:db")
    model.wait_for_hook("plain/0", "database-relation-broken")
    assert relation_hooks(model, "plain/0", "database")[-2:] == [
        ("departed", "sql/0"),
        ("broken", ""),
    ]
    departed = next(s for s in model.saw("plain/0") if s["hook"].endswith("departed"))
    assert departed["departing"] == "sql/0"
    model.juju.wait(lambda s: "database" not in s["applications"]["plain"]["relations"], 10)


def test_ambiguous_relation_names_the_choices(model, plain):
    deploy(model, plain)
    model.juju.fake_app("any", {"one": {"role": "provides", "interface": ""}})
    with pytest.raises(client.JujuError, match='"plain:database any:one"'):
        model.juju.integrate("plain", "any")


def test_peers_meet_each_other_and_see_one_leave(model, plain):
    deploy(model, plain, units=2)
    for unit in ("plain/0", "plain/1"):
        model.wait_for_hook(unit, "cluster-relation-changed")
    hooks = [hook for hook, _ in relation_hooks(model, "plain/0", "cluster")]
    assert hooks == ["created", "joined", "changed"]
    model.juju.remove_unit("plain")
    model.wait_for_hook("plain/0", "cluster-relation-departed")
    model.wait_for_hook("plain/1", "remove")
    assert model.hooks("plain/1")[-3:] == ["cluster-relation-departed", "stop", "remove"]
    assert "cluster-relation-broken" not in model.hooks("plain/1")
    departed = model.saw("plain/1")[-3]
    assert (departed["remote"], departed["departing"]) == ("plain/0", "plain/1")


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


def test_moved_leadership_elects_the_winner_and_tells_the_loser_nothing(model, plain):
    deploy(model, plain, units=2)
    before = len(model.hooks("plain/0"))
    assert "leader-elected" not in model.hooks("plain/1")
    model.juju.lead("plain/1")
    model.wait_for_hook("plain/1", "leader-elected")
    assert [h for h in model.hooks("plain/0")[before:] if "leader" in h] in (
        [],
        ["leader-settings-changed"],
    )


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


def test_remote_unit_is_read_as_of_its_last_hook(model, plain):
    script = f"""
{EVALUATING}
[ "$JUJU_HOOK_NAME" != update-status ]
[ "$JUJU_HOOK_NAME" != database-relation-changed ] || relation-get - sql/0 >/dev/null
"""
    deploy(model, plain, script=script)
    model.juju.fake_app("sql", {"db": {"role": "provides", "unit": {"n": "old"}}})
    model.juju.integrate("plain:database", "sql")
    model.wait_for_hook("plain/0", "database-relation-changed")
    model.juju.model_config(
        {"update-status-hook-interval": "50ms", "automatically-retry-hooks": False}
    )
    model.wait_idle("plain", "error")
    model.juju.fake_app("sql", {"db": {"role": "provides", "unit": {"n": "new"}}})
    number = info(model, "plain/0", "database")["relation-id"]
    read = f"relation-get -r database:{number} n sql/0"
    assert shell(model, "plain/0", read)["stdout"] == "old\n"
    model.juju.model_config({"update-status-hook-interval": "0"})
    model.juju.resolved("plain/0", no_retry=True)
    model.wait_for_hook("plain/0", "database-relation-changed", 2)
    assert shell(model, "plain/0", read)["stdout"] == "new\n"

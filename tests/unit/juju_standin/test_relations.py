"""What hooks read and write, who may (facades/agent/uniter/uniter.go), and what a commit needs."""

import json

import pytest

from juju_standin import client
from juju_standin.agent.context import HookContext, UnitBagCache
from juju_standin.agent.hook import Hook
from tests import waiting

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
        # A tool works in its own hook alone.
        "JUJU_CONTEXT_ID=old is-leader": "ERROR wrong context ID; got 'old'",
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
  until [ "$(is-leader)" = False ]; do sleep 0.1; done
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


def test_failed_hook_leaves_its_status_and_nothing_else(model, plain):
    """internal/worker/uniter/runner/context/context.go, doFlush; install sees no relation."""
    script = """
ids="$(relation-ids cluster)"
[ "$JUJU_HOOK_NAME" != install ] || juju-log "SAW relations:$ids"
"""
    model.juju.deploy(plain, config={"script": script})
    model.start("plain/0")
    model.wait_idle("plain")
    assert model.hooks("plain/0") == [
        "install",
        "relations:",
        "cluster-relation-created",
        "leader-elected",
        "config-changed",
        "start",
    ]
    half = "open-port 80; status-set active tried; false"
    model.juju.config("plain", {"script": f"{script}\nrelation-set -r $ids half=done; {half}"})
    unit = model.state.applications["plain"].units["plain/0"]
    assert waiting.eventually(lambda: unit.agent.status == "error")
    assert unit.workload.message == "tried"
    assert unit.ports == []
    assert "half" not in info(model, "plain/0", "cluster")["local-unit"]["data"]


def test_owner_reads_the_revision_that_it_tracks_until_it_refreshes(model, plain):
    deploy(model, plain, EVALUATING)
    results = []
    for code in (
        "secret-add --label key content=1",
        "secret-get --label key",
        'secret-set "$(secret-info-get --label key | cut -d: -f1)" content=2',
        "secret-get --label key",
        "secret-get --label key --peek",
        "secret-get --label key --refresh",
        "secret-get --label key",
        'secret-remove "$(secret-ids)"',
    ):
        outcome = model.juju.run("plain/0", "shell", {"code": code})["results"]
        results.append(outcome.get("stdout", "").strip())
    assert results[3:7] == [f'content: "{each}"' for each in (1, 2, 2, 2)]
    with pytest.raises(client.ActionFailedError) as failed:
        model.juju.run("plain/0", "shell", {"code": "secret-get --label key"})
    assert 'secret "key" not found' in failed.value.outcome["results"]["stderr"]


def test_application_is_there_until_each_relation_of_it_has_gone(model, plain):
    """state/application.go: an application with relations is not removed."""
    script = """
[ "$JUJU_HOOK_NAME" != database-relation-broken ] || false
"""
    deploy(model, plain, script)
    model.juju.fake_app("sql", {"db": {"role": "provides"}})
    model.juju.integrate("plain:database", "sql")
    model.wait_for_hook("plain/0", "database-relation-joined")
    model.wait_for_hook("plain/1", "database-relation-joined")
    model.juju.remove_application("sql")
    units = model.state.applications["plain"].units.values()
    assert waiting.eventually(lambda: all(unit.agent.status == "error" for unit in units))
    assert model.juju.status()["applications"]["sql"]["life"] == "dying"
    for unit in ("plain/0", "plain/1"):
        model.juju.resolved(unit)
    model.juju.wait(lambda status: status["applications"]["sql"]["life"] == "dead", 60)


def test_remote_units_settings_are_those_of_the_last_hook_about_the_unit():
    """internal/worker/uniter/runner/context/cache.go, InvalidateMember."""

    class Growing:
        version = 0

        def call(self, _method, **_parameters):
            self.version += 1
            return {"version": str(self.version)}

    controller, cache = Growing(), UnitBagCache()

    def read(hook):
        context = HookContext(controller, "a/0", {}, cache, log=print, hook=hook)
        return context.settings("1", "b/0")["version"]

    changed = Hook(kind="relation-changed", relation="1", remote_unit="b/0")
    other = Hook(kind="update-status")
    assert [read(hook) for hook in (changed, other, other, changed)] == ["1", "1", "1", "2"]

import signal


def is_in(status):
    def check(found):
        return found["applications"]["plain"]["application-status"]["current"] == status

    return check


def deploy(model, plain, script=""):
    model.juju.deploy(plain, config={"script": script})
    return model.start_pod("plain/0")


def failing(hook):
    return f'[ "$JUJU_HOOK_NAME" != {hook} ]'


def test_hook_in_error_blocks_other_hooks_but_not_actions(model, plain):
    deploy(model, plain, failing("start"))
    model.juju.wait(is_in("error"), 20)
    model.juju.model_config({"update-status-hook-interval": "100ms"})
    unit = model.juju.status()["applications"]["plain"]["units"]["plain/0"]
    assert unit["juju-status"]["current"] == "idle"
    assert unit["workload-status"]["message"] == 'hook failed: "start"'
    assert unit["workload-status"]["data"] == {"hook": "start"}
    model.wait_for_hook("plain/0", "start", 2)
    model.juju.run("plain/0", "shell", {"code": ""})
    assert "update-status" not in model.hooks("plain/0")


def test_resolved_without_retry_goes_on(model, plain):
    model.juju.model_config({"automatically-retry-hooks": False})
    deploy(model, plain, failing("start"))
    model.juju.wait(is_in("error"), 20)
    model.juju.resolved("plain/0", no_retry=True)
    model.juju.wait(is_in("unknown"), 20)


def test_update_status_runs_when_switched_on(model, plain):
    deploy(model, plain)
    model.juju.wait(is_in("unknown"), 20)
    assert "update-status" not in model.hooks("plain/0")
    model.juju.model_config({"update-status-hook-interval": "200ms"})
    model.wait_for_hook("plain/0", "update-status", 2)


def test_hook_ended_by_sigterm_is_queued_again_and_stop_runs(model, plain):
    pod = deploy(model, plain, '[ "$JUJU_HOOK_NAME" != update-status ] || sleep 30')
    model.juju.wait(is_in("unknown"), 20)
    model.juju.model_config({"update-status-hook-interval": "100ms"})
    model.wait_for_hook("plain/0", "update-status")
    assert pod.terminate() == 0
    assert model.hooks("plain/0")[-2:] == ["update-status", "stop"]
    unit = model.juju.status()["applications"]["plain"]["units"]["plain/0"]
    assert unit["workload-status"]["current"] != "error"
    model.juju.model_config({"update-status-hook-interval": "0"})
    model.juju.config("plain", {"script": ""})
    pod.restart()
    model.wait_for_hook("plain/0", "start", 2)
    assert model.hooks("plain/0")[7:9] == ["update-status", "start"]


def test_new_pod_upgrades_configures_and_starts_with_an_empty_folder(model, plain):
    pod = deploy(model, plain)
    model.juju.wait(is_in("unknown"), 20)
    assert pod.terminate() == 0
    before = len(model.hooks("plain/0"))
    replacement = model.start_pod("plain/0")
    model.wait_for_hook("plain/0", "start", 2)
    assert model.hooks("plain/0")[before:] == ["upgrade-charm", "config-changed", "start"]
    seen = (replacement.folder / "agents/unit-plain-0/charm/hooks-seen").read_text().split()
    assert seen == ["upgrade-charm", "config-changed", "start"]


def test_killed_agent_starts_again_without_upgrade(model, plain):
    pod = deploy(model, plain)
    model.juju.wait(is_in("unknown"), 20)
    before = len(model.hooks("plain/0"))
    pod.kill()
    assert pod.process.returncode == -signal.SIGKILL
    pod.restart()
    model.wait_for_hook("plain/0", "start", 2)
    assert model.hooks("plain/0")[before:] == ["start"]


def test_tools_are_refused_after_their_hook(model, plain):
    late = """
if [ "$JUJU_HOOK_NAME" = start ]; then
  (sleep 1; status-set active late 2>"$CHARM_DIR/late") &
fi
"""
    pod = deploy(model, plain, late)
    model.juju.wait(is_in("unknown"), 20)
    answer = pod.folder / "agents/unit-plain-0/charm/late"

    def is_refused(_status):
        return answer.exists() and "ERROR wrong context ID" in answer.read_text()

    model.juju.wait(is_refused, 20)


def test_removal_runs_departed_broken_stop_remove_and_ends_the_agent(model, plain):
    pod = deploy(model, plain)
    model.juju.fake_app("sql", {"db": {"role": "provides", "unit": {"host": "a"}}})
    model.juju.integrate("plain:database", "sql")
    model.wait_for_hook("plain/0", "database-relation-joined")
    model.juju.wait(is_in("unknown"), 20)
    model.juju.remove_application("plain")
    model.juju.wait_gone("plain", 20)
    assert model.hooks("plain/0")[-4:] == [
        "database-relation-departed",
        "database-relation-broken",
        "stop",
        "remove",
    ]
    departed = model.saw("plain/0")[-4]
    assert (departed["remote"], departed["departing"]) == ("sql/0", "plain/0")
    assert pod.process.wait(10) == 0

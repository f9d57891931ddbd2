import os
import signal
import subprocess

import pytest

from juju_standin.agent import pebble
from testbed import programs
from tests import needs, waiting

# Only as process 1 of its namespace does Pebble give itself a boot id of its own.
NEW_NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")
NOTICE = "workload-pebble-custom-notice"


class Workload:
    """A real Pebble beside a pod's folder, as the workload container would run it."""

    def __init__(self, folder):
        self.folder = folder
        self.socket = folder / "pebble.socket"
        self.program = programs.binary("pebble")
        self.process = None

    def start(self):
        home = self.folder / "workload-pebble"
        home.mkdir(exist_ok=True)
        environment = {**os.environ, "PEBBLE": str(home), "PEBBLE_SOCKET": str(self.socket)}
        self.process = subprocess.Popen(
            [*NEW_NAMESPACE, str(self.program), "run", "--create-dirs", "--hold"],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(60)
            # The process that was waited for is Pebble's parent; a second Pebble ends at once
            # where the first still answers.
            assert waiting.eventually(lambda: not self.answers())

    def answers(self):
        try:
            return bool(pebble.request(self.socket, "/v1/system-info"))
        except OSError:
            return False

    def call(self, *arguments):
        environment = {**os.environ, "PEBBLE_SOCKET": str(self.socket)}
        subprocess.run(
            [str(self.program), *arguments], env=environment, check=True, capture_output=True
        )


@pytest.fixture
def workload(model, plain):
    """The plain charm, started, with a real Pebble in its workload container."""
    try:
        programs.binary("pebble")
    except programs.ProgramError as error:
        needs.leave_out(f"Pebble is not built: {error}")
    if subprocess.run([*NEW_NAMESPACE, "true"], capture_output=True, check=False).returncode:
        needs.leave_out("no user namespaces here")
    model.juju.deploy(plain)
    found = Workload(model.folder)
    model.start("plain/0", workload=found.socket)
    model.wait_for_hook("plain/0", "start")
    found.start()
    try:
        model.wait_for_hook("plain/0", "workload-pebble-ready")
        yield found
    finally:
        found.stop()


def test_failing_pebble_ready_is_no_error_and_comes_again(model, workload):
    model.juju.config("plain", {"script": '[ "$JUJU_HOOK_NAME" != workload-pebble-ready ]'})
    model.wait_for_hook("plain/0", "config-changed", 2)
    workload.stop()
    workload.start()
    model.wait_for_hook("plain/0", "workload-pebble-ready", 3)
    status = model.juju.status()["applications"]["plain"]["application-status"]
    assert status["current"] != "error"


def test_notice_overtakes_relation_hooks_that_wait(model, workload):
    """Seen with 4.0.15: four in a row while relation hooks waited for minutes."""
    workload.call("notify", "example.com/followed")
    model.wait_for_hook("plain/0", f"{NOTICE} example.com/followed")
    gate = workload.folder / "gate"
    busy = f'[ "$JUJU_HOOK_NAME" != update-status ] || until [ -e {gate} ]; do sleep 0.1; done'
    model.juju.config("plain", {"script": busy})
    model.wait_for_hook("plain/0", "config-changed", 3)
    model.juju.fake_app("sql", {"db": {"role": "provides"}})
    model.juju.model_config({"update-status-hook-interval": "50ms"})
    model.wait_for_hook("plain/0", "update-status")
    model.juju.model_config({"update-status-hook-interval": "0"})
    model.juju.integrate("plain:database", "sql")
    for number in range(4):
        workload.call("notify", f"example.com/{number}")
    before = len(model.hooks("plain/0"))
    gate.touch()
    model.wait_for_hook("plain/0", f"{NOTICE} example.com/3")
    model.wait_for_hook("plain/0", "database-relation-changed")
    after = [hook for hook in model.hooks("plain/0")[before:] if hook != "update-status"]
    assert after[:2] == ["database-relation-created", f"{NOTICE} example.com/0"]


def test_notice_that_an_older_juju_does_not_deliver_runs_no_hook(model, workload):
    model.juju.model_config({"testbed-workload-notices": "false"})
    workload.call("notify", "example.com/dropped")
    dropped = ("plain/0", "notice example.com/dropped dropped")
    assert waiting.eventually(lambda: dropped in model.log)
    model.juju.model_config({"testbed-workload-notices": "true"})
    workload.call("notify", "example.com/delivered")
    model.wait_for_hook("plain/0", f"{NOTICE} example.com/delivered")
    assert f"{NOTICE} example.com/dropped" not in model.hooks("plain/0")


def test_failing_notice_hook_restarts_the_uniter_and_replays_everything(model, workload):
    script = """
if [ "$JUJU_HOOK_NAME" = workload-pebble-custom-notice ] && [ ! -e "$CHARM_DIR/once" ]; then
  touch "$CHARM_DIR/once"
  exit 1
fi
"""
    model.juju.config("plain", {"script": script})
    model.wait_for_hook("plain/0", "config-changed", 2)
    workload.call("notify", "example.com/hello")
    model.wait_for_hook("plain/0", f"{NOTICE} example.com/hello", 2)
    model.wait_for_hook("plain/0", "workload-pebble-ready", 2)
    assert model.hooks("plain/0").count("start") == 2
    assert "upgrade-charm" not in model.hooks("plain/0")

"""A controller on loopback without a cluster, and unit agents as plain processes."""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile
from unittest import mock

import pytest

from testbed import loopback, programs
from testbed.juju import client
from testbed.juju.agent import main
from tests import waiting

ROOT = pathlib.Path(__file__).parents[4]
AGENT = ROOT / "testbed" / "juju" / "agent"
PACE = {
    "TESTBED_AGENT_READY_INTERVAL": "0.3",
    "TESTBED_AGENT_FIRST_RETRY": "0.5",
    "TESTBED_AGENT_BOUNCE_PAUSE": "0.3",
}


@pytest.fixture(scope="session")
def plain(tmp_path_factory):
    """A charm of one shell script, packed."""
    target = tmp_path_factory.mktemp("plain") / "plain.charm"
    with zipfile.ZipFile(target, "w") as archive:
        for path in (pathlib.Path(__file__).parent / "plain").iterdir():
            archive.write(path, path.name)
    return target


@contextlib.contextmanager
def running_controller(tmp_path):
    """The controller's process, and a client of it."""
    folder, address = tmp_path / "controller", f"127.0.0.1:{loopback.free_port()}"
    argv = [sys.executable, "-m", "testbed.juju.controller"]
    with (tmp_path / "controller.log").open("wb") as log:
        process = subprocess.Popen(
            [*argv, "--state", str(folder), "--address", address],
            cwd=ROOT, stdout=log, stderr=log,
        )  # fmt: skip
    found = client.Controller(address, folder)

    def answers():
        assert process.poll() is None, (tmp_path / "controller.log").read_text()
        return found.command("models") is not None

    assert waiting.eventually(answers)
    yield found
    # Nobody looks at what it leaves, and an orderly end takes a second.
    process.kill()
    process.wait(10)


@dataclasses.dataclass
class Pod:
    """What a pod is here: a folder and the agent's process."""

    folder: pathlib.Path
    process: subprocess.Popen

    def kill(self):
        """End the agent at once."""
        self.process.kill()
        self.process.wait(10)


def start_agent(folder, environment):
    with (folder / "agent.log").open("ab") as log:
        return subprocess.Popen(
            [
                sys.executable, str(AGENT), "unit",
                "--data-dir", str(folder),
                "--containers", environment["JUJU_CONTAINER_NAMES"],
                "--containers-dir", str(folder / "containers"),
                "--health-port", environment["HEALTH_PORT"],
            ],
            env=environment, stdout=log, stderr=log, cwd=folder,
        )  # fmt: skip


class Model:
    """One model, the pods that the tests started in it, and what its charms saw."""

    def __init__(self, controller, folder, name="m"):
        self.juju = client.Juju(controller, name)
        self.juju.add_model({"update-status-hook-interval": "0"})
        self.controller = controller
        self.folder = folder
        self.name = name
        self.pods = []

    def start_pod(self, unit, *, containers=""):
        """Give a unit a new pod: charm-init, then the agent."""
        app, _, number = unit.partition("/")
        password = waiting.eventually(lambda: self._password(app))
        assert password, f"{app} has no password in time"
        folder = self.folder / f"{self.name}-{app}-{number}-{len(self.pods)}"
        folder.mkdir()
        environment = {
            "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": "/nowhere",
            "POD_ONLY": "yes",
            "KUBERNETES_SERVICE_HOST": "192.0.2.1",
            "JUJU_K8S_CONTROLLER_CA_CERT": (self.folder / "controller" / "ca.crt").read_text(),
            "JUJU_K8S_CONTROLLER_ADDRESSES": self.controller.address,
            "JUJU_K8S_MODEL": self.name,
            "JUJU_K8S_APPLICATION": app,
            "JUJU_K8S_APPLICATION_PASSWORD": password,
            "JUJU_K8S_POD_NAME": f"{app}-{number}",
            "JUJU_K8S_POD_UUID": str(len(self.pods)),
            "JUJU_CONTAINER_NAMES": containers,
            "HEALTH_PORT": str(loopback.free_port()),
            **PACE,
        }
        init = [
            "init",
            "--containeragent-pebble-dir", str(folder / "pebble"),
            "--charm-modified-version", "0",
            "--data-dir", str(folder),
            "--bin-dir", str(folder / "bin"),
            "--pebble", sys.executable,
            "--jujuc", str(programs.ensure(["jujuc"])["jujuc"] / "bin" / "jujuc"),
        ]  # fmt: skip
        with mock.patch.dict(os.environ, environment, clear=True):
            assert main.main(init) == 0
        pod = Pod(folder, start_agent(folder, environment))
        self.pods.append(pod)
        return pod

    def _password(self, app):
        saved = self.folder / "controller" / "models" / f"{self.name}.json"
        applications = json.loads(saved.read_text())["applications"] if saved.exists() else {}
        return applications.get(app, {}).get("password")

    def saw(self, unit):
        """What a unit's charm logged, hook by hook."""
        tag = f"unit-{unit.replace('/', '-')}:"
        return [
            json.loads(line.partition("SAW ")[2])
            for line in self.juju.debug_log().splitlines()
            if line.startswith(tag) and "SAW " in line
        ]

    def hooks(self, unit):
        """The names of a unit's hooks in order."""
        return [seen["hook"] for seen in self.saw(unit)]

    def wait_for_hook(self, unit, hook, count=1):
        """Wait until a unit has seen a hook so many times."""
        assert waiting.eventually(lambda: self.hooks(unit).count(hook) >= count)

    def wait_idle(self, app, status="active"):
        """Wait until an application is settled."""
        return self.juju.wait_for(app, status, 30)


@contextlib.contextmanager
def short_folder():
    """A folder with a short path: that of a Unix socket may have 107 characters."""
    with tempfile.TemporaryDirectory(prefix="juju-", ignore_cleanup_errors=True) as name:
        yield pathlib.Path(name)


@contextlib.contextmanager
def ended(model):
    """A model whose pods are ended after the block."""
    try:
        yield model
    finally:
        # pytest shows it when the test has failed.
        print(model.juju.debug_log())
        for pod in model.pods:
            if pod.process.poll() is None:
                pod.kill()


@pytest.fixture(scope="session")
def new_model():
    """Start models side by side on one controller."""
    numbers = itertools.count(1)
    with short_folder() as folder, running_controller(folder) as controller:
        yield lambda: ended(Model(controller, folder, f"m{next(numbers)}"))


@pytest.fixture
def model(new_model):
    """A model of the test's own."""
    with new_model() as found:
        yield found

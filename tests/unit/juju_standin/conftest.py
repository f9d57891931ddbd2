"""A model without a cluster and without a wire: agents are threads, their hooks real processes."""

import asyncio
import contextlib
import json
import pathlib
import shutil
import tempfile
import threading
import time
import zipfile

import pytest

from juju_standin import client
from juju_standin.agent import api, jujuc, pace, process, unit, uniter
from juju_standin.controller import calls, lifecycle, operations, server
from juju_standin.controller.commands import Commands
from juju_standin.controller.store import Store
from testbed import programs
from tests import waiting

NAME = "m"


@pytest.fixture(scope="session")
def plain(tmp_path_factory):
    """A charm of one shell script, packed."""
    target = tmp_path_factory.mktemp("plain") / "plain.charm"
    with zipfile.ZipFile(target, "w") as archive:
        for path in (pathlib.Path(__file__).parent / "plain").iterdir():
            archive.write(path, path.name)
    return target


class OverError(Exception):
    """The test has ended."""


class Controller:
    """The controller as an agent sees it, with an agent's identity."""

    address = "127.0.0.1:17070"

    def __init__(self, model, identity):
        self._model = model
        self._identity = identity

    def call(self, method, **parameters):
        """Call a method of the agent interface, by values that could go over a wire."""
        if method == "watch":
            return self._watch(**parameters)
        given = json.loads(json.dumps(parameters))
        with self._model.lock:
            if self._model.is_over:
                raise OverError
            try:
                call = calls.identify(self._model.store, self._identity, self._model.list_pods)
                result = server.METHODS[method](call, **given)
                answer = asyncio.run(result) if asyncio.iscoroutine(result) else result
            except calls.CallError as error:
                raise api.ControllerError(str(error)) from error
            return json.loads(json.dumps(answer))

    def _watch(self, *, seen, seconds):
        deadline = time.monotonic() + seconds
        while self._model.version() == seen and time.monotonic() < deadline:
            if self._model.is_over:
                break
            time.sleep(0.02)
        return self._model.version()

    def download_charm(self, target):
        """Fetch the packed charm."""
        application = self._model.state.applications[self._identity["application"]]
        shutil.copy(application.charm_file, target)

    def close(self):
        """Take leave."""


class Model:
    """One model, its units' agents, and what its charms logged."""

    def __init__(self, folder):
        self.folder = folder
        self.lock = threading.RLock()
        self.is_over = False
        self.store = Store(folder / "models")
        self.state = operations.add_model(self.store, NAME, "controller-uuid", {})
        self.pods = []
        """What the cluster has of each application's pods."""
        self.log = []
        # This model answers the commands that a connection would send.
        self.juju = client.Juju(self, NAME)  # pyright: ignore[reportArgumentType]
        self.juju.model_config({"update-status-hook-interval": "0"})
        self._agents = []
        jujuc.copy(programs.ensure(["jujuc"])["jujuc"] / "bin" / "jujuc", folder)

    def command(self, name, /, **given):
        """Run a command of the operator."""
        with self.lock:
            lifecycle.collect(self.state)
            return asyncio.run(Commands(self.store, None).run(name, given))

    async def list_pods(self, _model, _application):
        """Read the pods from the cluster."""
        return self.pods

    def version(self):
        """A text that is another after each change."""
        return str(self.store.version(NAME))

    def identity(self, name):
        """What a unit's agent shows."""
        application = name.partition("/")[0]
        password = self.state.applications[application].password
        return {"model": NAME, "application": application, "password": password, "unit": name}

    def start(self, name, **sockets):
        """Start a unit's agent, with the Pebble sockets of its workload containers."""
        paths = process.Paths(self.folder, name)
        jujuc.install_tools(self.folder, paths.tools)
        tools = jujuc.ToolServer(paths.socket)

        def log(_level, _module, message):
            self.log.append((name, message))

        settings = uniter.Settings(unit=name, paths=paths, sockets=sockets)
        controller = Controller(self, self.identity(name))
        agent = uniter.Uniter(controller, settings, log, tools)  # pyright: ignore[reportArgumentType]
        self._agents.append((agent, tools))

        def live():
            with contextlib.suppress(OverError):
                if unit.live(agent, log):
                    controller.call("unit_dead")

        threading.Thread(target=live, daemon=True).start()

    def end(self):
        """End all agents, whatever they do."""
        with self.lock:
            self.is_over = True
        for agent, tools in self._agents:
            agent.terminate()
            tools.close()

    def hooks(self, name):
        """The names of a unit's hooks in order, with the key of a notice."""
        seen = [line.split()[1:] for who, line in self.log if (who, line[:4]) == (name, "SAW ")]
        return [" ".join(words) for words in seen]

    def wait_for_hook(self, name, hook, count=1):
        """Wait until a unit has seen a hook so many times."""
        assert waiting.eventually(lambda: self.hooks(name).count(hook) >= count), self.log

    def wait_idle(self, app, status="unknown"):
        """Wait until an application is settled."""
        return self.juju.wait_for(app, status, 60)


@pytest.fixture
def model(monkeypatch):
    """A model of the test's own, whose agents are faster than Juju's."""
    monkeypatch.setattr(pace, "READY_INTERVAL", 0.3)
    monkeypatch.setattr(pace, "FIRST_RETRY", 0.5)
    monkeypatch.setattr(pace, "BOUNCE_PAUSE", 0.3)
    # The path of a Unix socket may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="juju-", ignore_cleanup_errors=True) as folder:
        found = Model(pathlib.Path(folder))
        yield found
        found.end()

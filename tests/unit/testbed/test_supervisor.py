import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed import launch, paths, supervisor

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def component(name: str, argv: list[str], **values: Any) -> dict[str, Any]:
    return {"name": name, "argv": argv, "after": [], "probe": "", "environment": {}, **values}


class Running:
    """A supervisor of a few harmless processes."""

    def __init__(self, state: Path, *components: dict[str, Any]):
        (state / "logs").mkdir()
        spec = {"authority": "", "node": None, "components": components}
        (state / "spec.json").write_text(json.dumps(spec))
        self.state = state
        self.process = subprocess.Popen(
            [sys.executable, "-m", "testbed.supervisor", str(state)],
            env={**os.environ, "PYTHONPATH": str(paths.SOURCE)},
            stderr=subprocess.DEVNULL,
        )

    def status(self) -> dict[str, Any]:
        try:
            return json.loads((self.state / "status.json").read_text())
        except FileNotFoundError:
            return {}

    def wait(self, name: str, **want: Any) -> dict[str, Any]:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            one = self.status().get(name, {})
            if want and one and all(one[key] == value for key, value in want.items()):
                return one
            time.sleep(0.02)
        raise AssertionError(f"{name} did not get {want}: {self.status()}")


@pytest.fixture
def running() -> Iterator[list[Running]]:
    started: list[Running] = []
    yield started
    for one in started:
        one.process.kill()
        one.process.wait()


def test_supervisor_killed_takes_its_components_along(tmp_path: Path, running: list[Running]):
    running.append(Running(tmp_path, component("a", SLEEP)))
    pid = running[0].wait("a", ready=True)["pid"]
    running[0].process.send_signal(signal.SIGKILL)
    running[0].process.wait()
    deadline = time.monotonic() + 10
    while launch.start_ticks(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not launch.start_ticks(pid)


def test_supervisor_starts_a_component_again_that_was_killed(
    tmp_path: Path, running: list[Running]
):
    running.append(Running(tmp_path, component("a", SLEEP)))
    first = running[0].wait("a", ready=True)["pid"]
    os.kill(first, signal.SIGKILL)
    again = running[0].wait("a", ready=True, restarts=1)
    assert again["pid"] != first
    assert again["last_exit"] == -signal.SIGKILL


def test_supervisor_holds_a_component_back_until_what_it_needs_is_ready(
    tmp_path: Path, running: list[Running]
):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        first = component("a", SLEEP, probe=f"tcp://127.0.0.1:{port}")
        running.append(Running(tmp_path, first, component("b", SLEEP, after=["a"])))
        running[0].wait("a", ready=False)
        assert running[0].status()["b"]["pid"] is None
        closed.listen()
        running[0].wait("b", ready=True)


def test_supervisor_ends_its_components_when_asked_to(tmp_path: Path, running: list[Running]):
    running.append(Running(tmp_path, component("a", SLEEP)))
    pid = running[0].wait("a", ready=True)["pid"]
    running[0].process.terminate()
    assert running[0].process.wait(timeout=10) == 0
    assert not launch.start_ticks(pid)


@pytest.mark.parametrize(
    "target", ["tcp://127.0.0.1:1", "unix:///nowhere", "https://127.0.0.1:1/"]
)
def test_probe_of_nothing_says_no(target: str):
    assert supervisor.probe(target, "") is False


def test_holder_of_a_reused_process_id_is_not_alive():
    mine = launch.Holder(pid=os.getpid(), started="1", init=os.getpid(), slot=None)
    assert not mine.alive
    ticks = launch.start_ticks(os.getpid())
    assert launch.Holder(pid=os.getpid(), started=ticks, init=0, slot=None).alive


@pytest.mark.parametrize("text", ["", "{", "{}", '{"pid": 1}'])
def test_holder_of_a_broken_record_is_none(tmp_path: Path, text: str):
    (tmp_path / "supervisor.json").write_text(text)
    assert launch.holder(tmp_path) is None

"""What stands in for Katib's collector and for Argo's executor."""

import http.server
import json
import os
import pathlib
import runpy
import subprocess
import sys
import threading

import pytest

from testbed import paths

PAYLOAD = paths.SOURCE / "testbed" / "payload"


@pytest.fixture
def store():
    """A peer that keeps the paths it was asked for."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


@pytest.fixture
def collector():
    return runpy.run_path(str(PAYLOAD / "collector.py"))


@pytest.fixture
def proc(tmp_path):
    """A pod with a pause, a proxy, a wrapped training with a child, and the collector itself."""
    folder = tmp_path / "proc"
    marks = tmp_path / "katib"
    marks.mkdir()
    for number, parent, line in (
        (1, 0, "/pause"),
        (7, 0, "/usr/local/bin/pilot-agent proxy sidecar"),
        (20, 0, f"sh -c train 1>{marks}/metrics.log && echo completed > {marks}/$$.pid"),
        (21, 20, "train (x) 1"),
        (30, 0, "python3 collector.py"),
    ):
        each = folder / str(number)
        each.mkdir(parents=True)
        (each / "stat").write_text(f"{number} (a) b) S {parent} 1 1")
        (each / "cmdline").write_bytes(line.replace(" ", "\0").encode())
    (folder / "self").symlink_to(folder / "30")
    return folder, marks


def end(folder, number):
    for file in (folder / str(number)).iterdir():
        file.unlink()
    (folder / str(number)).rmdir()


def test_collector_sees_the_first_process_of_each_other_container(collector, proc):
    assert set(collector["first_processes"](proc[0])) == {7, 20}


def collected(collector, proc, everyone):
    """Start to wait; the list is empty until it is over."""
    folder, marks = proc
    found = collector["first_processes"](folder)
    over = []

    def wait():
        over.append(collector["wait"](folder, marks, found, everyone, 0.01))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return over, thread


@pytest.mark.parametrize(("mark", "want"), [("completed\n", True), ("", False), (None, False)])
def test_collector_waits_for_the_training_and_reads_its_mark(collector, proc, mark, want):
    over, thread = collected(collector, proc, everyone=False)
    thread.join(0.1)
    assert over == []
    if mark is not None:
        (proc[1] / "20.pid").write_text(mark)
    end(proc[0], 20)
    thread.join(10)
    assert over == [want]


def test_collector_that_waits_for_all_waits_for_the_proxy(collector, proc):
    (proc[1] / "20.pid").write_text("completed")
    over, thread = collected(collector, proc, everyone=True)
    end(proc[0], 20)
    thread.join(0.2)
    assert over == []
    end(proc[0], 7)
    thread.join(10)
    assert over == [True]


def test_collector_without_a_training_fails(collector, proc):
    end(proc[0], 20)
    found = collector["first_processes"](proc[0])
    assert collector["wait"](*proc, found, everyone=False) is False


@pytest.fixture
def step(store, tmp_path):
    """Start parts of a step's executor."""
    address, _ = store
    template = {"name": "step", "archiveLocation": {"http": {"url": f"http://{address}"}}}
    environment = {
        **os.environ,
        "ARGO_VAR_RUN": str(tmp_path),
        "ARGO_CONTAINER_NAME": "main",
        "ARGO_TEMPLATE": json.dumps(template),
    }
    program = str(PAYLOAD / "argoexec.py")
    return lambda *words: subprocess.Popen([sys.executable, program, *words], env=environment)


def test_executor_fetches_runs_and_stores(step, store, tmp_path):
    assert step("init").wait(30) == 0
    assert store[1] == ["/try/step-inputs"]
    assert os.access(tmp_path / "argoexec", os.X_OK)
    with step("wait") as waiting:
        assert step("emissary", "--", "sh", "-c", "exit 3").wait(30) == 3
        assert waiting.wait(30) == 0
    assert store[1] == ["/try/step-inputs", "/try/step-outputs"]


def test_executor_without_its_store_fails(step, monkeypatch, tmp_path):
    template = {"name": "step", "archiveLocation": {"http": {"url": "http://127.0.0.1:9"}}}
    environment = {"ARGO_VAR_RUN": str(tmp_path), "ARGO_TEMPLATE": json.dumps(template)}
    argv = [sys.executable, str(PAYLOAD / "argoexec.py"), "init"]
    done = subprocess.run(argv, env={**os.environ, **environment}, check=False, timeout=30)
    assert done.returncode == 64


def test_executor_is_a_program_of_its_own():
    text = pathlib.Path(PAYLOAD / "argoexec.py").read_text()
    assert text.startswith("#!/usr/bin/env python3\n")

"""What stands in for Katib's collector."""

import runpy
import threading

import pytest

from testbed import paths

PAYLOAD = paths.SOURCE / "testbed" / "payload"


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

"""The training payload, run as processes on loopback."""

import contextlib
import json
import pathlib
import subprocess
import sys
import urllib.request

import pytest

from testbed import loopback

PAYLOAD = pathlib.Path(__file__).parents[3] / "testbed" / "payload"


@contextlib.contextmanager
def started(name, *args, **environment):
    process = subprocess.Popen(
        [sys.executable, PAYLOAD / name, *map(str, args)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    with process:
        yield process
        process.kill()


@pytest.fixture(scope="module")
def data():
    port = loopback.free_port()
    with started("digits.py", "--port", port, "--images", 1000) as server:
        assert "serving 1000 images" in server.stdout.readline()
        yield f"http://127.0.0.1:{port}/digits.npz"


def replica(kind, index, chief, workers, data, *args):
    config = {
        "cluster": {"chief": [chief], "worker": ["unused:1"] * workers},
        "task": {"type": kind, "index": index},
        "environment": "cloud",
    }
    return started("train.py", "--data", data, *args, TF_CONFIG=json.dumps(config))


def test_replicas_train_together_and_agree_on_the_accuracy(data):
    chief = f"127.0.0.1:{loopback.free_port()}"
    with (
        replica("worker", 0, chief, 2, data) as first,
        replica("worker", 1, chief, 2, data) as second,
        replica("chief", 0, chief, 2, data) as leader,
    ):
        outputs = [process.communicate(timeout=60)[0] for process in (leader, first, second)]
        assert [process.returncode for process in (leader, first, second)] == [0, 0, 0]
    last = [output.splitlines()[-1].partition(": ")[2] for output in outputs]
    assert last[0].startswith("accuracy 0.")
    assert last[0].endswith("after 100 steps by 3 replicas")
    assert set(last) == {last[0]}


def test_a_failed_first_download_ends_the_replica(data):
    with replica(
        "worker", 0, "127.0.0.1:1", 1, f"http://127.0.0.1:{loopback.free_port()}/"
    ) as process:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 1
    assert "the download failed" in output


def test_a_worker_gives_up_when_the_chief_never_answers(data):
    chief = f"127.0.0.1:{loopback.free_port()}"
    with replica("worker", 0, chief, 1, data, "--timeout", "0.3") as process:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 1
    assert "the chief does not answer" in output


def test_the_same_seed_makes_the_same_data(data):
    with urllib.request.urlopen(data) as answer:
        body = answer.read()
    with urllib.request.urlopen(data) as answer:
        assert answer.read() == body

"""The counting peer, and the payload that asks it."""

import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from testbed import paths

TRIES = str(paths.SOURCE / "testbed" / "payload" / "tries.py")


@pytest.fixture
def peer():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with subprocess.Popen([sys.executable, TRIES, "serve", str(port)]) as process:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
        process.terminate()
        assert process.wait(10) == 143


def attempt(peer, name, codes, *seconds):
    argv = [sys.executable, TRIES, "run", peer, name, codes, *seconds]
    return subprocess.run(argv, capture_output=True, check=False, timeout=30).returncode


def counted(peer):
    with urllib.request.urlopen(f"{peer}/") as answer:
        return answer.read()


def test_each_try_ends_with_its_own_code_and_is_counted(peer):
    assert [attempt(peer, "job", "3,1,0") for _ in range(4)] == [3, 1, 0, 0]
    assert attempt(peer, "other", "0", "0.1") == 0
    assert counted(peer) == b'{"job": 4, "other": 1}'


@pytest.mark.parametrize("body", [b"stored", [b"sto", b"red"]], ids=["whole", "in-parts"])
def test_what_is_stored_is_counted(peer, body):
    """A body whose length is not known beforehand comes in chunks."""
    request = urllib.request.Request(f"{peer}/try/outputs", data=body, method="PUT")
    with urllib.request.urlopen(request) as answer:
        assert answer.read() == b"1"
    assert counted(peer) == b'{"outputs": 1}'


def test_try_without_its_peer_has_a_code_of_its_own():
    assert attempt("http://127.0.0.1:9", "job", "0") == 99

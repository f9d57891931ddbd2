import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from testbed import paths

PAYLOAD = paths.SOURCE / "testbed" / "payload"


def run(program: str, *args: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(PAYLOAD / program), *args]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/data" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def address():
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_first_request_that_is_answered_succeeds(address):
    result = run("first_request.py", f"http://{address}/data")
    assert (result.returncode, result.stdout) == (0, "first request: HTTP/1.0 200 OK\n")


def test_first_request_answered_with_an_error_fails(address):
    result = run("first_request.py", f"http://{address}/other")
    assert result.returncode == 1
    assert "404" in result.stdout


def test_first_request_without_network_fails_and_says_why():
    result = run("first_request.py", "http://127.0.0.1:9/data")
    assert result.returncode == 1
    assert "first request failed" in result.stderr


def test_sleep_exits_with_the_code_after_the_time():
    started = time.monotonic()
    assert run("sleep.py", "0.2", "--exit-code", "7").returncode == 7
    assert time.monotonic() - started >= 0.2


def test_sleep_fails_the_first_attempts_only(tmp_path):
    args = ["sleep.py", "0", "--fail-first", "2", "--attempts", str(tmp_path / "attempts")]
    assert [run(*args).returncode for _ in range(3)] == [1, 1, 0]


def test_sleep_without_a_place_to_count_is_refused():
    assert run("sleep.py", "0", "--fail-first", "2").returncode == 2


def test_server_waits_then_serves_a_text_and_ends_on_sigterm():
    argv = [
        sys.executable,
        str(PAYLOAD / "server.py"),
        *("--port", "0", "--content", "hello", "--start-delay", "0.3"),
    ]
    started = time.monotonic()
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            said = process.stdout.readline().decode()
            assert said.startswith("serving on port ")
            port = said.split()[-1]
            assert time.monotonic() - started >= 0.3
            assert run("first_request.py", f"http://127.0.0.1:{port}/").returncode == 0
            assert run("first_request.py", f"http://127.0.0.1:{port}/status/503").returncode == 1
        finally:
            process.terminate()
            assert process.wait(10) == 0

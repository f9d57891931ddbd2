"""A request that a pod makes: by what program, and how its answer is read."""

import dataclasses
import http.server
import json
import shutil
import subprocess
import threading

import pytest

from istio_integrator.diagnosis import pod_http
from istio_integrator.kube import errors, streams
from tests import needs


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"path": self.path}).encode()
        self.send_response(302 if self.path == "/moved" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def address():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def run(program, url):
    done = subprocess.run(
        pod_http.commands(url)[program], capture_output=True, text=True, check=False, timeout=20
    )
    return pod_http.read(program, streams.Ended(done.returncode, done.stdout, done.stderr))


@pytest.fixture(params=list(pod_http.commands("")))
def program(request):
    if shutil.which(request.param) is None:
        needs.leave_out(f"there is no {request.param}")
    return request.param


def test_each_program_brings_the_answer_of_a_real_server(program, address):
    found = run(program, f"{address}/x")
    assert (found.status, json.loads(found.text)) == (200, {"path": "/x"})
    assert found.headers["location"] == "/elsewhere"


def test_redirect_is_an_answer_of_its_own(address):
    assert run("python3", f"{address}/moved").status == 302


def test_nobody_who_listens_is_a_problem_in_words(program):
    answer = run(program, "http://127.0.0.1:9/").lower()
    assert "refused" in answer or "connect" in answer


@dataclasses.dataclass
class Containers:
    """Containers by the programs that they have."""

    programs: dict
    tried: list = dataclasses.field(default_factory=list)

    def run(self, namespace, name, container, argv, seconds):
        self.tried.append((container, argv[0]))
        has = self.programs.get(container, ())
        if has == "forbidden":
            raise errors.ForbiddenError(403, 'cannot create resource "pods/exec"')
        if argv[0] not in has:
            if container == "odd":
                return streams.Ended(127, "", "not found")
            raise errors.ApiError(500, f'exec: "{argv[0]}": executable file not found in $PATH')
        head = "HTTP/1.1 200 OK\r\nserver: envoy\r\n\r\nhello"
        return streams.Ended(0, head if argv[0] == "curl" else "{}", "")


def ask(programs, *containers):
    reach = Containers(programs)
    return pod_http.ask(
        reach,
        {
            "metadata": {"name": "ui-0", "namespace": "a"},
            "spec": {"containers": [{"name": each} for each in containers]},
        },
        "http://x/",
    ), reach.tried


def test_the_first_container_that_has_a_program_asks_and_never_the_proxy():
    answer, tried = ask({"odd": (), "main": ("curl",)}, "odd", "istio-proxy", "main")
    assert (answer.status, answer.headers, answer.text) == (200, {"server": "envoy"}, "hello")
    assert tried[-1] == ("main", "curl")
    assert "istio-proxy" not in {container for container, _ in tried}


def test_jujus_own_container_is_tried_first():
    _, tried = ask({"charm": ("curl",)}, "main", "charm")
    assert tried[0][0] == "charm"


def test_pod_without_any_program_says_so():
    answer, _ = ask({}, "main")
    assert answer == "none of its containers has python3, curl or wget"


def test_missing_right_is_for_the_caller_to_say():
    with pytest.raises(errors.ForbiddenError):
        ask({"main": "forbidden"}, "main")

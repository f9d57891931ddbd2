"""A call between two applications: who makes it, by what program, and what its answer means."""

import dataclasses
import http.server
import json
import shutil
import subprocess
import threading

import pytest

import errors
import streams
from diagnosis import calls
from tests import missing


def pod(name="ui-0", *, ready=True, containers=("main", "istio-proxy"), **labels):
    marks = {key.replace("_", "."): value for key, value in labels.items()}
    return {
        "metadata": {"name": name, "namespace": "a", "labels": marks},
        "spec": {"containers": [{"name": each} for each in containers]},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def service(name, *ports):
    entries = [{"port": port} for port in ports]
    return {"metadata": {"name": name, "namespace": "a"}, "spec": {"ports": entries}}


PODS = [
    pod("ui-0", ready=False, app="ui"),
    pod("ui-1", app="ui"),
    pod("db-0", **{"app.kubernetes.io/name": "db"}),
]
SERVICES = [service("web", 80, 443), service("idle", 65535)]


@pytest.mark.parametrize(
    ("source", "target", "want"),
    [
        pytest.param("ui", "web", ("ui-1", "http://web.a.svc.k8s.io:80"), id="ready-pod"),
        pytest.param("db", "web:443/x", ("db-0", "http://web.a.svc.k8s.io:443/x"), id="port"),
        pytest.param("ui-0", "web", ("ui-0", "http://web.a.svc.k8s.io:80"), id="pod"),
        pytest.param("none", "web", "there is no such application", id="no-source"),
        pytest.param("ui", "none", "there is no Service none", id="no-target"),
        pytest.param("ui", "idle", "has no port; write it as idle:PORT", id="placeholder"),
        pytest.param("ui", "web:http", "write it as SERVICE:PORT", id="bad-port"),
    ],
)
def test_call_is_chosen_by_names(source, target, want):
    found = calls.choose(source, target, PODS, SERVICES, domain="k8s.io")
    if isinstance(found, str):
        assert want in found
    else:
        assert (found.source["metadata"]["name"], found.url) == want


CALL = calls.Call(PODS[1], "web", "http://web.a.svc.k8s.io:80")
ENVOY = {"server": "envoy"}


@pytest.mark.parametrize(
    ("answer", "level", "words"),
    [
        pytest.param(streams.Response(200, ENVOY, ""), "✓", "through a proxy: 200", id="well"),
        pytest.param(streams.Response(404, {}, ""), "✓", "not through a proxy: 404", id="bare"),
        pytest.param(
            streams.Response(403, ENVOY, "RBAC: access denied"),
            "✗",
            "AuthorizationPolicy",
            id="denied",
        ),
        pytest.param(streams.Response(403, ENVOY, "log in"), "✓", "403", id="its-own-403"),
        pytest.param(
            streams.Response(503, ENVOY, "upstream connect error"),
            "✗",
            "got 503",
            id="nobody-behind",
        ),
        pytest.param(streams.Response(500, {}, "oh"), "!", "itself: oh", id="its-own-500"),
        pytest.param("timed out", "✗", "does not reach", id="no-answer"),
    ],
)
def test_answer_of_the_mesh_is_told_from_the_applications(answer, level, words):
    (found,) = calls.call(CALL, answer)
    assert (found.level.value, words in found.seen) == (level, True)


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
        calls.commands(url)[program], capture_output=True, text=True, check=False, timeout=20
    )
    return calls.read(program, streams.Ended(done.returncode, done.stdout, done.stderr))


@pytest.fixture(params=list(calls.commands("")))
def program(request):
    if shutil.which(request.param) is None:
        missing.leave_out(f"there is no {request.param}")
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
    return calls.ask(reach, pod(containers=containers), "http://x/"), reach.tried


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

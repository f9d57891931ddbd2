"""A call between two applications: who makes it, and what its answer means."""

import pytest

from istio_integrator.diagnosis.checks import call
from istio_integrator.kube import streams


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
    found = call.choose(source, target, PODS, SERVICES, domain="k8s.io")
    if isinstance(found, str):
        assert want in found
    else:
        assert (found.source["metadata"]["name"], found.url) == want


CALL = call.Call(PODS[1], "web", "http://web.a.svc.k8s.io:80")

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
    (found,) = call.judge(CALL, answer)
    assert (found.level.value, words in found.seen) == (level, True)

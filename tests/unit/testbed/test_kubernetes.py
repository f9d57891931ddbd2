import contextlib
import ssl

import pytest
from aiohttp import test_utils, web

from testbed import kubernetes


def served(group, version, **kinds):
    resources = [
        {
            "resource": plural,
            "responseKind": {"kind": kind},
            "scope": "Namespaced",
            "verbs": ["get", "list"],
        }
        for kind, plural in kinds.items()
    ]
    return {
        "metadata": {"name": group},
        "versions": [{"version": version, "resources": resources}],
    }


def test_discovery_takes_each_kind_in_its_preferred_version():
    apps = served("apps", "v1", Deployment="deployments")
    apps["versions"] += served("apps", "v1beta1", Deployment="deployments")["versions"]
    core = served("", "v1", Pod="pods")
    found = kubernetes.parse_discovery({"items": [apps, core]})
    assert [resource.path("ns", "x") for resource in found] == [
        "/api/v1/namespaces/ns/pods/x",
        "/apis/apps/v1/namespaces/ns/deployments/x",
    ]


def test_paths_of_cluster_scoped_kinds_have_no_namespace():
    node = kubernetes.Resource("", "v1", "Node", "nodes", False, frozenset())
    assert node.path("ns", "a") == "/api/v1/nodes/a"
    assert node.path() == "/api/v1/nodes"


async def test_a_log_that_is_not_utf_8_is_read_all_the_same():
    async def crashed(request):
        return web.Response(body=b"slice \xff of a crash", content_type="text/plain")

    app = web.Application()
    app.router.add_get("/api/v1/namespaces/ns/pods/x/log", crashed)
    async with (
        test_utils.TestServer(app) as server,
        kubernetes.Api(str(server.make_url("")), ssl.create_default_context()) as api,
    ):
        assert await api.log("ns", "x", "istio-proxy") == "slice \ufffd of a crash"


@contextlib.asynccontextmanager
async def answering(path, *answers):
    """Give these answers in turn to whoever asks for the path; the last one for ever."""
    left = list(answers)

    async def answer(request):
        status, document = left.pop(0) if len(left) > 1 else left[0]
        return web.json_response(document, status=status)

    app = web.Application()
    app.router.add_get(path, answer)
    async with (
        test_utils.TestServer(app) as server,
        kubernetes.Api(str(server.make_url("")), ssl.create_default_context()) as api,
    ):
        yield api


JOBS = {
    "kind": "TFJobList",
    "metadata": {"resourceVersion": "7"},
    "items": [{"metadata": {"name": "first"}}],
}


@pytest.mark.parametrize("code", [429, 503])
async def test_a_kind_that_is_not_ready_to_be_listed_is_listed_again(code):
    not_yet = {"message": "storage is (re)initializing"}
    async with answering("/tfjobs", (code, not_yet), (200, JOBS)) as api:
        seen = api.follow("/tfjobs")
        event, item = await anext(seen)
        await seen.aclose()
    assert (event, item["metadata"]["name"]) == ("ADDED", "first")


async def test_a_kind_that_may_not_be_listed_ends_the_watch():
    async with answering("/tfjobs", (403, {"message": "no"})) as api:
        with pytest.raises(kubernetes.ApiError, match="403 no"):
            await anext(api.follow("/tfjobs"))


async def answers_to(method, code):
    """Ask a server that gives an error first; return how it went, and what is left to say."""
    answers = [web.Response(status=code), web.Response(text="it")]

    async def busy(request):
        return answers.pop(0)

    app = web.Application()
    app.router.add_route("*", "/x", busy)
    async with (
        test_utils.TestServer(app) as server,
        kubernetes.Api(str(server.make_url("")), ssl.create_default_context()) as api,
    ):
        try:
            return await api.request(method, "/x"), len(answers)
        except kubernetes.ApiError as error:
            return error.code, len(answers)


@pytest.mark.parametrize(
    ("method", "code", "went"),
    [("GET", 429, ("it", 0)), ("POST", 429, (429, 1)), ("GET", 404, (404, 1))],
)
async def test_read_for_which_the_server_has_no_time_is_tried_again(method, code, went):
    assert await answers_to(method, code) == went

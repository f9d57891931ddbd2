import ssl

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

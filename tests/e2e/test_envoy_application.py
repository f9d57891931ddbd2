"""An application that is itself an Envoy, as Kubeflow's ML metadata has one, beside the proxy.

Envoy's default base id names a socket and shared memory, which all containers of a pod see.
"""

import json

import pytest

from testbed import images, kubernetes
from testbed.kit import observer, workloads
from tests.e2e import juju_world

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

NAMESPACE = "envoys"
HOLD = {"proxy.istio.io/config": '{"holdApplicationUntilProxyStarts": true}'}
KINDS = {
    "classic": workloads.CLASSIC,
    "classic-held": {**workloads.CLASSIC, **HOLD},
    "native": {"sidecar.istio.io/nativeSidecar": "true"},
}


def bootstrap(port, admin):
    """Write the configuration of an Envoy that answers every request by itself."""
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network."
        "http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "own",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [
                        {
                            "match": {"prefix": "/"},
                            "direct_response": {"status": 200, "body": {"inline_string": "own"}},
                        }
                    ],
                }
            ]
        },
        "http_filters": [
            {
                "name": "router",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
                },
            }
        ],
    }
    listener = {
        "address": {"socket_address": {"address": "0.0.0.0", "port_value": port}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    address = {"socket_address": {"address": "127.0.0.1", "port_value": admin}}
    return {"static_resources": {"listeners": [listener]}, "admin": {"address": address}}


def envoy(name, port, admin):
    """Write a container whose Envoy has no options but its configuration."""
    config = json.dumps(bootstrap(port, admin))
    command = ["/usr/local/bin/envoy", "--config-yaml", config]
    probe = {"httpGet": {"path": "/", "port": port}, "periodSeconds": 1}
    user = {"runAsUser": 65534, "runAsGroup": 65534}
    image = images.reference("proxy")
    return workloads.container(name, image, command, readinessProbe=probe, securityContext=user)


@pytest.fixture
async def namespace(cni_api):
    """A namespace in the mesh, kept for the next test."""
    await cni_api.apply(workloads.namespace(NAMESPACE, {"istio-injection": "enabled"}))
    yield NAMESPACE
    for name in (*KINDS, "two"):
        await cni_api.delete("Pod", name, NAMESPACE)


@pytest.mark.parametrize("plugin", [True, False], ids=["cni", "init"])
async def test_it_starts_and_answers_beside_each_kind_of_proxy(
    cni_node, cni_api, namespace, plugin
):
    how = juju_world.Mesh(cni=plugin, native=True)
    await juju_world.set_mesh(cni_node.testbed, cni_api, how)
    for kind, annotations in KINDS.items():
        await until_gone(cni_api, kind)
        body = workloads.template([envoy("own", 9090, 9901)], annotations=annotations)
        await cni_api.apply(workloads.pod(kind, namespace, body))
    for kind in KINDS:
        pod = await juju_world.until_ready(cni_api, namespace, kind)
        assert [one["restartCount"] for one in statuses(pod)] == [0] * len(statuses(pod))
        names = [one["name"] for one in pod["spec"]["containers"]]
        held = "first" if names[0] == "istio-proxy" else "not first"
        assert ("istio-proxy" in names, held) == {
            "classic": (True, "not first"),
            "classic-held": (True, "first"),
            "native": (False, "not first"),
        }[kind]
        path = f"/api/v1/namespaces/{namespace}/pods/{kind}:9090/proxy/"
        assert await cni_api.request("GET", path, accept="*/*") == "own"
        await cni_api.delete("Pod", kind, namespace)


async def test_two_of_its_kind_do_not_start_in_one_pod(cni_api, namespace):
    containers = [envoy("own", 9090, 9901), envoy("other", 9091, 9902)]
    await cni_api.apply(workloads.pod("two", namespace, workloads.template(containers)))

    async def refused():
        for name in ("own", "other"):
            for previous in (False, True):
                try:
                    text = await cni_api.log(namespace, "two", name, previous=previous)
                except kubernetes.ApiError:
                    continue
                if "unable to bind domain socket with base_id=0" in text:
                    return True
        return False

    await observer.eventually(refused, 60, "one Envoy in the way of the other")


async def until_gone(api, name):
    """Wait until the last test's pod is away."""

    async def gone():
        return await api.find("Pod", name, NAMESPACE) is None

    await observer.eventually(gone, 60, f"no pod {name}")


def statuses(pod):
    """All containers' statuses."""
    return [
        one
        for field in ("initContainerStatuses", "containerStatuses")
        for one in pod["status"].get(field, [])
    ]

"""The charm is told when the model's gateway comes, changes or goes, and not of anything else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sidecar_lifecycle.shell.observers import observe

from tests.unit.workload.fake_apiserver import FakeApiserver, running_task, until

VIRTUAL_TIME = True
OWNER = "kubeflow.istio-integrator"
SPACE = "istio-ingress"
KINDS = 5
ROUTER = {"name": "istio-proxy", "args": ["proxy", "router"]}
SIDECAR = {"name": "istio-proxy", "args": ["proxy", "sidecar"]}


def workload(
    container: dict[str, Any] = ROUTER,
    *,
    ready: int = 1,
    status: str = "readyReplicas",
    annotations: dict[str, str] | None = None,
    **labels: str,
) -> dict[str, Any]:
    pod = {"labels": {"istio": "gateway", **labels}, "annotations": annotations or {}}
    return {
        "metadata": {"name": "gateway", "namespace": SPACE, "generation": 1},
        "spec": {"template": {"metadata": pod, "spec": {"containers": [container]}}},
        "status": {status: ready},
    }


def service(
    port: int = 80, *, namespace: str = SPACE, name: str = "gateway", **selector: str
) -> dict[str, Any]:
    ports = [{"name": "http2", "port": port}]
    spec = {"selector": selector or {"istio": "gateway"}, "ports": ports}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def versioned(generation: int = 1, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "web", "namespace": "shop", "generation": generation}
    return {"metadata": metadata, "spec": spec}


@contextlib.asynccontextmanager
async def observing(
    *present: tuple[str, dict[str, Any]], named: str = f"{SPACE}/gateway"
) -> AsyncIterator[Any]:
    cluster = FakeApiserver()
    told: list[float] = []
    async with cluster as client:
        for plural, item in present:
            cluster.put(plural, item)
        now = asyncio.get_running_loop().time
        following = observe.follow_gateway(
            client,
            model="kubeflow",
            owner=OWNER,
            named=named,
            changed=lambda: told.append(now()),
        )
        async with running_task(following):
            await until(lambda: len(cluster.watchers) == KINDS)
            await asyncio.sleep(5)
            assert told == []
            yield cluster, told


def ours(
    generation: int = 1, *, applied: str = "a", namespace: str = "kubeflow", owner: str = OWNER
) -> dict[str, Any]:
    """Return the Gateway that the charm made, after so many changes of its specification."""
    found = versioned(generation)
    found["metadata"] |= {
        "namespace": namespace,
        "uid": "ours",
        "labels": {"istio-integrator.charmhub.io/owner": owner},
        "annotations": {"istio-integrator.charmhub.io/applied-hash": applied},
    }
    return found


def marked(item: dict[str, Any], *, namespace: str = "kubeflow", applied: str = "a"):
    """Return an object as the charm makes it."""
    of_charm = ours(item["metadata"].get("generation", 0), applied=applied)["metadata"]
    name = item["metadata"]["name"]
    return {**item, "metadata": {**of_charm, "name": name, "namespace": namespace}}


def of_istiod(item: dict[str, Any]) -> dict[str, Any]:
    """Return an object as istiod makes it for our Gateway of the Gateway API."""
    labels = {"gateway.networking.k8s.io/gateway-name": "kubeflow-gateway"}
    return {**item, "metadata": {**item["metadata"], "namespace": "kubeflow", "labels": labels}}


BY_TEMPLATE = {"inject.istio.io/templates": "gateway"}


@pytest.mark.parametrize(
    ("plural", "before", "after", "want"),
    [
        pytest.param("deployments", None, workload(), True, id="gateway-comes"),
        pytest.param("daemonsets", None, workload(), True, id="gateway-on-every-node-comes"),
        pytest.param(
            "deployments",
            None,
            workload({"name": "istio-proxy"}, annotations=BY_TEMPLATE),
            True,
            id="gateway-by-template-comes",
        ),
        pytest.param("deployments", None, workload(SIDECAR), False, id="application-comes"),
        pytest.param("deployments", workload(ready=0), workload(), True, id="gateway-ready"),
        pytest.param("deployments", workload(), workload(ready=2), False, id="gateway-scaled"),
        pytest.param(
            "daemonsets",
            workload(ready=0, status="numberReady"),
            workload(status="numberReady"),
            True,
            id="gateway-on-every-node-ready",
        ),
        pytest.param("deployments", workload(), workload(app="x"), True, id="gateway-relabelled"),
        pytest.param("deployments", workload(), workload(SIDECAR), True, id="gateway-no-more"),
        pytest.param("gateways", None, versioned(), False, id="another-team's-Gateway-comes"),
        pytest.param("gateways", None, ours(), False, id="made"),
        pytest.param("gateways", ours(), ours(2, applied="b"), False, id="written-by-the-charm"),
        pytest.param("gateways", ours(), ours(2), True, id="edited-by-another"),
        pytest.param(
            "gateways", None, ours(owner="another.one"), False, id="of-another-application"
        ),
        pytest.param("services", None, service(), True, id="service-comes"),
        pytest.param("services", service(), service(8080), True, id="service-has-another-port"),
        pytest.param("services", service(), service(), False, id="service-is-touched"),
        pytest.param(
            "services", service(), service(app="other"), True, id="service-leads-elsewhere"
        ),
        pytest.param(
            "services", None, service(name="other"), False, id="service-has-another-name"
        ),
        pytest.param(
            "services", None, service(namespace="shop"), False, id="service-in-another-namespace"
        ),
    ],
)
async def test_charm_is_told_of_a_gateways_change_that_matters(
    plural: str, before: dict[str, Any] | None, after: dict[str, Any], want: bool
):
    async with observing(*([(plural, before)] if before else [])) as (cluster, told):
        cluster.put(plural, after)
        await asyncio.sleep(5)
        assert bool(told) is want


@pytest.mark.parametrize(
    ("plural", "before", "after", "want"),
    [
        pytest.param("envoyfilters", None, ours(), False, id="guard-made"),
        pytest.param(
            "envoyfilters", ours(), ours(2, applied="b"), False, id="guard-written-by-the-charm"
        ),
        pytest.param("envoyfilters", ours(), ours(2), True, id="guard-edited-by-another"),
        pytest.param("deployments", None, marked(workload(ready=0)), False, id="workload-made"),
        pytest.param(
            "deployments", marked(workload(ready=0)), marked(workload()), True, id="workload-ready"
        ),
        pytest.param(
            "services",
            marked(service()),
            marked(service(8080), applied="b"),
            False,
            id="service-written-by-the-charm",
        ),
        pytest.param(
            "services", marked(service()), marked(service(8080)), True, id="service-edited"
        ),
        pytest.param("services", None, of_istiod(service()), True, id="istiods-service"),
        pytest.param(
            "services",
            of_istiod(service()),
            of_istiod(service(8080)),
            True,
            id="istiods-service-has-another-port",
        ),
        pytest.param("services", None, service(namespace="kubeflow"), False, id="other-service"),
        pytest.param("deployments", None, of_istiod(workload()), True, id="istiods-workload"),
        pytest.param("deployments", None, workload(), False, id="gateway-of-another-namespace"),
    ],
)
async def test_charm_without_a_named_gateway_is_told_of_what_it_did_not_write_in_its_model(
    plural: str, before: dict[str, Any] | None, after: dict[str, Any], want: bool
):
    async with observing(*([(plural, before)] if before else []), named="") as (cluster, told):
        cluster.put(plural, after)
        await asyncio.sleep(5)
        assert bool(told) is want


async def test_charm_is_told_of_a_named_gateway_that_goes():
    async with observing(("deployments", workload())) as (cluster, told):
        cluster.delete("deployments", SPACE, "gateway")
        await until(lambda: told)


async def test_charm_is_told_of_a_second_gateway_in_another_namespace():
    other = workload()
    other["metadata"]["namespace"] = "tenant"
    async with observing(("deployments", workload())) as (cluster, told):
        cluster.put("deployments", other)
        await until(lambda: told)


async def test_gateway_of_the_charm_that_is_deleted_is_told():
    async with observing(("gateways", ours())) as (cluster, told):
        cluster.delete("gateways", "kubeflow", "web")
        await asyncio.sleep(5)
        assert told

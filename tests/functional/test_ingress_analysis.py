"""What Istio's own tool says about what we apply: nothing."""

import dataclasses
import subprocess

import pytest
import yaml

from istio_integrator.config import config
from istio_integrator.ingress import (
    authorization,
    gateway,
    guards,
    own_gateway,
    record,
    requested,
    routes,
)
from istio_integrator.kube import manifests
from istio_integrator.relations import ingress_route, kubeflow
from testbed import programs

TARGET = gateway.Target(
    namespace="istio-ingress",
    selector={"istio": "ingressgateway"},
    service="gateway",
    http_port=80,
    https_port=443,
)
SERVICE = authorization.Service(
    host="oidc.kubeflow.svc.cluster.local",
    port=80,
    request_headers=("cookie",),
    response_headers=("kubeflow-userid",),
)
REQUESTS = {
    "dashboard": {"prefix": "/"},
    "volumes": {"prefix": "/volumes", "rewrite": "/"},
    "outer": {"prefix": "/a"},
    "inner": {"prefix": "/a/b.c", "rewrite": "/x"},
}


BASE = {
    "listener": {"port": 80, "protocol": "HTTP"},
    "backends": [{"service": "outer", "port": 80}],
}
NEWER = {
    "model": "kubeflow",
    "http_routes": [
        {
            **BASE,
            "name": "prefix",
            "matches": [{"path": {"value": "/n"}}],
            "filters": [
                {"urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}}
            ],
        },
        {
            **BASE,
            "name": "exact",
            "matches": [{"path": {"type": "Exact", "value": "/r"}}],
            "filters": [
                {"urlRewrite": {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/x"}}}
            ],
        },
    ],
    "grpc_routes": [
        {**BASE, "name": "calls", "matches": [{"method": {"service": "ml.Store"}}]},
    ],
}


def service(namespace, name, **selector):
    ports = [{"name": "http2", "port": 80}, {"name": "https", "port": 443}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": selector, "ports": ports},
    }


def world():
    """What has to be there beside ours."""
    labels = {"istio-injection": "enabled"}
    yield {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "kubeflow", "labels": labels},
    }
    for name in (*REQUESTS, "oidc"):
        yield service("kubeflow", name, app=name)
    yield service("istio-ingress", "gateway", istio="ingressgateway")
    metadata = {"name": "tls", "namespace": "istio-ingress"}
    yield {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
    metadata = {
        "name": "gateway",
        "namespace": "istio-ingress",
        "labels": {"istio": "ingressgateway"},
    }
    spec = {"containers": [{"name": "istio-proxy", "image": "proxy"}]}
    yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def ours(guard, hosts):
    requests = [
        kubeflow.Received(number, app, kubeflow.IngressRequest(service=app, port=80, **request))
        for number, (app, request) in enumerate(REQUESTS.items())
    ]
    yield from manifests.render(
        gateway.FOLDER,
        gateway.Context(
            name=gateway.NAME,
            target=dataclasses.replace(TARGET, only_https=bool(hosts)),
            credential="tls",
            hosts=dict.fromkeys((80, 443), hosts or ("*",)),
        ),
    )
    terms = requested.Terms(
        model="kubeflow", application="istio-integrator", domain="cluster.local"
    )
    newer = ingress_route.Received(
        endpoint=kubeflow.INGRESS_ROUTE,
        relation=100,
        application="newer",
        message=ingress_route.IstioIngressRouteConfig.model_validate(NEWER),
    )
    plan = routes.plan(
        [
            *requested.by_ingress(requests, terms),
            *requested.by_ingress_route([newer], requests, terms),
        ]
    )
    assert plan.problems == ()
    target = dataclasses.replace(TARGET, hosts=tuple(hosts))
    values = record.Values()
    context = guards.context(
        guard,
        target,
        values,
        plan.routes,
        owner="kubeflow.istio-integrator",
        model="kubeflow",
        domain="cluster.local",
    )
    yield from manifests.render(guards.FOLDER, context)
    context = routes.Context.of(
        plan.routes, target, values, model="kubeflow", application="istio-integrator"
    )
    yield from manifests.render(routes.FOLDER, context)


def workload():
    """A gateway workload of our own, and a pod of it."""
    context = own_gateway.Context(
        name="own",
        account="own",
        model="kubeflow",
        pod_labels={"istio": "own"},
        inject_labels={"sidecar.istio.io/inject": "true"},
        options=config.Config(),
    )
    for obj in manifests.render(own_gateway.FOLDER, context):
        yield obj
        if obj["kind"] == "Deployment":
            template = obj["spec"]["template"]
            pod = {"apiVersion": "v1", "kind": "Pod", **template}
            yield {**pod, "metadata": {**template["metadata"], "name": "own-0"}}


@pytest.mark.parametrize("hosts", [(), ("kf.example.com",)], ids=["alone", "shared"])
@pytest.mark.parametrize(
    "guard",
    [
        authorization.Guard(),
        authorization.Guard(service=SERVICE),
    ],
    ids=["closed", "asking"],
)
def test_istioctl_analyze_has_nothing_to_say(tmp_path, guard, hosts):
    objects = [*ours(guard, hosts), *workload()]
    for obj in objects:
        obj["metadata"].setdefault("namespace", "kubeflow")
    path = tmp_path / "objects.yaml"
    path.write_text(yaml.safe_dump_all([*objects, *world()]))
    run = subprocess.run(
        [programs.binary("istioctl"), "analyze", "--use-kube=false", "-A", path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No validation issues found" in run.stdout + run.stderr, run.stdout + run.stderr

"""What Istio's own tool says about what we apply: nothing."""

import dataclasses
import subprocess

import pytest
import yaml

from istio_integrator.config import config
from istio_integrator.ingress import gateway, record
from istio_integrator.ingress.gateways import own
from istio_integrator.ingress.guard import authentication, envoyfilter
from istio_integrator.ingress.routes import plan as planning
from istio_integrator.ingress.routes import render, requested
from istio_integrator.kube import manifests
from istio_integrator.messages import Said
from istio_integrator.relations import ingress_route, kubeflow
from testbed import programs

TARGET = gateway.Target(
    namespace="istio-ingress",
    selector={"istio": "ingressgateway"},
    service="gateway",
    http_port=80,
    https_port=443,
)
SERVICE = authentication.Service(
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


def ours(decision, hosts):
    requests = [
        kubeflow.Received(number, app, kubeflow.IngressRequest(service=app, port=80, **request))
        for number, (app, request) in enumerate(REQUESTS.items())
    ]
    yield from manifests.render(
        gateway.FOLDER,
        {
            "name": gateway.NAME,
            "target": TARGET,
            "credential": "tls",
            "hosts": dict.fromkeys((80, 443), hosts or ("*",)),
            "only_https": bool(hosts),
        },
    )
    reader = requested.Reader(
        model="kubeflow", application="istio-integrator", domain="cluster.local"
    )
    newer = ingress_route.Received(
        endpoint=kubeflow.INGRESS_ROUTE,
        relation=100,
        application="newer",
        message=ingress_route.IstioIngressRouteConfig.model_validate(NEWER),
    )
    plan = planning.plan(reader.read(requests, [newer]))
    assert plan.problems == ()
    target = dataclasses.replace(TARGET, hosts=tuple(hosts))
    values = record.Values()
    context = envoyfilter.variables(
        decision,
        target,
        values,
        plan.routes,
        owner="kubeflow.istio-integrator",
        model="kubeflow",
        domain="cluster.local",
    )
    yield from manifests.render(envoyfilter.FOLDER, context)
    context = render.virtual_service(
        plan.routes, target, values, model="kubeflow", application="istio-integrator"
    )
    yield from manifests.render(render.VIRTUAL_SERVICE, context)


def workload():
    """A gateway workload of our own, and a pod of it."""
    context = {
        "name": "own",
        "account": "own",
        "model": "kubeflow",
        "pod_labels": {"istio": "own"},
        "inject_labels": {"sidecar.istio.io/inject": "true"},
        "options": config.Config(),
    }
    for obj in manifests.render(own.FOLDER, context):
        yield obj
        if obj["kind"] == "Deployment":
            template = obj["spec"]["template"]
            pod = {"apiVersion": "v1", "kind": "Pod", **template}
            yield {**pod, "metadata": {**template["metadata"], "name": "own-0"}}


@pytest.mark.parametrize("hosts", [(), ("kf.example.com",)], ids=["alone", "shared"])
@pytest.mark.parametrize(
    "decision",
    [
        authentication.Decision(problem=Said.NO_AUTHENTICATOR()),
        authentication.Decision(service=SERVICE),
    ],
    ids=["closed", "asking"],
)
def test_istioctl_analyze_has_nothing_to_say(tmp_path, decision, hosts):
    objects = [*ours(decision, hosts), *workload()]
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

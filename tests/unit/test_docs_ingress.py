"""The reference page of the ingress knows every field that we apply there, and no others."""

import dataclasses
import pathlib
import re

import pytest

from istio_integrator.config import config
from istio_integrator.ingress import (
    authorization,
    certificate,
    gateway,
    gateway_api,
    grpc,
    guards,
    http_routes,
    managed_gateway,
    memory,
    observed,
    own_gateway,
    requested,
    routes,
)
from istio_integrator.kube import manifests
from istio_integrator.relations import ingress_route, kubeflow

PAGE = pathlib.Path(__file__).parents[2] / "docs/reference/ingress-objects.md"
TARGET = gateway.Target(
    namespace="istio-ingress",
    selector={"istio": "ingressgateway"},
    service="gw",
    http_port=80,
    https_port=443,
    neighbours=(observed.Neighbour("shop/web", (observed.Server(80, ("shop.example",)),)),),
)
SERVICE = authorization.Service(
    host="oidc.kubeflow.svc.cluster.local",
    port=8080,
    path="/decisions",
    request_headers=("cookie",),
    describing=(authorization.Header("x-forwarded-uri", "%REQ(:path)%"),),
    response_headers=("kubeflow-userid",),
)
GUARDS = (authorization.Guard(), authorization.Guard(service=SERVICE))


def guards_applied():
    for guard in GUARDS:
        for hosts in ((), ("kf.example",), ("*.kf.example",)):
            context = guards.context(
                guard,
                dataclasses.replace(TARGET, hosts=hosts, only_https=True),
                owner="kubeflow.app",
                model="kubeflow",
                domain="cluster.local",
                redirects=True,
                unasked=("open-0123456789abcdef",),
            )
            yield from manifests.render(guards.FOLDER, context)


def places():
    context = memory.Context(name="app-gateway-place", place="{}", token="a")
    return manifests.render(memory.FOLDER, context)


def gateways():
    for credential in ("", "tls"):
        context = gateway.Context(
            name=gateway.NAME,
            selector=TARGET.selector,
            hosts=("*",),
            http_port=80,
            https_port=443 if credential else None,
            redirect=bool(credential),
            credential=credential,
        )
        yield from manifests.render(gateway.FOLDER, context)


def served():
    older = kubeflow.IngressRequest(service="a", port=80, prefix="/older", rewrite="/")
    base = {
        "listener": {"port": 80, "protocol": "HTTP"},
        "backends": [{"service": "a", "port": 80}],
    }
    whole = {"type": "ReplaceFullPath", "replaceFullPath": "/x"}
    asked = [
        {
            "name": "exact",
            "matches": [{"path": {"type": "Exact", "value": "/a"}}],
            "filters": [{"urlRewrite": {"path": whole}}],
        },
        {"name": "prefix", "matches": [{"path": {"type": "PathPrefix", "value": "/b"}}]},
    ]
    config = {
        "model": "kubeflow",
        "http_routes": [{**base, **one} for one in asked],
        "grpc_routes": [
            {**base, "name": "calls", "matches": [{"method": {"service": "ml.Store"}}]},
        ],
    }
    newer = ingress_route.Received(
        endpoint=kubeflow.INGRESS_ROUTE,
        relation=2,
        application="b",
        message=ingress_route.IstioIngressRouteConfig.model_validate(config),
    )
    terms = requested.Terms(
        model="kubeflow",
        application="istio-integrator",
        domain="cluster.local",
    )
    received = [kubeflow.Received(1, "a", older)]
    plan = routes.plan(
        [
            *requested.by_ingress(received, terms),
            *requested.by_ingress_route([newer], received, terms),
        ]
    )
    assert plan.problems == ()
    return plan.routes


def routes_applied():
    context = routes.Context.of(served(), TARGET, model="kubeflow", application="a")
    return manifests.render(routes.FOLDER, context)


def managed(kind):
    context = gateway_api.Context(
        name=gateway.NAME,
        gateway_class="istio",
        revision="canary",
        redirect="redirect",
        selector={"a": "b"},
        listeners=gateway_api.listeners(
            dataclasses.replace(TARGET, hosts=("a.example.com",)), "tls"
        ),
    )
    objects = manifests.render(managed_gateway.FOLDER, context)
    return [obj for obj in objects if obj["kind"] == kind]


def gateway_api_routes(kind):
    found = [dataclasses.replace(one, is_asked=False) for one in served()]
    context = http_routes.Context.of(
        found, application="a", model="kubeflow", domain="cluster.local", has_calls=True
    )
    objects = manifests.render(http_routes.FOLDER, context)
    return [obj for obj in objects if obj["kind"] == kind]


def rules_applied():
    context = grpc.Context.of(served(), TARGET, others=(), application="a")
    return manifests.render(grpc.FOLDER, context)


def workload(kind):
    context = own_gateway.Context(
        name="gateway",
        model="kubeflow",
        pod_labels={"istio": "x"},
        inject_labels={"inject": "true"},
        options=config.Config(),
    )
    objects = manifests.render(own_gateway.FOLDER, context)
    return [obj for obj in objects if obj["kind"] == kind]


def leaves(value, path=""):
    """Every path to something that is neither a mapping nor a list."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for inner in value:
            yield from leaves(inner, f"{path}[]")
    elif value != {}:
        yield path


def section(title):
    text = PAGE.read_text()
    (found,) = re.findall(rf"^## {title}.*?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return [row[1] for row in re.finditer(r"^\| `([^`]+)` \|", found, re.MULTILINE)]


SELECTORS = ("spec.workloadSelector.labels", "spec.selector.matchLabels", "spec.selector")


def said_of(path, rows):
    """The row that a field belongs to."""
    for row in rows:
        below = row.removesuffix("…") if row.endswith("…") else f"{row}."
        if path == row or (path.startswith(below) and (row.endswith("…") or row in SELECTORS)):
            return row
    return None


@pytest.mark.parametrize(
    ("title", "objects"),
    [
        ("ConfigMap", places),
        ("EnvoyFilter", lambda: [one for one in guards_applied() if one["kind"] == "EnvoyFilter"]),
        ("Gateway", gateways),
        ("VirtualService", routes_applied),
        ("DestinationRule", rules_applied),
        ("Managed Gateway", lambda: managed("Gateway")),
        ("Redirecting", lambda: managed("EnvoyFilter")),
        ("HTTPRoute", lambda: gateway_api_routes("HTTPRoute")),
        ("GRPCRoute", lambda: gateway_api_routes("GRPCRoute")),
        ("Deployment", lambda: workload("Deployment")),
        ("Service", lambda: workload("Service")),
        ("PodDisruptionBudget", lambda: workload("PodDisruptionBudget")),
    ],
)
def test_every_field_of_what_we_apply_is_explained(title, objects):
    rows = section(title)
    paths = {
        path
        for obj in objects()
        for path in leaves({key: obj[key] for key in ("metadata", "spec", "data") if key in obj})
        if path != "metadata.name"
    }
    said = {path: said_of(path, rows) for path in paths}
    assert [path for path, row in said.items() if row is None] == []
    assert set(rows) == set(said.values())


def test_secrets_are_explained():
    rows = re.findall(r"^\| `(gateway-[a-z]+)` `([^`]+)` \|", PAGE.read_text(), re.MULTILINE)
    for folder in (certificate.KEY_FOLDER, certificate.SECRET_FOLDER):
        (template,) = (manifests.TEMPLATES / folder).glob("*.j2")
        text = template.read_text()
        fields = set(re.findall(r"^(type|data):", text, re.MULTILINE))
        fields |= {f"metadata.{name}" for name in re.findall(r"^  (\w+):", text, re.MULTILINE)}
        assert {field for name, field in rows if name == folder} == fields - {"metadata.name"}

"""The reference page of the ingress knows every field that we apply there, and no others."""

import pathlib
import re

import pytest

import authentication
import gateway
import gateway_workload
import ingress
import manifests
import relations
import routing
import tls

PAGE = pathlib.Path(__file__).parents[2] / "docs/reference/ingress-objects.md"
TARGET = gateway.Target(
    namespace="istio-ingress",
    selector={"istio": "ingressgateway"},
    service="gw",
    http_port=80,
    https_port=443,
    neighbours=(gateway.Neighbour("shop/web", (gateway.Server(80, ("shop.example",)),)),),
)
SERVICE = authentication.Service(
    host="oidc.kubeflow.svc.cluster.local",
    port=8080,
    request_headers=("cookie",),
    response_headers=("kubeflow-userid",),
)
GUARDS = (authentication.Guard(), authentication.Guard(service=SERVICE, provider="oidc"))


def guards():
    for guard in GUARDS:
        for hosts in ((), ("kf.example",), ("*.kf.example",)):
            context = authentication.context(
                guard, TARGET, owner="kubeflow.app", gateway="kubeflow/gateway", hosts=hosts
            )
            yield from manifests.render(authentication.FOLDER, context)


def gateways():
    for credential in ("", "tls"):
        context = ingress.GatewayContext(
            name=ingress.GATEWAY_NAME,
            selector=TARGET.selector,
            hosts=("*",),
            http_port=80,
            https_port=443 if credential else None,
            redirect=bool(credential),
            credential=credential,
        )
        yield from manifests.render(ingress.GATEWAY_FOLDER, context)


def routes():
    prefixes = ("/", "/a", "/a/b")
    received = [
        relations.Received(
            n, f"a{n}", relations.IngressRequest(service="a", port=80, prefix=prefix, rewrite="/")
        )
        for n, prefix in enumerate(prefixes)
    ]
    found = routing.routes(
        received, model="kubeflow", application="istio-integrator", domain="cluster.local"
    )
    context = ingress.RoutesContext(
        routes=found, gateway="kubeflow/gateway", hosts=("*",), export_to=(".",)
    )
    yield from manifests.render(ingress.ROUTES_FOLDER, context)


def workload(kind):
    context = gateway_workload.Context(
        name="gateway",
        model="kubeflow",
        pod_labels={"istio": "x"},
        inject_labels={"inject": "true"},
    )
    objects = manifests.render(gateway_workload.FOLDER, context)
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
        ("EnvoyFilter", lambda: [one for one in guards() if one["kind"] == "EnvoyFilter"]),
        ("AuthorizationPolicy", lambda: [one for one in guards() if "action" in one["spec"]]),
        ("Gateway", gateways),
        ("VirtualService", routes),
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
        for path in leaves({key: obj[key] for key in ("metadata", "spec")})
        if path != "metadata.name"
    }
    if title == "AuthorizationPolicy":
        paths = {path.removesuffix("[]") for path in paths}
    said = {path: said_of(path, rows) for path in paths}
    assert [path for path, row in said.items() if row is None] == []
    assert set(rows) == set(said.values())


def test_secrets_are_explained():
    rows = re.findall(r"^\| `(gateway-[a-z]+)` `([^`]+)` \|", PAGE.read_text(), re.MULTILINE)
    for folder in (tls.KEY_FOLDER, tls.SECRET_FOLDER):
        (template,) = (manifests.TEMPLATES / folder).glob("*.j2")
        text = template.read_text()
        fields = set(re.findall(r"^(type|data):", text, re.MULTILINE))
        fields |= {f"metadata.{name}" for name in re.findall(r"^  (\w+):", text, re.MULTILINE)}
        assert {field for name, field in rows if name == folder} == fields - {"metadata.name"}

"""Models as KServe and Knative write them, served by a real istiod and its Envoys.

Whose words they are:

- Knative's Gateways and its Service for calls from inside: knative-extensions/net-istio,
  config/202-gateway.yaml and config/203-local-gateway.yaml. Selector and namespace of the Service
  are what knative/operator makes of a KnativeServing (pkg/reconciler/knativeserving/ingress,
  istio.go and ingress_service.go), which canonical/knative-operators writes
  (charms/knative-serving/src/manifests/KnativeServing.yaml.j2).
- The VirtualService of a Knative Service: net-istio, pkg/reconciler/ingress/resources,
  virtual_service.go, of an Ingress as knative/serving has it (pkg/reconciler/route/resources,
  ingress.go) with the probe of knative/networking (pkg/ingress, InsertProbe).
- The VirtualService and the Service of an InferenceService: kserve/kserve,
  pkg/controller/v1beta1/inferenceservice/reconcilers/ingress, ingress_reconciler.go, with the
  names that canonical/kserve-operators gives it (charms/kserve-controller/src/charm.py).

Only ports are not theirs: Knative's gateway for calls from inside listens at 8081, which may be
somebody's on this machine.
"""

import contextlib
import dataclasses
from pathlib import Path

import yaml

from testbed import loopback
from tests import echo, gateway_client
from tests.functional import ingress_world as world
from tests.functional import istiod_world
from tests.functional.ingress_world import MODEL, OURS, lead, virtual_service
from tests.kubernetes_objects import made, namespace_of

DOMAIN = "models.example.com"
KNATIVE = "knative-serving"
INGRESS = f"{KNATIVE}/knative-ingress-gateway"
LOCAL = f"{KNATIVE}/knative-local-gateway"
KNATIVE_CONTROLLER = f"system:serviceaccount:{KNATIVE}:controller"
KSERVE_CONTROLLER = f"system:serviceaccount:{MODEL}:kserve-controller"
LOCAL_SERVICE = f"knative-local-gateway.{MODEL}.svc.{world.DOMAIN}"
MANIFEST = Path(__file__).parents[2] / "docs/how-to/knative-local-gateway.yaml"
LOCAL_LABELS = next(
    each["spec"]["selector"]["matchLabels"]
    for each in yaml.safe_load_all(MANIFEST.read_text())
    if each["kind"] == "Deployment"
)
"""Of the workload that people are told to have for calls from inside."""
TOKEN = "Bearer good"
PREDICT = "/v1/models/m:predict"


class Authorization(echo.Authorization):
    """Knows a token as well as a cookie."""

    def decide(self, headers):
        if headers.get("authorization") == TOKEN:
            return 200, {"kubeflow-userid": echo.USER}
        return super().decide(headers)


@dataclasses.dataclass(frozen=True)
class Model:
    """An InferenceService without transformer, in a namespace of its user's."""

    name: str
    namespace: str
    gateway: str = OURS
    """To which KServe and Knative bind what is for the outside."""

    @property
    def host(self):
        """Its host for users."""
        return f"{self.name}.{self.namespace}.{DOMAIN}"

    @property
    def predictor(self):
        """The name of its Knative Service."""
        return f"{self.name}-predictor"

    @property
    def predictor_host(self):
        """The host of its Knative Service."""
        return f"{self.predictor}.{self.namespace}.{DOMAIN}"

    @property
    def inside(self):
        """Its host for pods."""
        return f"{self.name}.{self.namespace}.svc.{world.DOMAIN}"

    def objects(self, port):
        """The controllers' objects for it, by user; its pods listen at the port."""
        return {
            KNATIVE_CONTROLLER: [
                *world.service(self.namespace, f"{self.predictor}-00001", port),
                external_name(self.namespace, self.predictor),
                knative_route(self),
            ],
            KSERVE_CONTROLLER: [external_name(self.namespace, self.name), inference_service(self)],
        }


def external_name(space, name):
    """The Service by which pods call a model, for which KServe and Knative each have one."""
    spec = {"type": "ExternalName", "externalName": LOCAL_SERVICE, "sessionAffinity": "None"}
    return made("v1", "Service", name, space, spec)


def knative_route(model):
    """The VirtualService of a Knative Service at the gateways."""
    name, space = model.predictor, model.namespace
    revision = f"{name}-00001"
    routes = []
    rules = ((LOCAL, f"{name}.{space}"), (model.gateway, model.predictor_host))
    for gateway, prefix in rules:
        told = {"Knative-Serving-Namespace": space, "Knative-Serving-Revision": revision}
        more = {"weight": 100, "headers": {"request": {"set": told}}}
        route = lead(f"{revision}.{space}.svc.{world.DOMAIN}", **more)
        match = {"gateways": [gateway], "authority": {"prefix": prefix}}
        probed = {**match, "headers": {"K-Network-Hash": {"exact": "override"}}}
        routes += [
            {
                "match": [probed],
                "route": route,
                "retries": {},
                "headers": {"request": {"set": {"K-Network-Hash": "0123"}}},
            },
            {"match": [match], "route": route, "retries": {}},
        ]
    short = f"{name}.{space}"
    hosts = [short, model.predictor_host, f"{short}.svc", f"{short}.svc.{world.DOMAIN}"]
    gateways = sorted({model.gateway, LOCAL})
    return virtual_service(space, f"{name}-ingress", gateways, hosts, *routes)


def inference_service(model):
    """The VirtualService of an InferenceService, which sends everything around once more."""
    name, space = model.name, model.namespace
    inside = rf"^{name}\.{space}(\.svc(\.cluster\.local)?)?(?::\d{{1,5}})?$"
    outside = "^" + model.host.replace(".", r"\.") + r"(?::\d{1,5})?$"
    told = {
        "Host": f"{model.predictor}.{space}.svc.{world.DOMAIN}",
        "KServe-Isvc-Name": name,
        "KServe-Isvc-Namespace": space,
    }
    rule = {
        "match": [
            {"authority": {"regex": inside}, "gateways": [LOCAL, "mesh"]},
            {"authority": {"regex": outside}, "gateways": [model.gateway]},
        ],
        "route": lead(LOCAL_SERVICE, weight=100),
        "headers": {"request": {"set": told}},
    }
    gateways = [LOCAL, "mesh", model.gateway]
    return virtual_service(space, name, gateways, [model.inside, model.host], rule)


def knative_gateways(port, labels):
    """Knative's two Gateways and its Service, on the workload with these labels."""
    for name, number in (("knative-ingress-gateway", 80), ("knative-local-gateway", port)):
        yield world.gateway(KNATIVE, name, world.server(number, ["*"]), labels=labels)
    marks = {"experimental.istio.io/disable-gateway-port-translation": "true"}
    ports = [{"name": "http2", "port": 80, "targetPort": port}]
    spec = {"type": "ClusterIP", "selector": labels, "ports": ports}
    name = "knative-local-gateway"
    yield made("v1", "Service", name, MODEL, spec, metadata={"labels": marks})
    yield world.endpoints(MODEL, name, {"name": "http2", "port": port, "protocol": "TCP"})


class Place:
    """The place of a model with InferenceServices; `served` has the requests to their pods."""

    def __init__(self, place, port, pods):
        self.place = place
        self.port = port
        self.tls = place.options.get("https_redirect", False)
        """Whether requests from outside use HTTPS."""
        self.ports = {space: server.server_port for space, server in pods.items()}
        self.served = {space: server.asked for space, server in pods.items()}
        """By namespace, what the pods of its model were asked."""

    def ask(self, host, path=PREDICT, **headers):
        """Ask from outside, on a connection of its own; an answer or why there is none."""
        return self.place.asked_once(path, tls=host if self.tls else "", host=host, **headers)

    def ask_inside(self, host, **headers):
        """Ask as a pod does, on a connection of its own."""
        with contextlib.closing(gateway_client.Client(port=self.port)) as visitor:
            return visitor.get(PREDICT, host, **headers)

    def is_from(self, model, answer):
        """Tell whether an answer is a model's own.

        Where a host is in a wildcard of ours, the dashboard answers until a route is there.
        """
        served = getattr(answer, "status", 0) == 200
        return served and answer.echo["port"] == self.ports[model.namespace]


@contextlib.contextmanager
def serving(place, client, folder, models, labels=LOCAL_LABELS, *, held=None):
    """Have Knative's gateways, and models that KServe's and Knative's controllers write.

    The labels are of the workload for calls from inside, which is the model's gateway or another.
    `held` is entered once the namespaces exist, before anything is written in them.
    """
    port, admin = loopback.free_ports(2)
    with contextlib.ExitStack() as stack:
        spaces = [KNATIVE, *(model.namespace for model in models)]
        profile = {"app.kubernetes.io/part-of": "kubeflow-profile"}
        for space in spaces:
            place.api.create(namespace_of(space, **({} if space == KNATIVE else profile)))
        stack.callback(world.leave, place.api, *spaces)
        if held is not None:
            stack.enter_context(held)
        pods = {
            model.namespace: stack.enter_context(echo.serving(echo.Application))
            for model in models
        }
        stack.enter_context(place.there(*knative_gateways(port, labels)))
        for model in models:
            written = model.objects(pods[model.namespace].server_port)
            for user, objects in written.items():
                with world.being(place.kubeconfig, user) as api:
                    for obj in objects:
                        stack.callback(place.api.delete, api.create(obj))
        if labels == LOCAL_LABELS:
            token = istiod_world.gateway_token(client, MODEL)
            about = {"namespace": MODEL, "labels": labels}
            stack.enter_context(istiod_world.gateway(folder, place.xds, admin, token, **about))
        yield Place(place, port, pods)

"""Evaluate the policies of a small model for single calls."""

import dataclasses
import fnmatch
import json
import types

import msgspec

from istio_integrator.istio import authorization_policy
from istio_integrator.policies.decide import PolicyInput
from istio_integrator.relations import endpoints, service_mesh
from istio_integrator.situation.model import Model, Pod, PodController, Service
from tests.unit.charm.objects import make

EXPOSURE = ("gateways", "gateway_pods", "routed", "guards")
NAME = "app.kubernetes.io/name"
MODEL = "kf"
GATEWAY = "cluster.local/ns/istio-ingress/sa/istio-ingressgateway"


@dataclasses.dataclass(frozen=True)
class Call:
    """One request, or one connection, of a caller."""

    principal: str = ""
    """Empty: without a certificate of the mesh."""
    port: int = 0
    method: str = "GET"
    path: str = "/"
    host: str = "somewhere"
    headers: tuple[tuple[str, str], ...] = ()


def sa(name, namespace=MODEL):
    """The principal of an application."""
    return f"cluster.local/ns/{namespace}/sa/{name}"


def at_layer_4(rule, call):
    """Yield what a rule says of connections, if it takes the request of a call."""
    about = {"methods": call.method, "paths": call.path, "hosts": call.host}
    unset = [f"request.headers[{name}]" for name, _ in call.headers]
    if any(each["key"] in unset for each in rule.get("when", ())):
        return
    operations = [each["operation"] for each in rule.get("to", ({"operation": {}},))]
    fitting = [
        {key: each[key] for key in each if key not in about}
        for each in operations
        if all(
            any(fnmatch.fnmatchcase(text, one) for one in each.get(key, ["*"]))
            for key, text in about.items()
        )
    ]
    if fitting:
        kept = {key: rule[key] for key in rule if key != "when"}
        yield {**kept, "to": [{"operation": each} for each in fitting]}


def admits(decision, labels, call):
    """Tell whether the pods with these labels take a call."""
    written = [
        (dict(each.selector), [rule for each in each.rules for rule in at_layer_4(each, call)])
        for each in decision.policies
    ]
    if decision.is_closed:
        written.append(({}, []))
    objects = [
        {
            "metadata": {"name": "p", "namespace": MODEL},
            "spec": {"selector": {"matchLabels": selector}, "rules": rules},
        }
        for selector, rules in written
    ]
    policies = authorization_policy.read_all(objects)
    request = authorization_policy.InboundRequest(port=call.port)
    held = [each for each in policies if each.selects(dict(labels), MODEL, "istio-system")]
    answer = authorization_policy.decide(held, call.principal, request).answer
    assert answer is not authorization_policy.Truth.MAYBE
    return answer is authorization_policy.Truth.YES


def service(name, *ports, of=None, application="", selector=None, kind="ClusterIP", **labels):
    """A Service; each port is a number, or number, number or name at the pod, name, protocol."""
    listed = [each if isinstance(each, tuple) else (each,) for each in ports]
    keys = ("port", "targetPort", "name", "protocol")
    obj = {
        "metadata": {"name": name, "labels": {NAME: application, **labels} if application else {}},
        "spec": {
            "type": kind,
            "selector": selector or {NAME: of or name},
            "ports": [dict(zip(keys, each, strict=False)) for each in listed],
        },
    }
    return msgspec.convert(obj, Service)


def pod(name, *probes, labels=(), is_router=False, is_inside=True, init=(), notes=(), **ports):
    """A pod of an application, with its probes and the ports that it names."""
    proxy = {"name": "istio-proxy", "args": ["proxy", "router" if is_router else "sidecar"]}
    proxy["ports"] = [{"name": "grpc", "containerPort": 15090}]
    known = {key: value for key, value in {NAME: name, **dict(labels)}.items() if value}
    listed = [{"name": key, "containerPort": number} for key, number in ports.items()]
    handlers = [
        {"name": f"probed-{number}", "livenessProbe": each} for number, each in enumerate(probes)
    ]
    obj = {
        "metadata": {"name": f"{name}-0", "labels": known, "annotations": dict(notes)},
        "spec": {
            "initContainers": [*init],
            "containers": [{"name": "app", "ports": listed}, *handlers, *[proxy] * is_inside],
        },
    }
    return msgspec.convert(obj, Pod)


def to_come(found):
    """A workload that has no pod just now, with the template of this one."""
    selector = types.SimpleNamespace(match_labels=found.metadata.labels)
    spec = types.SimpleNamespace(template=found, selector=selector)
    return PodController(metadata=found.metadata, spec=spec)


def http(port, path):
    """A probe of the kubelet that comes past pilot-agent."""
    return {"httpGet": {"port": port, "path": path}}


def model(*things):
    """The objects of the model."""
    return Model(
        name=MODEL,
        services=[each for each in things if isinstance(each, Service)],
        pods=[each for each in things if isinstance(each, Pod)],
        workloads=[each for each in things if isinstance(each, PodController)],
    )


def policy(source, target, *stated, namespace=MODEL, **more):
    """A policy of an application: its caller and the endpoints."""
    return {
        "source_namespace": namespace,
        "source_app_name": source,
        "target_namespace": MODEL,
        "target_app_name": target,
        "target_type": "app",
        "endpoints": list(stated),
        **more,
    }


def by_target(*rules, target="ml-pipeline", **spec):
    """A policy that an application writes for waypoints."""
    reference = {"group": "", "kind": "Service", "name": target}
    spec = {"targetRefs": [reference], "rules": list(rules), **spec}
    return make("AuthorizationPolicy", "theirs", spec=spec)


def said(application, *stated, relation=3):
    """Parse the policies of an application."""
    bag = endpoints.Bag(relation, application, {"policies": json.dumps(stated)})
    return service_mesh.read_policies(bag, model=MODEL)


def asked(*things, mode="related", **more):
    """A small model: its Services, its pods, and what applications say."""
    consumers = [each for each in things if isinstance(each, service_mesh.ApplicationPolicies)]
    exposure = types.SimpleNamespace(**{each: more.pop(each, ()) for each in EXPOSURE})
    given = {"model": model(*things), "consumers": consumers, "exposure": exposure}
    return PolicyInput(mode=mode, **given, **more)

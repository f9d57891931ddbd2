"""Who may call whom by AuthorizationPolicies, judged as Istio describes it, and a small model."""

import dataclasses
import json

from istio_integrator.relations import endpoints, service_mesh
from istio_integrator.security import called, policies, policies_workloads

NAME = "app.kubernetes.io/name"
MODEL = "kubeflow"
GATEWAY = "cluster.local/ns/istio-ingress/sa/istio-ingressgateway"


@dataclasses.dataclass(frozen=True)
class Call:
    """One request, or one connection of somebody."""

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


def _fits(pattern, value):
    if pattern == "*":
        return bool(value)
    if pattern.startswith("*"):
        return value.endswith(pattern[1:])
    return value.startswith(pattern[:-1]) if pattern.endswith("*") else value == pattern


def _any(patterns, value):
    return not patterns or any(_fits(each, value) for each in patterns)


def _source(one, call):
    spaces = [f"*/ns/{each}/sa/" for each in one.get("namespaces", ())]
    inside = not spaces or any(each[2:] in call.principal for each in spaces)
    return inside and _any(one.get("principals"), call.principal)


def _operation(one, call):
    return (
        _any(one.get("ports"), str(call.port))
        and _any(one.get("methods"), call.method)
        and _any(one.get("paths"), call.path)
        and _any(one.get("hosts"), call.host)
    )


def _condition(one, call):
    name = one["key"].removeprefix("request.headers[").removesuffix("]")
    value = dict(call.headers).get(name)
    if "notValues" in one:
        return value is None or not any(_fits(each, value or "x") for each in one["notValues"])
    return value is not None and _any(one["values"], value)


def takes(rule, call):
    """Tell whether a rule takes a call."""
    sources = [each["source"] for each in rule.get("from", ())]
    operations = [each["operation"] for each in rule.get("to", ())]
    return (
        (not sources or any(_source(each, call) for each in sources))
        and (not operations or any(_operation(each, call) for each in operations))
        and all(_condition(each, call) for each in rule.get("when", ()))
    )


def admits(decision, labels, call):
    """Tell whether the pods with these labels take a call."""
    over = [each for each in decision.policies if set(each.selector) <= set(labels.items())]
    if not over and not decision.is_closed:
        return True
    return any(takes(rule, call) for each in over for rule in each.rules)


def service(name, *ports, of=None, application=""):
    """A Service; each port is a number, or a number and what it is at the pod."""
    listed = [each if isinstance(each, tuple) else (each, each) for each in ports]
    return called.Service(
        name=name,
        selector=((NAME, of or name),),
        ports=tuple(called.ServicePort(*each) for each in listed),
        application=application,
    )


def pod(name, *, probes=(), labels=(), is_router=False, has_proxy=True, **ports):
    """A pod of an application, with the ports that it names."""
    return policies_workloads.Pod(
        labels={NAME: name, **dict(labels)},
        ports=frozenset(ports.items()),
        has_proxy=has_proxy,
        is_router=is_router,
        probes=tuple(called.Probe(*each) for each in probes),
    )


def model(*things):
    """What there is in the model."""
    return policies_workloads.Model(
        name=MODEL,
        services=[each for each in things if isinstance(each, called.Service)],
        pods=[each for each in things if isinstance(each, policies_workloads.Pod)],
    )


def policy(source, target, *stated, namespace=MODEL, **more):
    """What an application says: who may call it, where."""
    return {
        "source_namespace": namespace,
        "source_app_name": source,
        "target_namespace": MODEL,
        "target_app_name": target,
        "target_type": "app",
        "endpoints": list(stated),
        **more,
    }


def said(application, *stated, relation=3):
    """What we read of it."""
    bag = endpoints.Bag(relation, application, {"policies": json.dumps(stated)})
    return service_mesh.read(bag, model=MODEL)


def decide(*things, mode="related", consumers=(), **more):
    """Decide for a small model."""
    return policies.decide(
        policies.Asked(mode=mode, model=model(*things), consumers=consumers, **more)
    )

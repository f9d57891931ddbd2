"""Who may call whom by the policies that are decided, and a small model."""

import dataclasses
import json

from istio_integrator.istio import authorization_policy
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


def admits(decision, labels, call):
    """Tell whether the pods with these labels take a call."""
    pod = {"metadata": {"namespace": MODEL, "labels": dict(labels)}}
    written = [(dict(each.selector), list(each.rules)) for each in decision.policies]
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
    request = authorization_policy.InboundRequest(
        port=call.port,
        method=call.method,
        path=call.path,
        host=call.host,
        headers=dict(call.headers),
    )
    caller = authorization_policy.Caller(call.principal)
    held = [each for each in policies if each.selects(pod, "istio-system")]
    answer = authorization_policy.decide(held, caller, request).answer
    assert answer is not authorization_policy.Answer.MAYBE
    return answer is authorization_policy.Answer.YES


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

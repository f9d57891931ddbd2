"""Does one application of the model reach another?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.diagnosis import pod_http, registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster, streams

_PLACEHOLDER = 65535
"""The port of a Service for which its charm opened none."""


@dataclasses.dataclass(frozen=True)
class Call:
    """Who calls whom."""

    source: cluster.Object
    """A pod."""
    service: str
    """The one called, in the pod's namespace."""
    url: str


@registry.check(
    "call",
    place=250,
    question="only with `source` and `target`: does one reach the other",
    reads="a command in the source's pod",
    symptoms=(
        "upstream-connect-error",
        "rbac-access-denied",
        "no-healthy-upstream",
    ),
)
def call(facts: Facts) -> Iterable[Finding]:
    """Have one application call another, where the action names them."""
    source, target = (str(facts.parameters.get(name) or "") for name in ("source", "target"))
    if not (source or target):
        return
    if not (source and target):
        run = f"juju run {facts.application}/leader diagnose source=NAME target=NAME"
        yield findings.broken("a call needs both", run)
        return
    services = facts.objects(cluster.SERVICE, facts.model)
    chosen = choose(source, target, facts.pods, services, domain=facts.domain)
    if isinstance(chosen, str):
        yield findings.broken(chosen, f"kubectl -n {facts.model} get services")
        return
    yield from judge(chosen, pod_http.ask(facts.streams, chosen.source, chosen.url))


def choose(
    source: str, target: str, pods: Iterable[cluster.Object], services: Iterable[cluster.Object],
    *, domain: str,
) -> Call | str:  # fmt: skip
    """Find the pod that is to call, and the address.

    Args:
        source: An application, a Deployment's `app` or a pod.
        target: `SERVICE[:PORT][/PATH]`.
        pods: The model's.
        services: The model's.
        domain: Of the cluster.

    Returns:
        The call, or what is wrong with the names.
    """
    named, slash, path = target.partition("/")
    name, _, port = named.partition(":")
    callers = [pod for pod in pods if _is_called(pod, source)]
    callers.sort(key=lambda pod: not cluster.is_ready(pod))
    service = next((each for each in services if each["metadata"]["name"] == name), None)
    if not callers:
        return f"source={source}: there is no such application in the model"
    if service is None:
        return f"target={target}: there is no Service {name} in the model"
    if port and not (port.isdecimal() and len(port) <= 5):
        return f"target={target}: write it as SERVICE:PORT"
    ports = [
        int(entry["port"])
        for entry in cluster.parts(cluster.at(service, "spec"), "ports")
        if entry["port"] != _PLACEHOLDER and entry.get("protocol", "TCP") == "TCP"
    ]
    if not port and not ports:
        return f"target={target}: Service {name} has no port; write it as {name}:PORT"
    number = int(port) if port else ports[0]
    host = f"{name}.{service['metadata']['namespace']}.svc.{domain}"
    return Call(callers[0], name, f"http://{host}:{number}{slash}{path}")


def _is_called(pod: cluster.Object, name: str) -> bool:
    labels = cluster.at(pod, "metadata", "labels")
    known: Sequence[object] = (
        labels.get(names.NAME),
        labels.get("app"),
        pod["metadata"]["name"],
    )
    return name in known


def judge(one: Call, answer: streams.Response | str) -> Iterable[Finding]:
    """Judge a call by its answer, telling the mesh's own from the application's."""
    pod = one.source["metadata"]
    who = f"{pod['namespace']}/{pod['name']}"
    hint = f"istioctl -n {pod['namespace']} proxy-config clusters {pod['name']}"
    if isinstance(answer, str):
        yield findings.broken(f"{who} does not reach {one.url}: {answer}", hint)
        return
    text = " ".join(answer.text.split())[:100]
    from_proxy = answer.headers.get("server", "") in ("envoy", "istio-envoy")
    if answer.status == 403 and text.startswith("RBAC: access denied"):
        yield findings.broken(
            f"{one.url} refuses {who}: an AuthorizationPolicy does not let it in",
            f"kubectl -n {pod['namespace']} get authorizationpolicies",
        )
    elif answer.status in (502, 503, 504) and from_proxy:
        yield findings.broken(f"{who} got {answer.status} from {one.url}: {text}", hint)
    elif answer.status >= 500:
        yield findings.doubtful(
            f"{who} got {answer.status} from {one.url} itself: {text}",
            f"kubectl -n {pod['namespace']} logs service/{one.service}",
        )
    else:
        way = "through a proxy" if from_proxy else "not through a proxy"
        yield findings.fine(f"{who} reached {one.url} {way}: {answer.status}")

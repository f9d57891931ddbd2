"""Reads what is in the model into what `exceptions` decides by; what can't be read is passed over.

An object of others costs itself only: `kube/fences.py` notes it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterable, Mapping, Sequence

from integrator_contract import booleans, names, pods
from istio_integrator.istio import proxies
from istio_integrator.kube import cluster
from istio_integrator.security import called
from istio_integrator.security.exceptions import Labels, Member, PlainClients

_ENDED = ("Succeeded", "Failed")


@dataclasses.dataclass(frozen=True)
class Model:
    """The model's own objects, as the API server has them."""

    pods: Sequence[cluster.Object]
    workloads: Sequence[cluster.Object]
    """Deployments, StatefulSets and DaemonSets."""
    services: Sequence[cluster.Object]

    @functools.cached_property
    def selecting(self) -> list[tuple[Labels, str]]:
        """What chooses the pods of each workload, and its name."""
        return called.read_each(self.workloads, lambda each: [(_selector(each), _name(each))])


def members(model: Model) -> list[Member]:
    """Read the pods in the mesh, and for each workload without a pod what its next one will be."""
    found = called.read_each(model.pods, lambda pod: _pod(pod, model.selecting))
    absent = without_pods(model)
    return found + called.read_each(model.workloads, lambda each: _next_pod(each, absent))


def without_pods(model: Model) -> dict[Labels, str]:
    """Name the workloads that have no pod just now, by what chooses their pods."""
    alive = [labels(pod) for pod in model.pods if not _has_ended(pod)]
    return {
        selector: name
        for selector, name in dict(model.selecting).items()
        if selector and not any(selector <= marks for marks in alive)
    }


def outsiders(model: Model, application: str) -> list[str]:
    """Name the workloads of the model whose pods have no proxy and may call members."""

    def named(pod: cluster.Object) -> Iterable[str]:
        if is_caller(pod, application) and not proxies.is_in_mesh(pod):
            yield _workload(pod, model.selecting)[1]

    return sorted(set(called.read_each(model.pods, named)))


def is_caller(pod: cluster.Object, application: str) -> bool:
    """Tell whether a pod may call others: Juju's modeloperator and our own call no member."""
    marks = cluster.at(pod, "metadata", "labels")
    is_ours = marks.get(names.NAME) == application or names.OWNER in marks
    return not (is_ours or names.is_modeloperator(marks) or _has_ended(pod))


def plain_clients(
    objects: Iterable[cluster.Object], *, model: str, domain: str
) -> list[PlainClients]:
    """Read the DestinationRules by which Services of the model are called without certificates."""

    def of(obj: cluster.Object) -> Iterable[PlainClients]:
        spec = cluster.at(obj, "spec")
        service = _service_of_host(
            str(spec.get("host")), obj["metadata"]["namespace"], model=model, domain=domain
        )
        parted = (cluster.at(each, "trafficPolicy") for each in cluster.parts(spec, "subsets"))
        for policy in (cluster.at(spec, "trafficPolicy"), *parted) if service else ():
            if _is_plain(policy):
                yield PlainClients(cluster.reference(obj), service)
            for each in cluster.parts(policy, "portLevelSettings"):
                number = cluster.at(each, "port").get("number")
                if _is_plain(each) and pods.is_port(number):
                    yield PlainClients(cluster.reference(obj), service, number)

    return list(dict.fromkeys(called.read_each(objects, of)))


def labels(obj: cluster.Object) -> Labels:
    """Read an object's labels."""
    return pairs(cluster.at(obj, "metadata", "labels"))


def pairs(found: Mapping[str, object]) -> Labels:
    """Read labels, or what chooses by them."""
    return frozenset(called.texts(found).items())


def _pod(pod: cluster.Object, selecting: Collection[tuple[Labels, str]]) -> Iterable[Member]:
    if _has_ended(pod) or proxies.is_router(pod) or not proxies.is_in_mesh(pod):
        return
    selector, workload = _workload(pod, selecting)
    yield _member(pod, workload, selector, is_injected=True)


def _next_pod(obj: cluster.Object, absent: Collection[Labels]) -> Iterable[Member]:
    template = cluster.at(obj, "spec", "template")
    selector = _selector(obj)
    stays_out = (
        cluster.at(template, "metadata", "labels").get(names.INJECT) == "false"
        or cluster.at(template, "spec").get("hostNetwork") is True
        or proxies.is_router(template)
        or bool(cluster.at(template, "metadata", "annotations").get(names.TEMPLATES))
    )
    if selector in absent and not stays_out:
        yield _member(template, _name(obj), selector, is_injected=False)


def _member(pod: cluster.Object, workload: str, selector: Labels, *, is_injected: bool) -> Member:
    """Read a pod, or the template of one.

    Args:
        pod: Either.
        workload: Its name.
        selector: What chooses its pods.
        is_injected: Whether the injector has seen it and rewritten what it rewrites.
    """
    notes = cluster.at(pod, "metadata", "annotations")
    containers = called.containers(pod)
    ports = called.ports(containers)
    is_probed = is_injected or not booleans.parse(notes.get(names.REWRITE_PROBES), default=True)
    is_scraped = is_injected or not booleans.parse(notes.get(names.MERGE_METRICS), default=True)
    probed = frozenset(probe.port for probe in called.probes(containers))
    scraped = _scraped(notes, ports)
    included = notes.get(names.INCLUDED_INBOUND_PORTS, "*")
    return Member(
        workload=workload,
        selector=selector,
        labels=labels(pod),
        ports=ports,
        probed=probed if is_probed else frozenset(),
        scraped=scraped if is_scraped else frozenset(),
        foreseen=frozenset() if is_injected else probed | scraped,
        untouched=_numbers(notes.get(names.EXCLUDED_INBOUND_PORTS, "")),
        touched=None if included.strip() == "*" else _numbers(included),
    )


def _workload(
    pod: cluster.Object, selecting: Collection[tuple[Labels, str]]
) -> tuple[Labels, str]:
    """Find what chooses a pod most narrowly; its own labels where no workload does."""
    marks = labels(pod)
    choosing = [each for each in selecting if each[0] and each[0] <= marks]
    if choosing:
        return max(choosing, key=lambda each: (len(each[0]), sorted(each[0])))
    own = {
        (key, value)
        for key, value in marks
        if key not in names.OF_ONE_POD and names.OF_ISTIO not in key
    }
    return frozenset(own), _name(pod)


def _scraped(notes: Mapping[str, str], ports: Iterable[tuple[str, int]]) -> frozenset[int]:
    if notes.get(names.SCRAPE) != "true":
        return frozenset()
    if names.SCRAPE_PORT in notes:
        # Prometheus takes one, and so does the injector.
        return _numbers(notes[names.SCRAPE_PORT].replace(",", " "))
    return frozenset(number for _, number in ports)


def _service_of_host(host: str, namespace: str, *, model: str, domain: str) -> str:
    """Name the model's Service that a host is, `*` for all of them, empty for none."""
    if host.startswith("*"):
        return "*" if f"x.{model}.svc.{domain}".endswith(host.removeprefix("*")) else ""
    host = host.removesuffix(f".svc.{domain}").removesuffix(".svc")
    name, dot, place = host.partition(".")
    return name if (place if dot else namespace) == model else ""


def _is_plain(policy: cluster.Object) -> bool:
    return cluster.at(policy, "tls").get("mode") in ("DISABLE", "SIMPLE", "MUTUAL")


def _selector(workload: cluster.Object) -> Labels:
    return pairs(cluster.at(workload, "spec", "selector", "matchLabels"))


def _has_ended(pod: cluster.Object) -> bool:
    return cluster.at(pod, "status").get("phase") in _ENDED


def _name(obj: cluster.Object) -> str:
    return str(obj["metadata"]["name"])


def _numbers(text: str) -> frozenset[int]:
    """Read numbers of ports with commas between them; whatever else is there is left out."""
    found = (part.strip() for part in text.split(","))
    numbers = {int(part) for part in found if part.isdecimal() and len(part) < 6}
    return frozenset(number for number in numbers if pods.is_port(number))

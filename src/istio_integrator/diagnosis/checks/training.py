"""Can the pods of a training job call each other?"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator

from integrator_contract import names
from istio_integrator.diagnosis import registry
from istio_integrator.facts import Facts
from istio_integrator.kube import cluster
from istio_integrator.messages import Message, Template
from istio_integrator.situation import model
from istio_integrator.training import training as parts


@registry.check("training", place=187, symptoms=("rendezvous-timed-out",))
def check_training(facts: Facts) -> Iterable[Message]:
    """Name pods of training jobs that the other pods of their job cannot call."""
    wants = facts.mesh is not None and facts.situation.config.pod_networks is not None
    spaces = [*parts.Training(facts).list_namespaces(facts.mesh)] if wants and facts.mesh else []
    by_port: dict[int, str] = {}
    api = facts.situation.cluster
    for service in api.decode(api.list(cluster.SERVICE), model.Service) if spaces else ():
        place = f"{service.metadata.namespace}/{service.name}"
        by_port.update({each.port: place for each in service.ports if each.is_http})
    every: list[model.Pod] = []
    for namespace in spaces:
        pods = model.list_pods(api, namespace)
        every += pods
        sizes = collections.Counter(map(parts.find_job, pods))
        for pod in pods:
            if parts.find_job(pod) and sizes[parts.find_job(pod)] > 1:
                yield from _check_pod(pod, by_port)
    ignored = [*_check_proxies(facts, every)]
    yield from ignored
    if spaces and not ignored:
        yield Template.JOBS_CHANGED(count=len(spaces))
    elif not spaces:
        yield Template.JOBS_UNCHANGED()


def _check_proxies(facts: Facts, pods: Iterable[model.Pod]) -> Iterator[Message]:
    """Name the first pod that can be judged, if its proxy has no filter chain of this charm."""
    written = {
        obj["metadata"]["namespace"]: obj["metadata"]["creationTimestamp"]
        for obj in facts.situation.manifests.list_owned_in(parts.FOLDER)
    }
    name = parts.Training(facts).filter_name
    for pod in pods:
        where = (pod.metadata.namespace, pod.metadata.name)
        is_meant = pod.metadata.labels.get(names.POD_TRAFFIC) == names.MUTUAL_TLS
        if not (is_meant and pod.is_in_mesh and pod.is_ready and where[0] in written):
            continue
        # The proxy of an earlier pod may not have the EnvoyFilter yet.
        if written[where[0]] < pod.metadata.creation_timestamp:
            if not facts.workload.has_chain(*where, name):
                about = {"pod": "/".join(where), "application": facts.situation.application}
                yield Template.JOB_FILTERS_IGNORED(name=name, **about)
            return


def _check_pod(pod: model.Pod, by_port: dict[int, str]) -> Iterator[Message]:
    namespace, name = pod.metadata.namespace, pod.metadata.name
    place = f"{namespace}/{name}"
    traffic = pod.metadata.labels.get(names.POD_TRAFFIC)
    lack = "" if pod.is_in_mesh else "has no sidecar"
    if not lack and traffic != names.MUTUAL_TLS:
        lack = "is labelled to stay unchanged" if traffic else "lacks the label pod-traffic"
    if lack:
        yield Template.JOB_POD_APART(pod=place, lack=lack, namespace=namespace, name=name)
    payload = (each for each in pod.spec.containers if each.name != names.PROXY)
    ports = {port.container_port for each in payload for port in each.ports}
    if pod.is_in_mesh:
        # The proxy has a listener for the HTTP Services of a port, which sends other hosts on as
        # plain text (istio pilot/pkg/networking/core/listener.go).
        ports &= by_port.keys()
        for port in sorted(ports):
            yield Template.JOB_PORT_OF_SERVICE(pod=place, port=port, service=by_port[port])

"""The component that lets the pods of training jobs call each other by mutual TLS.

Istio sends a call to the address of a pod as plain text, unless a Service declares the port.
Strict mutual TLS and the policy of a Kubeflow profile deny it. One EnvoyFilter in each such
namespace makes labelled pods use their certificates for these calls.
"""

from __future__ import annotations

import collections
import ipaddress
from collections.abc import Iterator, Mapping

from integrator_contract import names
from istio_integrator import error_messages, texts
from istio_integrator.component import Component
from istio_integrator.config.config import Network
from istio_integrator.facts import Facts
from istio_integrator.istio import installation, plain_text
from istio_integrator.kube import cluster, errors
from istio_integrator.messages import Message, Template
from istio_integrator.situation import model
from istio_integrator.training import networks

FOLDER = "training"
_LABELS = {names.POD_TRAFFIC: names.MUTUAL_TLS}


class Training(Component):
    """Writes the EnvoyFilters of the namespaces in which plain text between pods is denied."""

    name = "training"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        owner = facts.situation.manifests.owner
        self.filter_name = f"istio-integrator.{owner}.training".lower()

    def reconcile(self) -> list[Message]:
        """Write the EnvoyFilters. Networks that are in use stay, even if they are obsolete."""
        situation, mesh = self._situation, self._facts.mesh
        if not situation.leader or mesh is None:
            return []
        if situation.config.pod_networks is None:
            self.remove()
            return []
        spaces, present = [*self.list_namespaces(mesh)], situation.manifests.list_owned_in(FOLDER)
        if not spaces and not present:
            return []
        taken = self._list_taken() if spaces else ()
        spaces = [name for name in spaces if name not in taken]
        jobs, found = self._count_pods_of_jobs(), networks.find_pod_networks(situation)
        services = networks.find_service_network(situation, found) if found else ""
        wanted = {name: found for name in spaces if found and not services}
        in_use = {
            obj["metadata"]["namespace"]: _read_networks(obj)
            for obj in present
            if jobs is None or obj["metadata"]["namespace"] in jobs
        }
        for name, kept in in_use.items():
            # Envoy closes the connections of a filter chain that changes or goes.
            wanted[name] = [*dict.fromkeys([*kept, *wanted.get(name, ())])]
        said = self._apply(wanted, in_use, mesh)
        failing = [name for name in spaces if name not in wanted and (jobs or {}).get(name, 0) > 1]
        application = situation.application
        if services:
            said.append(Template.POD_NETWORKS_OVERLAP(services=services, application=application))
        elif failing:
            place = texts.join_names(failing)
            said.append(Template.POD_NETWORKS_UNKNOWN(namespaces=place, application=application))
        return said

    def remove(self) -> None:
        """Delete the EnvoyFilters."""
        self._situation.manifests.remove(FOLDER)

    def list_namespaces(self, mesh: installation.Mesh) -> Iterator[str]:
        """Yield the namespaces with sidecars in which plain text between pods is denied."""
        situation = self._situation
        for name in self._facts.served_namespaces:
            namespace = situation.cluster.get(cluster.NAMESPACE, name)
            labels = cluster.at(namespace, "metadata", "labels")
            is_profile = labels.get(names.PART_OF) == names.PROFILE
            if mesh.has_member(labels) and (
                is_profile or plain_text.is_denied(situation.cluster, mesh, name, _LABELS)
            ):
                yield name

    def _list_taken(self) -> set[str]:
        """List the namespaces with another integrator's EnvoyFilter, which stays while jobs run.

        Envoy rejects all filter chains of a listener if two have the same network.
        """
        with self._situation.cluster.skip_if_forbidden():
            found = self._situation.cluster.list(
                cluster.ENVOY_FILTER, labels={names.COMPONENT: FOLDER}
            )
            is_ours = self._situation.manifests.is_ours
            return {obj["metadata"]["namespace"] for obj in found if not is_ours(obj)}
        return set()

    def _count_pods_of_jobs(self) -> Mapping[str, int] | None:
        """Return the most pods that a job has, by namespace; None without the right to list pods.

        Pods that have ended do not count.
        """
        most: dict[str, int] = {}
        with self._situation.cluster.skip_if_forbidden():
            found = self._situation.cluster.list(cluster.POD, labels={**_LABELS})
            typed = self._situation.cluster.decode(found, model.Pod)
            pods = (each for each in typed if not each.has_ended)
            counts = collections.Counter((pod.metadata.namespace, find_job(pod)) for pod in pods)
            for (namespace, _), count in counts.items():
                most[namespace] = max(count, most.get(namespace, 0))
            return most
        return None

    def _apply(
        self,
        wanted: dict[str, list[Network]],
        in_use: dict[str, list[Network]],
        mesh: installation.Mesh,
    ) -> list[Message]:
        """Apply the EnvoyFilters without those that the API server or another owner refuses.

        Where a change is refused, the networks in use stay.
        """
        said: dict[str, Message] = {}
        while True:
            variables = {
                "name": self.filter_name,
                "selector": _LABELS,
                "trust_domains": mesh.settings.trust_domains,
                "filters": wanted,
            }
            try:
                with self._situation.cluster.skip_if_forbidden():
                    self._situation.manifests.apply(FOLDER, variables)
                return [*said.values()]
            except (errors.RefusedError, errors.ForeignError) as error:
                name = error.reference.rpartition(" ")[2].partition("/")[0]
                if name not in wanted:
                    raise
                wanted[name] = in_use.pop(name, [])
                if not wanted[name]:
                    del wanted[name]
                message = error_messages.explain_error(
                    error, application=self._situation.application
                )
                said.setdefault(str(message.about.get("author")), message)


def find_job(pod: model.Pod) -> tuple[str, str] | None:
    """Return the label with the name of the training job of a pod; None without one."""
    labels = pod.metadata.labels
    return next(((key, labels[key]) for key in names.TRAINING_JOBS if key in labels), None)


def _read_networks(obj: cluster.Object) -> list[Network]:
    """Read the networks of an EnvoyFilter, in the order of its filter chains."""
    return [
        network
        for patch in cluster.parts(cluster.at(obj, "spec"), "configPatches")
        for match in [cluster.at(patch, "patch", "value", "filter_chain_match")]
        for each in cluster.parts(match, "prefix_ranges")
        for network in _parse_network(f"{each.get('address_prefix')}/{each.get('prefix_len')}")
    ]


def _parse_network(text: str) -> Iterator[Network]:
    """Read a network, which other users may have changed."""
    try:
        yield ipaddress.ip_network(text)
    except ValueError:
        return

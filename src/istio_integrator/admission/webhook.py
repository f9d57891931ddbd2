"""The admission webhook: its certificates, its servers and its configuration."""

from __future__ import annotations

import datetime
import hashlib
import json

from integrator_contract import names, namespaces, pods, refusals
from istio_integrator.admission import certificates
from istio_integrator.kube import cluster, manifests
from istio_integrator.messages import Message, Template
from istio_integrator.situation.situation import Situation

WORKLOAD_FOLDER = names.WEBHOOK_COMPONENT
CERTIFICATES_FOLDER = "admission-certificates"
CONFIGURATION_FOLDER = "admission-webhook-configuration"

_STARTING = ("ContainerCreating", "PodInitializing")
"""Waiting reasons of a container that starts normally."""


def name_configuration(owner: str) -> str:
    """Name the configuration so that it sorts, and is called, before Istio's injectors."""
    return f"0-istio-integrator.{owner}".lower()


def make_pod_labels(owner: str) -> dict[str, str]:
    """Return the labels by which the servers of an owner are found."""
    return {names.COMPONENT: WORKLOAD_FOLDER, names.OWNER: owner}


class Webhook:
    """Runs the servers, and registers them with the API server once they are ready."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._name = names.name_object(situation.application, names.ADMISSION)
        self._secret = situation.manifests.secrets[CERTIFICATES_FOLDER]
        self._configuration = name_configuration(situation.manifests.owner)
        self._pod_labels = make_pod_labels(situation.manifests.owner)
        self.certificate = ""
        """The servers' certificate, in PEM."""
        self.changed = False
        """Whether servers or API servers may still use earlier settings."""

    @property
    def settings(self) -> cluster.Object | None:
        """The ConfigMap that the servers mount."""
        return self._situation.cluster.get(cluster.CONFIG_MAP, self._name, self._situation.model)

    @property
    def configuration(self) -> cluster.Object | None:
        """The webhook's configuration in the API server."""
        return self._situation.cluster.get(cluster.MUTATING_WEBHOOK, self._configuration)

    def reconcile(
        self,
        image: str,
        settings: pods.Settings,
        served: namespaces.Served,
        *,
        annotations: dict[str, str],
        rotate: bool = False,
    ) -> str:
        """Reconcile the servers; register the webhook only when a server is ready.

        Nothing changes while the image is unknown. With `rotate` the certificate is replaced at
        any age. Return the reason to wait; empty when API servers call the webhook.
        """
        if not image:
            return "waiting for the lifecycle container"
        situation, manifests = self._situation, self._situation.manifests
        material = self._renew_certificates(rotate=rotate)
        before = self.configuration
        if before is not None:
            # API servers must trust a certificate before a server presents it.
            self._apply_configuration(material, served)
        secret = {"name": self._secret, "data": material.to_secret_data()}
        manifests.apply(CERTIFICATES_FOLDER, secret)
        self.certificate = material.certificate
        document = json.dumps(settings.to_document(), sort_keys=True)
        own = situation.cluster.get(cluster.POD, situation.pod_name, situation.model)
        servers = {
            "name": self._name,
            "secret": self._secret,
            "image": image,
            "image_pull_secrets": cluster.items(cluster.at(own, "spec"), "imagePullSecrets"),
            "pod_labels": self._pod_labels,
            "settings": document,
            "annotations": annotations,
            # Servers watch this file, so that a new level does not replace their pods.
            "log_level": situation.config.log_level,
        }
        live = manifests.apply(WORKLOAD_FOLDER, servers)
        refreshed = self._refresh_pods(
            f"{document}{material.certificate}{situation.config.log_level}"
        )
        deployments = [obj for obj in live if obj["kind"] == "Deployment"]
        is_ready = any(cluster.at(each, "status").get("readyReplicas") for each in deployments)
        if before is None and not is_ready:
            return "the webhook's pods are starting"
        after = self._apply_configuration(material, served)
        self.changed = before is None or before["metadata"] != after["metadata"] or refreshed
        return ""

    def _renew_certificates(self, *, rotate: bool) -> certificates.KeyPair:
        model = self._situation.model
        found = self._situation.cluster.get(cluster.SECRET, self._secret, model)
        service = f"{self._name}.{model}.svc"
        hosts = [service, f"{service}.{self._situation.cluster_domain}"]
        now = datetime.datetime.now(datetime.UTC)
        material = certificates.KeyPair.read(cluster.at(found, "data"))
        return certificates.renew_if_due(material, hosts, now, rotate=rotate)

    def _apply_configuration(
        self, material: certificates.KeyPair, served: namespaces.Served
    ) -> cluster.Object:
        context = {
            "name": self._configuration,
            "service": self._name,
            "model": self._situation.model,
            "ca_bundle": certificates.encode(material.bundle),
            "served": served,
        }
        return self._situation.manifests.apply(CONFIGURATION_FOLDER, context)[0]

    def _refresh_pods(self, mounted: str) -> bool:
        """Make kubelets refresh outdated mounts of servers; tell whether there was one."""
        wanted = hashlib.sha256(mounted.encode()).hexdigest()[:16]
        patch = {"metadata": {"annotations": {names.REFRESH: wanted}}}
        refreshed = False
        for pod in self._list_pods():
            if cluster.at(pod, "metadata", "annotations").get(names.REFRESH) != wanted:
                self._situation.cluster.merge_patch(pod, patch)
                refreshed = True
        return refreshed

    def _list_pods(self) -> list[cluster.Object]:
        return self._situation.cluster.list(cluster.POD, self._situation.model, self._pod_labels)

    def find_obstacle(self) -> Message | None:
        """Return the message about the error that keeps the servers from being ready, if any.

        The Deployment's status has the reason why pods are not created. Kubernetes copies it from
        the ReplicaSet's status (k8s.io/kubernetes pkg/controller/deployment/sync.go).
        """
        situation = self._situation
        deployment = situation.cluster.get(cluster.DEPLOYMENT, self._name, situation.model)
        if failure := _find_condition(deployment, "ReplicaFailure", "True"):
            words = str(failure.get("message") or "")
            refusal = refusals.read_refusal(403, words)
            author = refusal.author if refusal else str(failure.get("reason") or "Kubernetes")
            problem, words = f"{author} rejects pods", refusal.words if refusal else words
        elif reason := next(
            (why for pod in self._list_pods() if (why := _find_stuck_state(pod))), None
        ):
            problem = f"webhook pods: {reason.get('reason')}"
            words = str(reason.get("message") or "")
        else:
            return None
        return Template.ADMISSION_HINDERED(
            application=situation.application, problem=problem, words=words
        )


def remove(manifests: manifests.Manifests) -> None:
    """Remove the configuration before the servers that it names."""
    for folder in (CONFIGURATION_FOLDER, WORKLOAD_FOLDER, CERTIFICATES_FOLDER):
        manifests.remove(folder)


def _find_condition(obj: cluster.Object | None, kind: str, status: str) -> cluster.Object:
    for condition in cluster.parts(cluster.at(obj, "status"), "conditions"):
        if (condition.get("type"), condition.get("status")) == (kind, status):
            return condition
    return {}


def _find_stuck_state(pod: cluster.Object) -> cluster.Object:
    """Return the condition of a pod that is not scheduled, or the state of one that is stuck."""
    if condition := _find_condition(pod, "PodScheduled", "False"):
        return condition
    for container in cluster.parts(cluster.at(pod, "status"), "containerStatuses"):
        waiting = cluster.at(container, "state", "waiting")
        if waiting and waiting.get("reason") not in _STARTING:
            return waiting
    return {}

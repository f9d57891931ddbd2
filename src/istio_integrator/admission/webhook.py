"""The admission webhook: its certificates, its servers and its configuration."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import logging
from collections.abc import Callable

from integrator_contract import names, namespaces, pods, refusals
from istio_integrator.admission import certificates
from istio_integrator.kube import cluster, manifests, owners
from istio_integrator.situation import situation

logger = logging.getLogger(__name__)

WORKLOAD_FOLDER = names.WEBHOOK_COMPONENT
CERTIFICATES_FOLDER = "admission-certificates"
CONFIGURATION_FOLDER = "admission-webhook-configuration"

_STARTING = ("ContainerCreating", "PodInitializing")
"""What a container waits for that starts as usual."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecretContext:
    """The variables of the templates in admission-certificates."""

    name: str
    data: dict[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkloadContext:
    """The variables of the templates in admission-webhook."""

    name: str
    secret: str
    image: str
    image_pull_secrets: list[dict[str, str]]
    pod_labels: dict[str, str]
    settings: str
    annotations: dict[str, str]
    """Of the settings."""
    log_level: str
    """In a file that the servers follow: another level is no reason to replace them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigurationContext:
    """The variables of the templates in admission-webhook-configuration."""

    name: str
    service: str
    model: str
    ca_bundle: str
    served: namespaces.Served


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """How far the webhook is."""

    waiting: str = ""
    """What for; empty when API servers ask it."""
    certificate: str = ""
    """What its servers show, in PEM."""
    changed: bool = False
    """Whether servers or API servers may still have to notice something."""


def configuration_name(owner: str) -> str:
    """Name the configuration such that it sorts, and so is asked, before every Istio injector."""
    return f"0-istio-integrator.{owner}".lower()


def pod_labels(owner: str) -> dict[str, str]:
    """Return the labels by which the servers of an owner are found."""
    return {names.COMPONENT: WORKLOAD_FOLDER, names.OWNER: owner}


class Webhook:
    """Runs the servers, and has API servers ask them once they answer."""

    def __init__(
        self,
        scope: situation.Situation,
        image: Callable[[], str],
        settings: pods.Settings,
        served: namespaces.Served,
        *,
        annotations: dict[str, str],
    ) -> None:
        self._annotations = annotations
        self._scope = scope
        self._image = image
        self._settings = json.dumps(settings.document(), sort_keys=True)
        self._served = served
        self._name = owners.object_name(scope.application, "admission")
        self._secret = scope.manifests.secrets[CERTIFICATES_FOLDER]
        self._configuration = configuration_name(scope.manifests.owner)

    def reconcile(self, *, rotate: bool = False) -> State:
        """Bring everything up to date; API servers are told only when a server is ready.

        Args:
            rotate: Replace the certificates whatever their age.
        """
        image = self._image()
        if not image:
            return State(waiting="waiting for the lifecycle container")
        material = self._certificates(rotate=rotate)
        before = self._scope.cluster.get(cluster.MUTATING_WEBHOOK, self._configuration)
        if before is not None:
            # An authority must be trusted before a server shows a leaf of it.
            self._configure(material)
        secret = SecretContext(name=self._secret, data=material.data())
        self._scope.manifests.apply(CERTIFICATES_FOLDER, secret)
        live = self._scope.manifests.apply(WORKLOAD_FOLDER, self._workload(image))
        refreshed = self._refresh_pods(material)
        ready = _ready(live)
        if before is None and not ready:
            return State(waiting="the webhook's pods are starting", certificate=material.leaf)
        after = self._configure(material)
        changed = before is None or before["metadata"] != after["metadata"] or refreshed
        return State(changed=changed, certificate=material.leaf)

    @property
    def is_asked(self) -> bool:
        """Whether API servers have been told of it."""
        return self._scope.cluster.get(cluster.MUTATING_WEBHOOK, self._configuration) is not None

    def _certificates(self, *, rotate: bool) -> certificates.Material:
        model = self._scope.model
        found = self._scope.cluster.get(cluster.SECRET, self._secret, model)
        service = f"{self._name}.{model}.svc"
        names = [service, f"{service}.{self._scope.cluster_domain}"]
        now = datetime.datetime.now(datetime.UTC)
        material = certificates.Material.read(cluster.at(found, "data"))
        return certificates.decide(material, names, now, rotate=rotate)

    def _configure(self, material: certificates.Material) -> cluster.Object:
        context = ConfigurationContext(
            name=self._configuration,
            service=self._name,
            model=self._scope.model,
            ca_bundle=certificates.encoded(material.bundle),
            served=self._served,
        )
        return self._scope.manifests.apply(CONFIGURATION_FOLDER, context)[0]

    def _workload(self, image: str) -> WorkloadContext:
        own = self._scope.cluster.get(cluster.POD, self._scope.pod, self._scope.model)
        return WorkloadContext(
            name=self._name,
            secret=self._secret,
            image=image,
            image_pull_secrets=cluster.items(cluster.at(own, "spec"), "imagePullSecrets"),
            pod_labels=self._pod_labels,
            settings=self._settings,
            annotations=self._annotations,
            log_level=self._scope.config.log_level,
        )

    @property
    def _pod_labels(self) -> dict[str, str]:
        return pod_labels(self._scope.manifests.owner)

    def _refresh_pods(self, material: certificates.Material) -> bool:
        """Have every server's kubelet mount what is current; tell whether one had to."""
        mounted = f"{self._settings}{material.leaf}{self._scope.config.log_level}"
        wanted = hashlib.sha256(mounted.encode()).hexdigest()[:16]
        pods = self._scope.cluster.list(
            cluster.POD, namespace=self._scope.model, labels=self._pod_labels
        )
        stale = [
            pod
            for pod in pods
            if cluster.at(pod, "metadata", "annotations").get(names.REFRESH) != wanted
        ]
        for pod in stale:
            patch = {"metadata": {"annotations": {names.REFRESH: wanted}}}
            self._scope.cluster.merge_patch(pod, patch)
        return bool(stale)


def _ready(live: list[cluster.Object]) -> bool:
    deployments = [obj for obj in live if obj["kind"] == "Deployment"]
    return any(cluster.at(obj, "status").get("readyReplicas") for obj in deployments)


def remove(manifests: manifests.Manifests) -> None:
    """Remove the configuration before the servers that it names."""
    for folder in (CONFIGURATION_FOLDER, WORKLOAD_FOLDER, CERTIFICATES_FOLDER):
        manifests.remove(folder)


def obstacle(scope: situation.Situation) -> tuple[str, str]:
    """Return what keeps the servers from being ready, and its own words; empty where nothing does.

    What keeps pods from being created is in the Deployment's status, where Kubernetes copies it
    from that of the ReplicaSet (k8s.io/kubernetes pkg/controller/deployment/sync.go).
    """
    name = owners.object_name(scope.application, "admission")
    deployment = scope.cluster.get(cluster.DEPLOYMENT, name, scope.model)
    for condition in cluster.parts(cluster.at(deployment, "status"), "conditions"):
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            message = str(condition.get("message") or "")
            refusal = refusals.read(403, message)
            author = refusal.author if refusal else str(condition.get("reason") or "Kubernetes")
            return f"{author} rejects pods", refusal.words if refusal else message
    labels = pod_labels(scope.manifests.owner)
    for pod in scope.cluster.list(cluster.POD, scope.model, labels):
        if reason := _reason(pod):
            return f"webhook pods: {reason.get('reason')}", str(reason.get("message") or "")
    return "", ""


def _reason(pod: cluster.Object) -> cluster.Object:
    """Return the condition of a pod that is not scheduled, or the state of one that is stuck."""
    status = cluster.at(pod, "status")
    for condition in cluster.parts(status, "conditions"):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return condition
    for container in cluster.parts(status, "containerStatuses"):
        waiting = cluster.at(container, "state", "waiting")
        if waiting and waiting.get("reason") not in _STARTING:
            return waiting
    return {}

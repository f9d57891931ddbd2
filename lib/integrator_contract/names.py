"""Labels, annotations and names that the charm, the workload and users share."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

PREFIX = "istio-integrator.charmhub.io/"
MANAGER = "istio-integrator"

# Set by users.
WAIT_FOR_CONTAINERS = f"{PREFIX}wait-for-containers"
IGNORE_CONTAINERS = f"{PREFIX}ignore-containers"
PROXY_SHUTDOWN = f"{PREFIX}proxy-shutdown"
RESTART_PODS = f"{PREFIX}restart-pods"
SERVED = f"{PREFIX}served"
"""On a namespace: `enabled` or `disabled`."""
POD_TRAFFIC = f"{PREFIX}pod-traffic"
"""On a pod: `mutual-tls` for its calls to addresses of pods, or `unchanged`. Admission sets the
former on pods of training jobs."""
MUTUAL_TLS = "mutual-tls"

# Set on objects that this charm creates.
OWNER = f"{PREFIX}owner"
COMPONENT = f"{PREFIX}component"
WEBHOOK_COMPONENT = "admission-webhook"
ADMISSION = "admission"
"""Suffix of the names of the webhook's objects, such as the ConfigMap with its settings."""
APPLIED_HASH = f"{PREFIX}applied-hash"
REFRESH = f"{PREFIX}refresh"
"""On the webhook's pods: a change makes the kubelet refresh their mounted files."""
MESH_SETTINGS = f"{PREFIX}seen"
"""On the webhook's settings: the mesh's settings, kept while istiod does not answer."""
RELATION = f"{PREFIX}relation"
HOSTS = f"{PREFIX}hosts"
"""On an EnvoyFilter at a named gateway: the hosts that it guards."""
CERTIFICATE_IN = f"{PREFIX}certificate-in"

# Set on objects that this charm does not create.
APPLIED = f"{PREFIX}applied"
MEMBERSHIP = f"{PREFIX}membership"
"""On the model's namespace: the mesh labels set, their author and their earlier values."""
SERVED_BY = f"{PREFIX}served-by"
ANNOTATED_BY = f"{PREFIX}annotated-by"
ANNOTATIONS = f"{PREFIX}annotations"
"""On the gateway's Service: the annotations set, their author and their earlier values."""

# Set on dry-run pods.
PROBE = f"{PREFIX}probe"
"""The webhook annotates this dry-run pod with the revision of its settings."""
MESH_PROBE = f"{PREFIX}mesh-probe"
"""Only istiod changes such a pod: this charm's webhook ignores it."""
SETTINGS = f"{PREFIX}settings"

# Set on dry-run copies of objects in profile namespaces.
TENANT = f"{PREFIX}tenant"
TENANT_LEVEL = f"{PREFIX}tenant-level"
"""How strictly the tenant policy judges the account that wrote the object, from 0 to 3."""

# Keys of the Pebble notices that the workload sends to the charm.
MESH_NOTICE = f"{PREFIX}mesh"
"""istiod, its injector, the model's namespace, the ingress gateway or rejections changed."""
PROGRESS_NOTICE = f"{PREFIX}progress"

# Istio's.
PROXY = "istio-proxy"
"""The container that Istio's injector adds, with any image."""
ROOT_CERTIFICATE = "istio-ca-root-cert"
"""The ConfigMap that istiod writes into each namespace that it serves."""
AUTO_IMAGE = "auto"
"""The image of a proxy that the pod customises and the injector has not filled in yet."""
INJECTION = "istio-injection"
REVISION = "istio.io/rev"
DATAPLANE_MODE = "istio.io/dataplane-mode"
"""On a namespace or a pod: `ambient`, or on a pod `none`."""
AMBIENT = {DATAPLANE_MODE: "ambient"}
OUT_OF_AMBIENT = {DATAPLANE_MODE: "none"}
USE_WAYPOINT = "istio.io/use-waypoint"
"""On a namespace or a Service in ambient mode: the waypoint that leads to it, or `none`."""
USE_WAYPOINT_NAMESPACE = "istio.io/use-waypoint-namespace"
AMBIENT_REDIRECTION = "ambient.istio.io/redirection"
DEACTIVATED = "istio.io/deactivated"
DRY_RUN = "istio.io/dry-run"
INJECT = "sidecar.istio.io/inject"
SIDECAR_STATUS = "sidecar.istio.io/status"
NATIVE_SIDECAR = "sidecar.istio.io/nativeSidecar"
PROXY_IMAGE = "sidecar.istio.io/proxyImage"
PROXY_OVERRIDES = "proxy.istio.io/overrides"
"""By istiod: the pod's own containers with names of its template, as JSON."""
STATUS_PORT = "status.sidecar.istio.io/port"
DEFAULT_STATUS_PORT = 15020
PROXY_ADMIN_PORT = 15000
ISTIOD = "app=istiod"
"""The label of istiod's objects; EndpointSlices copy those of its Service."""
PROXY_CONFIG = "proxy.istio.io/config"
REWRITE_PROBES = "sidecar.istio.io/rewriteAppHTTPProbers"
MERGE_METRICS = "prometheus.istio.io/merge-metrics"
TEMPLATES = "inject.istio.io/templates"
GATEWAY_CONTROLLER = "istio.io/gateway-controller"
"""The controller of istiod's GatewayClass (istio pilot/pkg/features, ManagedGatewayController)."""
GATEWAY_NAME = "gateway.networking.k8s.io/gateway-name"
EXCLUDED_INBOUND_PORTS = "traffic.sidecar.istio.io/excludeInboundPorts"
INCLUDED_INBOUND_PORTS = "traffic.sidecar.istio.io/includeInboundPorts"
EXCLUDED_OUTBOUND_PORTS = "traffic.sidecar.istio.io/excludeOutboundPorts"
EXCLUDED_OUTBOUND_RANGES = "traffic.sidecar.istio.io/excludeOutboundIPRanges"
INCLUDED_OUTBOUND_RANGES = "traffic.sidecar.istio.io/includeOutboundIPRanges"

# Kubernetes', Prometheus', Kubeflow's and Juju's.
SCRAPE = "prometheus.io/scrape"
SCRAPE_PORT = "prometheus.io/port"
NAME = "app.kubernetes.io/name"
MANAGED_BY = "app.kubernetes.io/managed-by"
PART_OF = "app.kubernetes.io/part-of"
PROFILE = "kubeflow-profile"
NODE_OS = ("kubernetes.io/os", "beta.kubernetes.io/os")
FORBIDS_DISRUPTION = {
    "karpenter.sh/do-not-disrupt": "true",
    "karpenter.sh/do-not-evict": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
"""On a pod: annotations by which tools that move pods leave it where it is."""
NAMESPACE_NAME = "kubernetes.io/metadata.name"
SERVICE_NAME = "kubernetes.io/service-name"
MIRROR = "kubernetes.io/config.mirror"
CONTROLLER_MODEL = "controller.juju.is/id"
"""Juju sets this label on a controller model's namespace, and an annotation on other models'."""
CREATED_BY = "app.juju.is/created-by"
"""Juju's webhook sets this label to the application whose ServiceAccount created the object."""
REVISION_HASH = "controller-revision-hash"
TEMPLATE_GENERATION = "pod-template-generation"
POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"
"""On pods of StatefulSets and DaemonSets: their template and ordinal."""
JOB_TRACKING = "batch.kubernetes.io/job-tracking"
"""The finalizer of a Job's pods."""
ROLLOUT = "deployment.kubernetes.io/revision"
"""On a Deployment's ReplicaSets: the newest has the highest number."""
DAEMON_TAINTS = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
HOST_NETWORK_TAINT = ("node.kubernetes.io/network-unavailable", "NoSchedule")
TRAINING_JOBS = {
    # TFJob, PyTorchJob, MPIJob, XGBoostJob, PaddleJob and JAXJob (training-operator
    # pkg/apis/kubeflow.org/v1/common_types.go, JobNameLabel), and MPIJob v2beta1 (mpi-operator
    # pkg/apis/kubeflow/v2beta1/constants.go, JobNameLabel).
    "training.kubeflow.org/job-name": "training operator's job",
    # JobSet and TrainJob, which creates one (jobset api/jobset/v1alpha2/jobset_types.go,
    # JobSetNameKey).
    "jobset.sigs.k8s.io/jobset-name": "JobSet or TrainJob",
    # RayCluster and RayJob (kuberay ray-operator/controllers/ray/utils/constant.go,
    # RayClusterLabelKey).
    "ray.io/cluster": "RayCluster",
    # lws api/leaderworkerset/v1/leaderworkerset_types.go, SetNameLabelKey.
    "leaderworkerset.sigs.k8s.io/name": "LeaderWorkerSet",
    # volcano staging/src/volcano.sh/apis/pkg/apis/batch/v1alpha1/labels.go, JobNameKey.
    "volcano.sh/job-name": "Volcano job",
    # The driver and the executors (spark resource-managers/kubernetes/core, Constants.scala,
    # SPARK_APP_ID_LABEL).
    "spark-app-selector": "Spark application",
}
"""Kinds of jobs whose pods call each other by address, by the label of their pods with the name of
the job."""
OF_ONE_POD = (
    "pod-template-hash",
    REVISION_HASH,
    TEMPLATE_GENERATION,
    POD_NAME,
    POD_INDEX,
    "service.istio.io/canonical-revision",
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
    "batch.kubernetes.io/job-completion-index",
)
"""Labels whose values differ between pods of one workload, now or after a roll-out."""
OF_ISTIO = "istio.io/"
CHARM_INIT = "charm-init"
CHARM = "charm"
"""The container of a unit's agent, which Juju expects at `spec.containers[0]`."""
RAY_NODE_TYPE = "ray.io/node-type"
RAY_WAIT = "wait-gcs-ready"
"""The init container in which a Ray worker calls its head until that answers (kuberay
ray-operator/controllers/ray/common/pod.go, `DefaultWorkerPodTemplate`)."""
MODELOPERATOR = "modeloperator"
MODELOPERATOR_LABELS = ("operator.juju.is/name", "juju-modeloperator")
"""Label keys of Juju's modeloperator, from newer and older Juju."""

LONGEST_LABEL = 63
"""Characters of a label's value, and of a DNS label."""
KEPT_OF_LONG_OWNERS = 52
"""Characters kept at the start of an owner's name that is too long for a label."""


def name_owner(model: str, application: str) -> str:
    """Name an application uniquely, as the value of the label `OWNER`."""
    value = f"{model}.{application}"
    if len(value) <= LONGEST_LABEL:
        return value
    digest = hashlib.sha256(value.encode()).hexdigest()[:10]
    return f"{value[:KEPT_OF_LONG_OWNERS].rstrip('-.')}-{digest}"


def name_object(application: str, suffix: str) -> str:
    """Name an object of an application within the 63 characters of a DNS label."""
    full = f"{application}-{suffix}"
    if len(full) <= LONGEST_LABEL:
        return full
    digest = hashlib.sha256(application.encode()).hexdigest()[:8]
    return f"{application[: LONGEST_LABEL - len(suffix) - 10].rstrip('-')}-{digest}-{suffix}"


def make_labels(model: str, application: str, component: str) -> dict[str, str]:
    """Return the labels of every object that the application creates."""
    return {MANAGED_BY: MANAGER, OWNER: name_owner(model, application), COMPONENT: component}


def is_modeloperator(labels: Mapping[str, str]) -> bool:
    """Tell whether a pod with these labels is Juju's modeloperator."""
    return any(labels.get(key) == MODELOPERATOR for key in MODELOPERATOR_LABELS)


def is_integrator(labels: Mapping[str, str], application: str) -> bool:
    """Tell whether a pod with these labels is a unit of the application, or runs the webhook."""
    return labels.get(NAME) == application or labels.get(COMPONENT) == WEBHOOK_COMPONENT


def is_machinery(labels: Mapping[str, str], application: str) -> bool:
    """Tell whether Juju or this application needs a pod with these labels outside of the mesh."""
    return is_modeloperator(labels) or is_integrator(labels, application)

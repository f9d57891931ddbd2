"""Reasons for a decision about a pod or a workload, mostly for leaving it unchanged.

A reason is a CamelCase word. Commands print it, and metrics, logs and Events carry it. The
deciding code adds a message about the pod. The pages docs/reference/reasons.md and
docs/reference/events.md explain each.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping


class Reason(enum.StrEnum):
    """A reason."""

    # A proxy may end.
    PAYLOAD_FINISHED = "PayloadFinished"
    PROXY_STOPPED = "ProxyStopped"
    PROXY_STOP_FAILED = "ProxyStopFailed"

    # A proxy may not end yet.
    NOT_RUNNING = "NotRunning"
    NO_STATUS = "NoStatus"
    PAYLOAD_RUNNING = "PayloadRunning"
    PAYLOAD_WAITING = "PayloadWaiting"
    PAYLOAD_RESTARTING = "PayloadRestarting"
    POD_RESTARTING = "PodRestarting"
    INITIALIZING = "Initializing"
    STALE_STATUS = "StaleStatus"
    PROXY_RESTARTING = "ProxyRestarting"

    # This charm does not manage a proxy.
    NATIVE_SIDECAR = "NativeSidecar"
    NO_PROXY = "NoProxy"
    RESTARTS_ALWAYS = "RestartsAlways"
    SWITCHED_OFF = "SwitchedOff"
    DISABLED = "Disabled"
    NAMESPACE_DISABLED = "NamespaceDisabled"
    OUT_OF_SCOPE = "OutOfScope"
    DELETED = "Deleted"
    ENDED = "Ended"
    PROXY_ENDED = "ProxyEnded"
    DISRUPTED = "Disrupted"

    # The operator has to look.
    NOTHING_TO_WAIT_FOR = "NothingToWaitFor"
    UNKNOWN_CONTAINER = "UnknownContainer"
    BAD_STATUS_PORT = "BadStatusPort"
    BAD_CONTAINER_LIST = "BadContainerList"
    PROXY_LOST = "ProxyLost"
    PROXY_NOT_RUNNING = "ProxyNotRunning"
    PROXY_WITHOUT_ENVOY = "ProxyWithoutEnvoy"
    POD_NOT_REPLACED = "PodNotReplaced"
    NOT_UNDERSTOOD = "ObjectNotUnderstood"

    # A pod should have a sidecar.
    NAMESPACE_INJECTION = "NamespaceInjection"
    REVISION = "Revision"
    POD_INJECTION = "PodInjection"
    INCLUDED = "Included"

    # A pod should have no sidecar.
    HOST_NETWORK = "HostNetwork"
    WINDOWS = "Windows"
    INTEGRATOR_ITSELF = "IntegratorItself"
    MODEL_OPERATOR = "ModelOperator"
    EXCLUDED = "Excluded"
    INJECTION_DISABLED = "InjectionDisabled"
    AMBIENT = "Ambient"
    SIDECAR_LEFT = "SidecarLeft"
    OUT_OF_AMBIENT = "OutOfAmbient"
    NOT_INCLUDED = "NotIncluded"
    NAMESPACE_OUTSIDE = "NamespaceOutside"
    OTHER_REVISION = "OtherRevision"

    # This charm does not replace a pod.
    BARE_POD = "BarePod"
    RUNS_TO_COMPLETION = "RunsToCompletion"
    CONVERGENCE_DISABLED = "ConvergenceDisabled"
    OWNED_FURTHER_UP = "OwnedFurtherUp"
    OTHER_OWNER = "OtherOwner"
    OWNER_UNKNOWN = "OwnerUnknown"
    TEMPLATE_WITHHELD = "TemplateWithheld"
    OTHER_NAMESPACE = "OtherNamespace"

    # A pod is not replaced without a request.
    NOT_ASKED = "NotAsked"

    # A pod is not replaced yet.
    MESH_DOWN = "MeshDown"
    NOT_SERVED = "NotServed"
    FIRST_POD = "FirstPod"
    QUEUED = "Queued"
    REPLACING = "Replacing"
    CHANGING = "Changing"
    NOT_READY = "NotReady"
    NOT_SETTLED = "NotSettled"
    ORDERED_READY = "OrderedReady"
    DISRUPTION_BUDGET = "DisruptionBudget"
    FORBIDDEN = "Forbidden"
    EVICTION_REFUSED = "EvictionRefused"
    REPLACEMENT_REFUSED = "ReplacementRefused"
    CANNOT_START = "CannotStart"

    # Result of a replacement.
    REQUESTED = "Requested"
    REPLACEMENT_STARTING = "ReplacementStarting"
    REPLACEMENT_HANGS = "ReplacementHangs"
    STILL_NO_SIDECAR = "StillNoSidecar"
    SIDECAR_AGAIN = "SidecarAgain"
    WRONG_ORDER = "WrongOrder"
    SIDECAR_UNWANTED = "SidecarUnwanted"
    INJECTOR_SKIPS = "InjectorSkips"
    OLD_PROXY = "OldProxy"
    SIDECAR_MISSING = "SidecarMissing"
    PROXY_RENEWED = "ProxyRenewed"

    # A change is not made to a new pod.
    HAS_PROXY = "HasProxy"
    MIRROR_POD = "MirrorPod"
    FORBIDDEN_BY_POLICY = "ForbiddenByPolicy"
    MESH_PROBE = "MeshProbe"
    POD_SAYS_ITSELF = "PodSaysItself"
    NOT_INJECTED = "NotInjected"
    FIRST_CONTAINER = "FirstContainer"
    OTHER_TEMPLATE = "OtherTemplate"
    CONFIG_SAYS_ITSELF = "ConfigSaysItself"
    CONFIG_NOT_MERGEABLE = "ConfigNotMergeable"
    CONFIG_TOO_LONG = "ConfigTooLong"
    PORTS_NOT_MERGEABLE = "PortsNotMergeable"
    ANNOTATIONS_FULL = "AnnotationsFull"


ADMISSION: Mapping[Reason, str] = {
    Reason.NATIVE_SIDECAR: "A native sidecar starts before the application and stops by itself.",
    Reason.HOST_NETWORK: "Pods on the node's network never get a sidecar.",
    Reason.WINDOWS: "Istio has no sidecar for Windows.",
    Reason.AMBIENT: "The pod is in the mesh by ambient mode.",
    Reason.HAS_PROXY: "The pod already has an istio-proxy.",
    Reason.MIRROR_POD: "The pod mirrors a static pod of a kubelet.",
    Reason.FORBIDDEN_BY_POLICY: "A policy of a different team forbids it.",
    Reason.MESH_PROBE: "The charm creates it as a dry run to see what istiod injects.",
    Reason.POD_SAYS_ITSELF: "The pod already sets this value.",
    Reason.NOT_INJECTED: "The pod is labelled to get no sidecar.",
    Reason.FIRST_CONTAINER: "Juju or KubeRay does not expect istio-proxy as first container.",
    Reason.OTHER_TEMPLATE: "Its `inject.istio.io/templates` is not exactly `sidecar`.",
    Reason.CONFIG_SAYS_ITSELF: "Its proxy.istio.io/config already has this setting.",
    Reason.CONFIG_NOT_MERGEABLE: (
        "Its proxy.istio.io/config is not one mapping in YAML without anchors, aliases and tags."
    ),
    Reason.CONFIG_TOO_LONG: "With the addition its proxy.istio.io/config exceeds 2048 characters.",
    Reason.PORTS_NOT_MERGEABLE: "istiod rejects the empty entry in its excluded outbound ports.",
    Reason.ANNOTATIONS_FULL: "Its annotations would be more than 1000, or larger than 256 KiB.",
}
"""Messages of the reasons why a change is not made to a new pod."""

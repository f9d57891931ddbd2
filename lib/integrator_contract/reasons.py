"""Why something is done about a pod or a workload, and mostly why it is left alone.

A reason is a CamelCase word: what commands print, what metrics and logs are labelled with, what
Events are found by. Those who decide add a message about the pod at hand.
"""

from __future__ import annotations

import enum
from typing import Self


class Topic(enum.Flag):
    """What a reason is given for; one word may serve several."""

    PROXY = enum.auto()
    """Whether a proxy is stopped: `explain`, `stop`."""
    SIDECAR = enum.auto()
    """Whether a pod should have a sidecar."""
    REPLACEMENT = enum.auto()
    """Whether a pod without its sidecar is replaced: `uninjected`."""
    ADMISSION = enum.auto()
    """What a pod does not get at its creation: `mutate`."""
    EVENT = enum.auto()
    """Events on pods."""


_PROXY, _SIDECAR, _REPLACEMENT, _ADMISSION, _EVENT = Topic


class Reason(enum.StrEnum):
    """A reason, and the sentence that explains it."""

    topics: Topic
    meaning: str

    def __new__(cls, word: str, topics: Topic, meaning: str) -> Self:
        """Make a member of the word, what it is given for, and the sentence."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.topics = topics
        member.meaning = meaning
        return member

    # A proxy may end.
    PAYLOAD_FINISHED = (
        "PayloadFinished",
        _PROXY,
        "The containers beside the proxy have ended for good: it is stopped.",
    )
    PROXY_STOPPED = (
        "ProxyStopped",
        _EVENT,
        "The payload was done, and the proxy was stopped. Names what still holds the pod, if any.",
    )
    PROXY_STOP_FAILED = (
        "ProxyStopFailed",
        _EVENT,
        "Stopping failed three times; it is tried on, with growing pauses. Says what is missing.",
    )

    # A proxy may not end yet.
    NOT_RUNNING = ("NotRunning", _PROXY, "The phase of the pod is not known.")
    NO_STATUS = ("NoStatus", _PROXY, "The kubelet has not reported on a container yet.")
    PAYLOAD_RUNNING = ("PayloadRunning", _PROXY, "A container that counts is running.")
    PAYLOAD_WAITING = ("PayloadWaiting", _PROXY, "A container that counts waits to be started.")
    PAYLOAD_RESTARTING = (
        "PayloadRestarting",
        _PROXY,
        "A container that counts has ended, and the kubelet starts it again.",
    )
    POD_RESTARTING = (
        "PodRestarting",
        _PROXY,
        "The kubelet starts all of the pod's containers again, those that have ended too.",
    )
    INITIALIZING = ("Initializing", _PROXY, "An init container runs, in a sandbox made anew.")
    STALE_STATUS = (
        "StaleStatus",
        _PROXY,
        "A container ended before its pod started, by the node's clock: its status is an old one.",
    )
    PROXY_RESTARTING = ("ProxyRestarting", _PROXY, "The proxy has ended, and is started again.")

    # A proxy is not ours to end.
    NATIVE_SIDECAR = (
        "NativeSidecar",
        _PROXY | _ADMISSION,
        "A native sidecar starts before the application, and the kubelet stops it by itself.",
    )
    NO_PROXY = ("NoProxy", _PROXY, "The pod has no container istio-proxy.")
    RESTARTS_ALWAYS = (
        "RestartsAlways",
        _PROXY,
        "The kubelet would start a stopped proxy again (restartPolicy Always).",
    )
    SWITCHED_OFF = ("SwitchedOff", _PROXY, "The option `proxy-shutdown` is false.")
    DISABLED = ("Disabled", _PROXY, "The pod's annotation `proxy-shutdown` says `disabled`.")
    NAMESPACE_DISABLED = (
        "NamespaceDisabled",
        _PROXY | _SIDECAR,
        (
            "Its namespace says so: by the annotation `proxy-shutdown=disabled` that no proxy is"
            " stopped, by a label `istio-injection` other than `enabled` that nothing is injected."
        ),
    )
    OUT_OF_SCOPE = ("OutOfScope", _PROXY, "The pod's namespace is not served.")
    DELETED = ("Deleted", _PROXY, "The pod is being deleted.")
    ENDED = ("Ended", _PROXY, "The pod has succeeded or failed.")
    PROXY_ENDED = ("ProxyEnded", _PROXY, "Payload and proxy have ended.")
    DISRUPTED = ("Disrupted", _PROXY, "The kubelet is ending the whole pod.")

    # Somebody has to look.
    NOTHING_TO_WAIT_FOR = (
        "NothingToWaitFor",
        _PROXY | _EVENT,
        "The pod's annotations leave no container to wait for, so its proxy is left alone.",
    )
    UNKNOWN_CONTAINER = (
        "UnknownContainer",
        _EVENT,
        "The pod's annotations name a container that it does not have.",
    )
    BAD_STATUS_PORT = (
        "BadStatusPort",
        _PROXY | _EVENT,
        "The pod's annotation `status.sidecar.istio.io/port` is not a port.",
    )
    BAD_CONTAINER_LIST = (
        "BadContainerList",
        _PROXY | _EVENT,
        "The pod's annotation that lists containers is too long: its proxy is left alone.",
    )
    PROXY_LOST = (
        "ProxyLost",
        _PROXY | _EVENT,
        "The proxy ended for good while the payload runs: it has no network through the mesh.",
    )
    PROXY_NOT_RUNNING = (
        "ProxyNotRunning",
        _PROXY | _EVENT,
        (
            "The payload has ended, and the pod can't complete since its proxy does not run."
            " Says why."
        ),
    )
    PROXY_WITHOUT_ENVOY = (
        "ProxyWithoutEnvoy",
        _PROXY | _EVENT,
        (
            "The payload has ended, and the pod can't complete: its injection template is"
            " `grpc-agent`, whose pilot-agent ends by a signal only. Names the command."
        ),
    )
    POD_NOT_REPLACED = (
        "PodNotReplaced",
        _EVENT,
        (
            "`delete-broken-pods` is on, and this pod is not deleted: part of its work is done,"
            " three pods of its owner were deleted, or the right to delete pods is missing."
        ),
    )
    NOT_UNDERSTOOD = (
        "ObjectNotUnderstood",
        _PROXY | _EVENT,
        "The object holds something that can't be dealt with, and is passed over. Says what.",
    )

    # A pod should have a sidecar.
    NAMESPACE_INJECTION = (
        "NamespaceInjection",
        _SIDECAR,
        "Its namespace says `istio-injection=enabled`.",
    )
    REVISION = ("Revision", _SIDECAR, "The pod or its namespace names the revision in use.")
    POD_INJECTION = (
        "PodInjection",
        _SIDECAR,
        "The pod's label `sidecar.istio.io/inject` says `true`.",
    )
    INCLUDED = ("Included", _SIDECAR, "The pod matches `included-pods`.")

    # A pod should have no sidecar.
    HOST_NETWORK = (
        "HostNetwork",
        _SIDECAR | _ADMISSION,
        "Pods on the node's network never get a sidecar.",
    )
    WINDOWS = ("Windows", _SIDECAR, "Istio has no sidecar for Windows.")
    INTEGRATOR_ITSELF = (
        "IntegratorItself",
        _SIDECAR,
        "The integrator's own pods stay outside of the mesh.",
    )
    MODEL_OPERATOR = (
        "ModelOperator",
        _SIDECAR,
        "Juju's modeloperator stays outside of the mesh.",
    )
    EXCLUDED = ("Excluded", _SIDECAR, "The pod matches `excluded-pods`.")
    INJECTION_DISABLED = (
        "InjectionDisabled",
        _SIDECAR,
        "The pod's label or annotation `sidecar.istio.io/inject` says `false`.",
    )
    AMBIENT = (
        "Ambient",
        _SIDECAR | _ADMISSION,
        "The pod is in the mesh by ambient mode.",
    )
    SIDECAR_LEFT = (
        "SidecarLeft",
        _SIDECAR | _EVENT,
        "The pod has a sidecar, and its model is in ambient mode: it is replaced by one without.",
    )
    OUT_OF_AMBIENT = (
        "OutOfAmbient",
        _SIDECAR,
        "The pod is labelled `istio.io/dataplane-mode=none`.",
    )
    NOT_INCLUDED = ("NotIncluded", _SIDECAR, "The pod does not match `included-pods`.")
    NAMESPACE_OUTSIDE = (
        "NamespaceOutside",
        _SIDECAR,
        "Neither the pod nor its namespace asks for a sidecar.",
    )
    OTHER_REVISION = (
        "OtherRevision",
        _SIDECAR,
        "The pod or its namespace names another revision of Istio.",
    )

    # A pod is not ours to replace.
    BARE_POD = ("BarePod", _REPLACEMENT, "No workload owns the pod: nothing would create another.")
    RUNS_TO_COMPLETION = (
        "RunsToCompletion",
        _REPLACEMENT,
        "The pod does work that ends, such as a Job's, which nobody interrupts.",
    )
    CONVERGENCE_DISABLED = (
        "ConvergenceDisabled",
        _REPLACEMENT,
        "`convergence=disabled` stands on the pod, its workload or its namespace.",
    )
    OWNED_FURTHER_UP = (
        "OwnedFurtherUp",
        _REPLACEMENT,
        "Something else, such as a Notebook or an InferenceService, owns the pod's workload.",
    )
    OTHER_OWNER = (
        "OtherOwner",
        _REPLACEMENT,
        "What owns the pod is no Deployment, StatefulSet or DaemonSet.",
    )
    OWNER_UNKNOWN = ("OwnerUnknown", _REPLACEMENT, "The pod's owner was not found.")
    TEMPLATE_WITHHELD = (
        "TemplateWithheld",
        _REPLACEMENT,
        "With the strategy OnDelete, replacing the pod would bring a new template into use.",
    )
    OTHER_NAMESPACE = (
        "OtherNamespace",
        _REPLACEMENT,
        "Outside of the model pods are only reported.",
    )

    # A pod is not replaced unasked.
    NOT_ASKED = (
        "NotAsked",
        _REPLACEMENT,
        "`restart-pods` is not `auto`: run `restart-uninjected`.",
    )

    # A pod is not replaced yet.
    MESH_DOWN = ("MeshDown", _REPLACEMENT, "The injector does not answer.")
    NOT_SERVED = (
        "NotServed",
        _REPLACEMENT,
        (
            "The model's namespace is not served by istiod: there is no ConfigMap"
            " `istio-ca-root-cert`, without which no proxy starts."
        ),
    )
    FIRST_POD = (
        "FirstPod",
        _REPLACEMENT,
        "The first replacement of the model is not Ready yet: no other pod is evicted before.",
    )
    QUEUED = ("Queued", _REPLACEMENT, "Other workloads, or a question to the API, come first.")
    REPLACING = ("Replacing", _REPLACEMENT, "A pod of the same workload is being replaced.")
    CHANGING = ("Changing", _REPLACEMENT, "The workload is changing or going away by itself.")
    NOT_READY = (
        "NotReady",
        _REPLACEMENT,
        "The pod is not Ready. It is replaced when it has not been Ready for ten minutes.",
    )
    NOT_SETTLED = ("NotSettled", _REPLACEMENT, "The pod has been Ready for a moment only.")
    LAST_READY_REPLICA = (
        "LastReadyReplica",
        _REPLACEMENT,
        "The pod is the only Ready one of its workload.",
    )
    DISRUPTION_BUDGET = (
        "DisruptionBudget",
        _REPLACEMENT,
        "A PodDisruptionBudget does not allow the eviction.",
    )
    FORBIDDEN = ("Forbidden", _REPLACEMENT, "The application may not evict pods.")
    EVICTION_REFUSED = ("EvictionRefused", _REPLACEMENT, "The API refuses the eviction.")
    REPLACEMENT_REFUSED = (
        "ReplacementRefused",
        _REPLACEMENT,
        (
            "A webhook, a policy or a quota would refuse the pod that came in its place. Says"
            " which. `restart-uninjected force=true` evicts all the same."
        ),
    )
    CANNOT_START = (
        "CannotStart",
        _REPLACEMENT,
        "The pod that came in its place could never start beside its sidecar. Says why.",
    )

    # What became of a replacement.
    REQUESTED = ("Requested", _REPLACEMENT, "Somebody asked for the pod's replacement.")
    REPLACED = ("Replaced", _REPLACEMENT, "A pod was replaced, and its workload is whole again.")
    REPLACEMENT_STARTING = (
        "ReplacementStarting",
        _REPLACEMENT,
        "A replacement is being started: no other pod is evicted before it is Ready.",
    )
    REPLACEMENT_HANGS = (
        "ReplacementHangs",
        _REPLACEMENT,
        (
            "A replacement was refused or cannot start: no other pod is evicted before it is"
            " Ready. Says why."
        ),
    )
    REPLACEMENT_NOT_READY = (
        "ReplacementNotReady",
        _REPLACEMENT,
        "A replacement is not Ready after ten minutes: no other pod is evicted before. Says why.",
    )
    STILL_NO_SIDECAR = (
        "StillNoSidecar",
        _REPLACEMENT | _EVENT,
        "A replacement again has no sidecar: its workload is left alone from now on.",
    )
    SIDECAR_AGAIN = (
        "SidecarAgain",
        _REPLACEMENT | _EVENT,
        "A replacement again has a sidecar: its workload is left alone from now on.",
    )
    WRONG_ORDER = (
        "WrongOrder",
        _REPLACEMENT | _EVENT,
        (
            "Juju or KubeRay expects another container at the first place of the pod, or of the"
            " pod that came in its place. Says which."
        ),
    )
    SIDECAR_UNWANTED = (
        "SidecarUnwanted",
        _REPLACEMENT | _EVENT,
        "The pod has a sidecar and stays outside of the mesh: it is replaced by one without.",
    )
    INJECTOR_SKIPS = (
        "InjectorSkips",
        _REPLACEMENT | _EVENT,
        (
            "The injector does not inject such a pod, or in ambient mode still does: its workload"
            " is left alone. Says why."
        ),
    )
    OLD_PROXY = (
        "OldProxy",
        _REPLACEMENT,
        "Its proxy is of another revision, or older than istiod.",
    )
    SIDECAR_MISSING = (
        "SidecarMissing",
        _EVENT,
        "The pod was evicted, since it should have a sidecar and had none.",
    )
    PROXY_RENEWED = (
        "ProxyRenewed",
        _EVENT,
        "The pod was evicted, since the action restart-stale asked for a newer proxy.",
    )

    # A new pod does not get something.
    HAS_PROXY = ("HasProxy", _ADMISSION, "The pod already has an istio-proxy.")
    MIRROR_POD = ("MirrorPod", _ADMISSION, "The pod mirrors a static pod of a kubelet.")
    FORBIDDEN_BY_POLICY = (
        "ForbiddenByPolicy",
        _ADMISSION,
        "Another team's policy forbids it on pods; `diagnose` names the policy.",
    )
    MESH_PROBE = ("MeshProbe", _ADMISSION, "The charm asks by it what istiod injects.")
    POD_SAYS_ITSELF = ("PodSaysItself", _ADMISSION, "The pod says itself what it wants.")
    NOT_INJECTED = ("NotInjected", _ADMISSION, "The pod is labelled to get no sidecar.")
    FIRST_CONTAINER = (
        "FirstContainer",
        _ADMISSION,
        "The pod's controller (Juju, KubeRay) expects another container than istio-proxy first.",
    )
    OTHER_TEMPLATE = (
        "OtherTemplate",
        _ADMISSION,
        "Its `inject.istio.io/templates` does not name `sidecar`, so no native sidecar is known.",
    )
    CONFIG_SAYS_ITSELF = (
        "ConfigSaysItself",
        _ADMISSION,
        "Its proxy.istio.io/config sets holdApplicationUntilProxyStarts itself.",
    )
    CONFIG_NOT_MERGEABLE = (
        "ConfigNotMergeable",
        _ADMISSION,
        "Its proxy.istio.io/config is no mapping that begins plainly enough to add to.",
    )
    CONFIG_TOO_LONG = (
        "ConfigTooLong",
        _ADMISSION,
        "Its proxy.istio.io/config is longer than 32768 characters.",
    )

    CONFIG_UNCLEAR = (
        "ConfigUnclear",
        _ADMISSION,
        (
            "Its proxy.istio.io/config names holdApplicationUntilProxyStarts where it is not clear"
            " whether it is set."
        ),
    )
    PORTS_NOT_MERGEABLE = (
        "PortsNotMergeable",
        _ADMISSION,
        "Its list of excluded outbound ports has an empty place, which istiod refuses.",
    )
    ANNOTATIONS_FULL = (
        "AnnotationsFull",
        _ADMISSION,
        "All its annotations would pass 256 KiB, or there are more than 1000.",
    )

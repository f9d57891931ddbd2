"""The messages of the unit status and of diagnose, one row each, and their format.

`juju status` cuts messages at 120 characters, so the command of a shown message ends within the
first 100.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import ops

from istio_integrator import texts

LONGEST = 1000
"""Characters of a status; `juju status` shows one line of it, and its JSON the rest."""
VISIBLE = 100
"""Characters of a status within which a command ends."""
_LONGEST_COMMAND = 46
"""Characters of a command in a status; diagnose shows a longer one."""
_RUN = "run: "


class Severity(enum.Enum):
    """Severity of a message, most severe first, as Juju's status names."""

    BLOCKED = "blocked"
    """The operator has to act."""
    MAINTENANCE = "maintenance"
    """The charm is changing the model."""
    WAITING = "waiting"
    """The condition ends without the operator, or when another team acts."""
    DOUBT = "doubt"
    """There may be a problem, or a fact is unknown; only actions show it."""
    NOTE = "active"
    """No problem: a phrase of the active status."""


class _Text(NamedTuple):
    """A message template; the message fills in the `{names}`."""

    severity: Severity
    condition: str
    command: str = ""
    """The next command for the operator; empty if no command helps."""
    more: str = ""
    """Details and consequences, after the command."""
    symptom: str = ""
    """The heading of docs/how-to/symptoms.md that describes what users see: its anchor."""


@dataclasses.dataclass(frozen=True)
class Message:
    """A row and the values of its names."""

    template: Template
    about: Mapping[str, object]
    severity: Severity
    check: str = ""
    """The check of diagnose that found the problem, or the option of a preview."""
    symptoms: tuple[str, ...] = ()
    """The headings of docs/how-to/symptoms.md that describe what users see: their anchors."""
    otherwise: str = ""
    """The next command if the row has none."""

    @property
    def condition(self) -> str:
        """The finding."""
        return self.template.value.condition.format(**self.about)

    @property
    def command(self) -> str:
        """The next command; empty if the row has none."""
        return self.template.value.command.format(**self.about)

    @property
    def more(self) -> str:
        """The text after the command."""
        return self.template.value.more.format(**self.about).strip("; ")

    @property
    def next_command(self) -> str:
        """The command that diagnose shows."""
        return self.command or self.otherwise

    @property
    def finding(self) -> str:
        """Everything but the command."""
        return "; ".join(filter(None, (self.condition, self.more)))

    @property
    def text(self) -> str:
        """`CONDITION; run: COMMAND; MORE`, without empty parts."""
        command = self.command and f"{_RUN}{self.command}"
        return "; ".join(filter(None, (self.condition, command, self.more)))

    def to_status(self, *, application: str, others: int = 0) -> ops.StatusBase:
        """Return the unit status, whose command ends within the visible characters.

        If the condition is too long for that, the command comes first. A command that is too long
        is replaced by the action diagnose, which shows it.

        Args:
            application: This application, for the command.
            others: Messages that are not shown.
        """
        condition, command = self.condition, self.command
        run = f"{_RUN}{command}" if command else ""
        more = "; ".join(filter(None, (f"+{others} more" if others else "", self.more)))
        text = "; ".join(filter(None, (condition, run, more)))
        if command and len(texts.escape(f"{condition}; {run}")) > VISIBLE:
            if len(command) > _LONGEST_COMMAND:
                run = f"{_RUN}juju run {application}/leader diagnose"
            text = "; ".join(filter(None, (run, condition, more)))
        return ops.StatusBase.from_name(self.severity.value, texts.escape(text, LONGEST))


def make_status(said: Sequence[Message], *, application: str) -> ops.StatusBase:
    """Return the status of the most severe message, with the number of other problems.

    Among equal severities it is the first. Without problems, all notes form the active status.
    """
    problems = [each for each in said if each.severity is not Severity.NOTE]
    if problems:
        severities = list(Severity)
        severest = min(problems, key=lambda each: severities.index(each.severity))
        return severest.to_status(application=application, others=len(problems) - 1)
    return ops.ActiveStatus(texts.escape(" · ".join(each.text for each in said), LONGEST))


_TRUST = "juju trust {application} --scope=cluster"
_GRANT = f"{_TRUST}, or kubectl apply -f rbac/roles.yaml"
LOG = "juju debug-log --replay --include {application}"
_LIST = "juju run {application}/leader list-uninjected"
_ADMIT = (
    "if one calls: {relate}write an AuthorizationPolicy that admits it, or keep authorization=off"
)
_LEAVE_GATEWAY_API = "juju config {application} routing=virtualservice"
_INSTALL = "or install the Gateway API 1.4 or newer in the cluster"
_EXCEPT = "add {port} to juju config {application} mtls-exceptions"
_POLICY = "kubectl -n {namespace} get authorizationpolicy {name} -o yaml"

_blocked = functools.partial(_Text, Severity.BLOCKED)
_maintenance = functools.partial(_Text, Severity.MAINTENANCE)
_waiting = functools.partial(_Text, Severity.WAITING)
_doubt = functools.partial(_Text, Severity.DOUBT)
_note = functools.partial(_Text, Severity.NOTE)


class Template(enum.Enum):
    """The rows, by the part of the charm that uses them; calling one creates its message."""

    # Requests to the API server that failed.
    CONFIG_INVALID = _blocked("{problem}")
    PERMISSION_MISSING = _blocked(
        "missing permission: {right}", _TRUST, symptom="is-forbidden-user"
    )
    OBJECT_REFUSED = _blocked("{author} refuses {reference}", "{command}", "{more}")
    WEBHOOK_SILENT = _waiting("{author} does not answer for {reference}", "{command}", "{more}")
    OBJECT_FOREIGN = _blocked("{owner} has {reference}: rename or delete it")
    KIND_ABSENT = _waiting("the cluster lacks a kind: are Istio's CRDs installed? ({problem})")
    API_SILENT = _waiting("waiting for the Kubernetes API: {problem}")

    # The model namespace's mesh membership.
    CONTROLLER_MODEL = _blocked("a controller model never joins a mesh: deploy into another model")
    MODEL_TAKEN = _blocked(
        "{owner} manages namespace {namespace}",
        "juju remove-application {application}",
        "or remove the other integrator",
        symptom="two-kubeflows-in-one-cluster",
    )
    NAMESPACE_OF_OTHER_MESH = _blocked("namespace {namespace} has {labels}", "{command}", "{more}")
    NAMESPACE_IN_AMBIENT = _blocked(
        "namespace {namespace} is in ambient mode", "{command}", "or set mesh-mode=auto"
    )
    INJECTION_DISABLED = _blocked(
        "namespace {namespace} has {labels}", "{command}", "or set mesh-mode=none"
    )
    LABEL_REMOVED_AGAIN = _blocked(
        "another tool removes {labels} from namespace {namespace}",
        "kubectl get ns {namespace} -o yaml --show-managed-fields",
        "the charm restored it three times within an hour; add the label to that tool's settings",
    )
    EVERY_POD_JOINS = _blocked(
        "namespace {namespace} has {labels}",
        "{command}",
        "or unset included-pods, as every pod joins by this label",
    )
    NAMESPACE_NOT_IN_AMBIENT = _blocked(
        "namespace {namespace} opts out of ambient",
        "{command}",
        "or set mesh-mode=sidecar; it has {labels}",
    )
    AMBIENT_LACKS = _blocked(
        "namespace {namespace} needs ambient mode, and {lack}",
        "juju config {application} mesh-mode=sidecar",
        "or install Istio with profile=ambient (mesh-mode={mode})",
    )
    MODEL_IGNORED_BY_ISTIOD = _blocked(
        "the discoverySelectors of {istiod} leave this namespace out",
        "kubectl label namespace {namespace} {label}",
    )
    NOT_IN_MESH_YET = _waiting("not in the mesh until {event}")
    NAMESPACES_TAKEN = _note("{count} managed by {owners}")
    SERVICE_IGNORED_BY_ISTIOD = _blocked(
        "istiod ignores {service}",
        "kubectl label namespace {namespace} {label}",
        "discoverySelectors leave out the authorization service",
    )
    NAMESPACES_IGNORED_BY_ISTIOD = _note(
        "istiod ignores {count} served namespaces ({names}): label them {label}"
    )

    # Admission.
    ADMISSION_OFF = _note("admission: not needed")
    ADMISSION_WORKS = _note("admission: webhook")
    ADMISSION_STARTING = _waiting("admission: {problem}")
    ADMISSION_HINDERED = _blocked(
        "admission: {problem}", "juju run {application}/leader diagnose", "{words}"
    )
    CHANGE_FORBIDDEN = _blocked(
        "{author} forbids {change} on pods, so it is left out",
        "{command}",
        "{more}",
    )

    SIDECAR_REJECTED = _blocked(
        "{author} rejects {workload} with a sidecar",
        "kubectl -n {namespace} describe {workload}",
        "{words}; to keep its pods out of the mesh, add their label to excluded-pods",
    )

    # The workload, and its reports about the model's pods.
    CONTAINER_STARTING = _waiting("waiting for the lifecycle container")
    SERVICE_NOT_READY = _waiting("waiting for lifecycle to watch the cluster")
    SERVICE_SILENT = _waiting("{problem}")
    IMAGE_DOES_NOT_FIT = _blocked(
        "lifecycle-image does not fit the charm",
        "juju refresh {application}",
        "or add --resource lifecycle-image=IMAGE, the image of the charm's revision ({contracts})",
    )
    DATA_PLANE = _note("{data_plane}")
    PODS_HANG = _blocked("{problem}", "{command}")
    PODS_WAIT = _waiting("{pods} pods in mesh, {problem}", "{command}", "{more}")
    PODS_TO_RESTART = _blocked(
        "{pods} pods in mesh{why}", "juju run {application}/leader restart-uninjected"
    )
    PODS_TO_BE_REPLACED = _maintenance(
        "{pods} pods in mesh, {count} waiting to be replaced", "{command}", "{more}"
    )
    PODS_IN_MESH = _note("{pods} pods in mesh{details}")

    # The Istio that the model joins.
    INJECTOR_ABSENT = _waiting("waiting for istiod: the cluster has no sidecar injector")
    ISTIOD_ELSEWHERE = _waiting("waiting for an istiod in {namespace}; there is one in {places}")
    REVISION_ABSENT = _blocked("revision {revision} does not exist; there is {revisions}")
    SEVERAL_ISTIOS = _blocked(
        "several Istios",
        "juju config {application} {option}={example}",
        "or choose another of {injectors}",
    )
    INJECTORS_CLASH = _blocked(
        "several Istios are asked for the same pods",
        "kubectl delete mutatingwebhookconfiguration {surplus}",
        "or delete another of {injectors}",
    )
    MESH = _note("{name}")
    ISTIOD_AWAY = _waiting("{name} {problem}", "{command}")
    NATIVE_SIDECARS_IMPOSSIBLE = _blocked("job-sidecars=native, but {obstacle}")
    NO_DEFAULT_REVISION = _blocked(
        "no default revision for {count} profile namespaces",
        "istioctl tag set default --revision {revision}{where}",
    )

    # Training jobs, whose pods call each other.
    POD_NETWORKS_UNKNOWN = _note(
        "jobs of several pods fail in {namespaces}: set pod-networks, as in "
        "`juju config {application} pod-networks=10.1.0.0/16`"
    )
    POD_NETWORKS_OVERLAP = _blocked(
        "pod-networks has Services ({services})",
        "juju config {application} pod-networks=",
        "or name networks that hold pods alone, such as 10.1.0.0/16",
    )

    # The gateway that serves the model.
    GATEWAY_NEEDS_HOSTS = _blocked(
        "gateway-service={service} needs hosts", "juju config {application} hosts=NAME"
    )
    GATEWAY_ABSENT = _blocked(
        "Service {service} does not exist", "kubectl -n {namespace} get services"
    )
    GATEWAY_WITHOUT_SELECTOR = _blocked(
        "Service {service} selects no pods",
        "juju config {application} gateway-service=NAMESPACE/NAME",
    )
    GATEWAY_IGNORED_BY_ISTIOD = _blocked(
        "istiod ignores gateway-service",
        "kubectl label namespace {namespace} {label}",
        "discoverySelectors leave out the namespace of {service}",
    )
    GATEWAY_SCOPED = _blocked(
        "{setting} of istiod hides the model from gateway {service}",
        "juju config {application} gateway-service=",
    )
    GATEWAY_SELECTS_ELSEWHERE = _blocked(
        "gateway-service={service}: its selector also selects pods elsewhere: {workloads}"
    )
    HOSTS_OF_OTHER_OWNER = _blocked(
        "{owner} has {hosts} at this gateway",
        "juju config {application} hosts=NAME",
        "of two integrators with one host in namespace {namespace}, the earlier serves it",
    )
    HOSTS_OF_REMOVED_OWNER = _blocked(
        "{owner} is removed, and its EnvoyFilter guards {hosts}",
        "kubectl -n {namespace} delete envoyfilter {name}",
    )
    GATEWAY_IS_NONE = _blocked("gateway-service={service}: Pod {pod} is not a gateway of Istio")
    GATEWAY_OF_OTHER_ISTIOD = _blocked(
        "gateway-service={service}: its istiod is that of {other}, the model's that of {own}"
    )
    GATEWAY_WITHOUT_PORT = _blocked("Service {service} has no port for HTTP or HTTPS")
    GATEWAY_WITHOUT_HTTPS_PORT = _blocked("Service {service} has no port for HTTPS")
    GATEWAY_WITHOUT_HTTP_PORT = _blocked(
        "gateway {gateway} has an https port only",
        "juju integrate {application}:certificates NAME",
        "integrate certificates or set tls-secret",
    )
    GATEWAY_WITHOUT_PODS = _waiting(
        "waiting for pods of Service {service}", symptom="connection-refused-at-the-gateway"
    )
    GATEWAY_NOT_READY = _waiting(
        "gateway {gateway} is not ready",
        "kubectl -n {namespace} describe pods",
        symptom="connection-refused-at-the-gateway",
    )
    GATEWAY_OF_OTHER_OWNER = _blocked(
        "{owner} has {reference}",
        "juju config {application} gateway-service=NAMESPACE/NAME",
        "set gateway-service, or rename or delete it",
    )
    GATEWAY_NAMED_WITH_GATEWAY_API = _blocked(
        "{service} is refused with routing=gateway-api",
        "juju config {application} gateway-service=",
    )
    GATEWAY_API_MISSING = _blocked(
        "the cluster has no Gateway API with v1 of {kinds}", _LEAVE_GATEWAY_API, _INSTALL
    )
    GATEWAY_API_TOO_OLD = _blocked(
        "the cluster's Gateway API is too old, its routes' rules have no names",
        _LEAVE_GATEWAY_API,
        _INSTALL,
    )
    GATEWAY_API_UNVERIFIED = _blocked(
        "istiod's Deployment can't be read, so it is not known whether requests would be "
        "authenticated",
        _LEAVE_GATEWAY_API,
    )
    GATEWAY_API_SWITCHED_OFF = _blocked(
        "istiod {istiod} has {feature} switched off; unset {variable} there"
    )
    GATEWAY_CLASS_MISSING = _blocked(
        "istiod {istiod} offers no GatewayClass",
        _LEAVE_GATEWAY_API,
        "or restart istiod if the Gateway API was installed after it",
    )
    GATEWAY_CLASS_AMBIGUOUS = _blocked(
        "of several GatewayClasses of istiod ({classes}) none is called {usual}",
        _LEAVE_GATEWAY_API,
    )
    GATEWAY_HOSTS_TOO_MANY = _blocked(
        "hosts has {count} names, and a Gateway has listeners for {limit}", _LEAVE_GATEWAY_API
    )
    GATEWAY_API_CUTS_OFF = _blocked(
        "{names} would be cut off by routing=gateway-api",
        _LEAVE_GATEWAY_API,
        "or the owners of these {count} VirtualServices on {gateway} move to HTTPRoutes",
    )
    GATEWAY_NOT_ACCEPTED_YET = _waiting("waiting for istiod to take Gateway {name}")
    GATEWAY_NOT_ACCEPTED = _blocked("Gateway {name}: istiod says: {words}")
    GATEWAY_NOT_PROGRAMMED = _waiting("Gateway {name}: istiod says: {words}")
    GATEWAY_ADDRESS = _note("Gateway {name} at {address}")
    GATEWAY_METADATA_AWAITED = _blocked(
        "set routing=gateway-api: {applications} waits for gateway-metadata"
    )
    ANNOTATIONS_REFUSED = _blocked("gateway-service-annotations: {service}: {problem}")
    HOSTS_IN_PLAIN_HTTP = _note(
        "other teams' hosts within {host} are not authenticated in plain HTTP; set "
        "https-redirect=true"
    )

    # Certificates.
    CERTIFICATES_NEED_HOSTS = _blocked(
        "certificates needs hosts", "juju config {application} hosts=NAME"
    )
    CERTIFICATE_USELESS = _blocked("{source}: {lack}", "{command}", "{consequence}")
    CERTIFICATE_OF_OTHER_HOSTS = _note("{owner}: the certificate does not name {hosts}")
    REDIRECT_WITHOUT_CERTIFICATE = _blocked(
        "https-redirect needs a certificate",
        "juju config {application} https-redirect=false",
        "or set tls-secret, or integrate certificates",
    )
    CERTIFICATE_REFUSED = _blocked("certificates: refused: {reason}")
    CERTIFICATE_AWAITED = _waiting("waiting for a certificate from {applications}")

    # Routes and their authentication.
    REQUEST_INVALID = _blocked("{request}")
    APPLICATION_SILENT = _waiting("waiting for {applications} on {endpoint}")
    OBJECT_INVALID = _blocked("the API server refuses {reference}: {words}")
    SEVERAL_AUTHENTICATORS = _blocked(
        "ingress is closed: keep one of {applications}", symptom="403-at-the-gateway"
    )
    TWO_WAYS_TO_AUTHENTICATE = _blocked(
        "ingress is closed: {first} and {second} both authenticate requests",
        "{command}",
        "or remove the other one",
        symptom="403-at-the-gateway",
    )
    NO_AUTHENTICATOR = _blocked(
        "ingress is closed: authentication is missing",
        "juju integrate {application}:ingress-auth NAME",
        "or integrate forward-auth, or set require-authentication=false",
        symptom="403-at-the-gateway",
    )
    AUTHENTICATOR_INVALID = _blocked(
        "ingress is closed: {endpoint} of {application}: {problem}", symptom="403-at-the-gateway"
    )
    AUTHENTICATOR_AWAITED = _waiting(
        "ingress is closed: waiting for {what}", symptom="403-at-the-gateway"
    )
    ROUTES_NOT_SEEN_YET = _waiting("looking whether gateway {gateway} serves the routes")
    GATEWAY_NOT_SEEN = _waiting("gateway {gateway} is not seen: the workload does not answer")
    ENVOY_NOT_SEEN = _waiting(
        "Envoy of {gateway} is {why}", "kubectl -n {namespace} get pods", "{detail}"
    )
    ROUTES_SERVED = _note("{routes} served by {gateway}{some}")

    # Configuration that the gateway's Envoy lacks, named as in `integrator_contract.seen.Cause`.
    UPDATE_REFUSED = _blocked(
        "Envoy refuses port {port} of {gateway}",
        "kubectl -n {namespace} get envoyfilter",
        "{words}; {others}",
        symptom="connection-refused-at-the-gateway",
    )
    WARMING = _blocked(
        "port {port} of {gateway} waits for Secret {secrets}",
        "kubectl -n {namespace} get secret {secrets}",
        "a Gateway names it as credentialName; {others}",
    )
    FILTERS_IGNORED = _blocked(
        "istiod sends no EnvoyFilter to {gateway}",
        "kubectl -n {istiod} describe deploy",
        "PILOT_IGNORE_RESOURCES or a managed control plane ignores them; {others}",
        symptom="404-at-the-gateway",
    )
    FILTERS_MISSING = _blocked(
        "port {port} of {gateway} lacks this charm's filters",
        "kubectl -n {namespace} get envoyfilter",
        "{others}",
        symptom="404-at-the-gateway",
    )
    HOST_TAKEN = _blocked(
        "Gateway {by} has {host} on port {port}",
        "kubectl get gateways.networking.istio.io -A",
        "istiod serves the older one; {others}",
    )
    PORT_TAKEN = _blocked(
        "Gateway {namespace}/{name} takes port {port} for TCP",
        "kubectl -n {namespace} delete gateways.networking.istio.io {name}",
        "this charm's gateway denies TCP",
        symptom="connection-refused-at-the-gateway",
    )
    HOST_SHARED = _blocked(
        "{by} guards {host} on port {port} too",
        "kubectl get envoyfilter -A",
        "users of {gateway} get 404 there; {others}",
        symptom="404-at-the-gateway",
    )
    SERVER_MISSING = _blocked(
        "istiod leaves out {protocol} on port {port}",
        "kubectl get gateways.networking.istio.io -A",
        "an older Gateway at {gateway} has the port with another protocol; {others}",
        symptom="connection-refused-at-the-gateway",
    )
    ROUTES_MISSING = _blocked(
        "{gateway} has {routes} routes of {host}",
        "kubectl -n {istiod} logs -l app=istiod --tail=-1 | grep 'ACK ERROR'",
        "Envoy refuses all routes for one with an error: {words}; {others}",
    )
    ROUTES_UNREAD = _blocked(
        "routes of {gateway} are too large to count",
        "kubectl get virtualservice -A",
        "the largest: {routes}; {others}",
    )
    ROUTES_UNANSWERED = _blocked(
        "Envoy of {gateway} does not send its routes",
        "kubectl -n {namespace} get pods",
        "port-forward: {words}; {others}",
    )
    OTHER_DOMAIN = _blocked(
        "istiod uses the DNS domain {domain}",
        "kubectl -n {istiod} describe deploy",
        "this charm's routes name Services in another one; {others}",
    )
    CLUSTER_MISSING = _blocked(
        "{gateway} does not see Service {home}/{service}",
        "kubectl -n {home} get service {service} -o yaml",
        "exportTo, defaultServiceExportTo or a Sidecar hides it; {others}",
    )

    # Tenants.
    TENANT_POLICY_OFF = _note("tenant-policy is off: it needs Kubernetes 1.30")
    TENANT_POLICY_UNKNOWN = _blocked(
        "tenant-policy={mode} needs Kubernetes 1.30", "juju config {application} tenant-policy=off"
    )
    TENANT_WARNED = _note("{object} breaks tenant-policy", "{command}", "{words}")
    TENANT_REJECTED = _blocked("{object} breaks tenant-policy", "{command}", "{words}")

    # Security in the mesh.
    WAYPOINT_HIDES_CALLERS = _blocked(
        "waypoint {waypoint} hides the callers",
        "juju config {application} authorization=off",
        "authorization={mode} names callers, and in namespace {namespace} the waypoint calls in "
        "their place",
    )
    REQUESTS_NEED_WAYPOINT = _note(
        "requests to {count} of them are ignored (they need a waypoint)"
    )
    AUTHORIZATION_INVALID = _blocked("authorization: {problem}")
    AUTHORIZATION_WAITS = _waiting("authorization: {problem}")
    CALLERS_NAMED = _note("callers named for {workloads}{rest}")
    MTLS_CUTS_OFF = _blocked(
        "mtls=strict {how}", "juju run {application}/leader preview-security mtls=strict", "{more}"
    )
    MTLS_EXCEPTION_AWAITED = _waiting(
        "{option}: waiting for a Service or workload {name} in the mesh, with a port that is "
        "known",
        more="write a port, or correct the name",
    )
    MTLS_STRICT = _note("strict mutual TLS{left}")

    # Observability.
    LOKI_WITHOUT_URL = _blocked("logging: {units} sends no URL that logs can be pushed to")

    # Diagnose: facts that a check could not determine.
    CHECK_FORBIDDEN = _doubt("not known: missing permission to {right}", _GRANT)
    CHECK_FAILED = _doubt("not known: {problem}", LOG)
    OBJECT_PASSED_OVER = _doubt("{reference} is passed over: {reason}", "{command}")
    OBJECTS_PASSED_OVER = _doubt(
        "{count} objects are passed over, of which these are {shown}",
        "delete or correct the objects above, then run diagnose again",
    )

    # Diagnose: istiod and the model's namespace.
    ISTIOD_INJECTS = _note("{name} gave a dry-run pod its sidecar")
    ISTIOD_NOT_TRIED = _doubt("{name} is ready, but no dry-run pod could be tried", LOG)
    ISTIOD_NAMESPACE_UNKNOWN = _doubt(
        "{injector} calls {url}, and the namespace of this Istio is not known: its settings, and "
        "policies for the whole mesh, are ignored",
        "juju config {application} istiod-namespace=NAMESPACE",
    )
    OUTBOUND_POLICY_UNKNOWN = _doubt(
        "without a mesh configuration it is not known whether sidecars let charms call Juju's "
        "controller at {ports}; they do not with outboundTrafficPolicy REGISTRY_ONLY",
        "if so: juju config {application} excluded-outbound-ports='[{{pods: {label}, ports: "
        "[{ports}]}}]'",
    )
    NAMESPACE_AS_WANTED = _note("namespace {namespace} has {labels}{why}")
    NAMESPACE_OF_NO_MESH = _blocked(
        "namespace {namespace} has {labels}, which is not the mesh's", LOG
    )

    # Diagnose: pods.
    CNI_READY = _note("Istio's CNI plugin is ready")
    CNI_NOT_READY = _blocked(
        "{reference} is not ready on {count} nodes: pods there do not start",
        "kubectl -n {namespace} get pods -o wide",
    )
    INIT_WITHOUT_NETWORK = _doubt(
        "init containers have no network before their classic proxy runs: {pods}",
        "juju config {application} excluded-outbound-ports=PORT, or job-sidecars=auto with "
        "kubelets from 1.33",
    )
    NO_SIDECAR = _doubt("no sidecar: {pods}: {reason}", _LIST)
    WRONG_POD = _doubt("{pods}: {reason}", _LIST)
    OLD_PROXY = _doubt(
        "old proxy: {pods}: {reason}", "juju run {application}/leader restart-stale"
    )
    PODS_IN_ZTUNNEL = _note("ztunnel has taken in the pods of the model")
    PODS_NOT_IN_ZTUNNEL = _doubt(
        "no ztunnel has taken in {pods}",
        "kubectl get pods --all-namespaces -l k8s-app=istio-cni-node",
    )
    HTTP_RULES_NEED_WAYPOINT = _doubt(
        "HTTP rules (method, path, header) for {workloads} need a waypoint and are ignored",
        "deploy a waypoint (istioctl waypoint apply), write policies for it, and run: juju config "
        "{application} authorization=off",
    )
    NO_PROXY_OUTLIVES = _note("no proxy outlives its payload")
    PROXIES_STILL_RUN = _note("{pods} ended less than {seconds} s ago, and the proxy still runs")
    POD_NOT_COMPLETE = _doubt(
        "{pod} is not complete {age} s after its payload: {reason}", "{command}"
    )
    COLLECTOR_WAITS = _blocked(
        "{pod}: metrics-logger-and-collector waits for every process, so for the proxy, which "
        "waits for it, {age} s after the training: tell Katib waitAllProcesses: false",
        "kubectl get configmap --all-namespaces --field-selector metadata.name=katib-config",
    )

    # Diagnose: admission and certificates.
    PODS_NOT_PREPARED = _blocked(
        "new pods are not prepared: {problem}",
        "kubectl -n {namespace} describe deployments,pods -l {labels}",
    )
    PODS_NOT_REJECTED = _note("no policy of another team rejects the model's pods")
    PODS_REJECTED = _blocked(
        "new pods of {workload} are rejected: {refusal}",
        "kubectl -n {namespace} describe {workload}",
    )
    PODS_WERE_REJECTED = _doubt(
        "pods of {workload} were rejected: {refusal}",
        "kubectl -n {namespace} get events --field-selector reason=FailedCreate",
    )
    JOBS_CHANGED = _note("pods of jobs call each other by mutual TLS; namespaces: {count}")
    JOBS_UNCHANGED = _note("pods of jobs keep their traffic: no namespace denies plain text")
    JOB_POD_APART = _doubt(
        "Pod {pod} of a job {lack}, so the job's other pods cannot call it by address",
        "kubectl -n {namespace} get pod {name} --show-labels",
        "recreate the job",
    )
    JOB_FILTERS_IGNORED = _doubt(
        "Envoy of Pod {pod} has no filter chain of EnvoyFilter {name}",
        "juju config {application} pod-networks=none",
        "the control plane may ignore EnvoyFilters: ask who runs it, or let jobs use plain text",
    )
    JOB_PORT_OF_SERVICE = _doubt(
        "Pod {pod} of a job has port {port}, as HTTP Service {service}",
        "kubectl get services -A",
        "calls to it by address stay plain text; choose another port for the job",
    )
    CERTIFICATE_VALID = _note("{owner}: the certificate is valid until {time}")
    CERTIFICATE_ENDS = _doubt("{owner}: the certificate ends {time}", "{command}")
    CERTIFICATE_ENDED = _blocked("{owner}: the certificate ended {time}", "{command}")
    CERTIFICATE_EARLY = _blocked("{owner}: the certificate is valid only from {time}", "{command}")
    CERTIFICATE_UNREADABLE = _blocked("{owner}: the certificate cannot be read", "{command}")
    WEBHOOK_UNTRUSTED = _blocked(
        "the webhook configuration does not trust the servers' certificate",
        "{command}",
    )

    # Diagnose: the gateway and its routes.
    GATEWAY_NOT_USED = _note("not in use: nothing is related to ingress")
    GATEWAY_REACHED = _note("{gateway} is reached at {address}")
    GATEWAY_WITHOUT_ADDRESS = _doubt(
        "Service {namespace}/{service} is a LoadBalancer without an address",
        "kubectl -n {namespace} describe service {service}",
    )
    FILTERS_ABSENT = _note("no other team authenticates requests at the gateway")
    FILTER_BEFORE = _doubt(
        "{reference} is applied at the gateway before authentication, and may reject requests",
        "kubectl -n {namespace} get {kind} {name} -o yaml",
    )
    HOST_ELSEWHERE = _doubt(
        "{reference} has the model's host {host}, so its routes there need the model's login",
        "kubectl -n {namespace} get {kind} {name} -o yaml",
        "remove the host from it, or from the option hosts",
    )
    AUTHENTICATED = _note("{service} authenticates requests to port {ports} of the gateway")
    NOT_AUTHENTICATED = _doubt(
        "requests are not authenticated: require-authentication=false, and no application is "
        "related to ingress-auth or forward-auth",
        "juju integrate {application}:ingress-auth oidc-gatekeeper",
    )
    AUTHENTICATOR_WITHOUT_PODS = _blocked(
        "Service {namespace}/{service} has no pods",
        "kubectl -n {namespace} get service,endpointslices",
    )
    BACKENDS_READY = _note("{count} backends of routes are ready")
    BACKEND_NOT_READY = _doubt(
        "VirtualService {route}: {problem}",
        "kubectl -n {namespace} get service,endpointslices -l "
        "kubernetes.io/service-name={service}",
    )
    GATEWAYS_EXIST = _note("every Gateway that a route names exists")
    ROUTE_WITHOUT_GATEWAY = _blocked(
        "Gateway {gateway}, which VirtualService {routes} names, does not exist",
        "kubectl get gateways.networking.istio.io -A",
    )
    HOSTS_SERVED = _note("the model's Gateway serves every route of the model and its profiles")
    HOSTS_NOT_SERVED = _doubt(
        "Gateway {gateway} serves no host of VirtualService {routes}: add {hosts} to the option "
        "hosts, or a wildcard for them",
        "kubectl -n {namespace} get virtualservice {name} -o yaml",
    )

    # Diagnose: policies, and calls that proxies reject.
    CALLS_NOT_DENIED = _note("no policy of another team denies every call")
    CALLS_DENIED = _doubt("{policy} denies every caller of {count} pods", _POLICY)
    CERTIFICATE_EXPECTED = _doubt(
        "{rule} has clients use mutual TLS with {service}, whose pod {pod} has no sidecar",
        "kubectl -n {namespace} get pod {pod} -o yaml",
    )
    PROFILES_ADMIT_GATEWAY = _note("the policies of profile namespaces admit the gateway")
    PROFILES_REJECT_GATEWAY = _blocked(
        "the policies of {namespaces} admit {principals}, and the gateway is "
        "{namespace}/{account}: every page there answers 403",
        "juju config kubeflow-profiles istio-gateway-namespace={namespace} "
        "istio-gateway-service-account={account}",
    )
    HEADER_NOT_TRUSTED = _note(
        "no policy of a profile namespace trusts the kubeflow-userid header from any caller"
    )
    HEADER_TRUSTED = _doubt(
        "policy {policies} trusts the kubeflow-userid header from any caller", "{command}"
    )
    USERS_HAVE_CALLERS = _note("Services that accept kubeflow-userid have named callers")
    USERS_FROM_ANY_POD = _doubt(
        "kubeflow-userid is accepted from any pod by {services}", "{command}"
    )
    WEBHOOKS_REACHED = _note("API servers can call the webhooks in the model")
    WEBHOOK_NOT_REACHED = _blocked(
        "{pod} is in the mesh and {obstacle}, so webhook {webhook} cannot be called", "{command}"
    )
    EGRESS_OPEN = _note("proxies let calls out of the cluster")
    EGRESS_REGISTRY_ONLY = _doubt(
        "proxies are REGISTRY_ONLY: pods reach only hosts of Services and ServiceEntries",
        "kubectl get serviceentries -A",
    )
    CONTROLLER_NOT_REACHED = _blocked(
        "the proxies of {pods} keep their charms from Juju's controller",
        "kubectl -n {namespace} delete pod {name}",
    )
    TRUSTED = _note("the application is trusted with the whole cluster")
    RIGHTS_GIVEN = _note("the application has all rights that it needs")
    RIGHTS_MISSING = _blocked("missing permissions: {rights}", _GRANT)

    # Previews of authorization, and its check.
    OPTION_WRITES_NOTHING = _note("{option}: this application writes no {kind}")
    PREVIEW_WITHOUT_ISTIO = _doubt("there is no Istio to join", "juju status")
    CALLERS_HELD = _note("{policies} policies restrict the callers of {pods} pods")
    CALLER_WITHOUT_SIDECAR = _blocked(
        "{callers} may call by a relation and can't, having no sidecar", _LIST
    )
    CALLED_WITHOUT_SIDECAR = _doubt("{pods} has no sidecar to restrict its callers", _LIST)
    POLICY_INTERFERES = _doubt("{policy} is about {pods}, too, and {effect}", _POLICY)
    CALLED_BY_NONE = _doubt(
        "the policies of this charm admit no caller of {pods}",
        "if one is to be called: write an AuthorizationPolicy that names its callers",
    )
    PORT_OPEN_TO_ALL = _note("{service}:{ports} is open to every caller, for {caller}")
    CALLERS_LOST = _doubt("{callers} could no longer call {target}", _ADMIT)
    CALLERS_LIMITED = _doubt(
        "{callers} could call {target} only where a condition of its policies holds, about an "
        "address, a header, a path or a method",
        _ADMIT,
    )
    CALLERS_UNKNOWN = _doubt(
        "{callers} could no longer call {target}: {policy} disables mutual TLS there, and rules "
        "that name callers never match",
        "take DISABLE out of {policy}, or keep authorization=off",
    )
    CALLS_BY_HOST = _doubt(
        "{callers} could no longer call {target} with the Host of a browser: a sidecar that does "
        "not know the Host sends no certificate",
        "if one does: {remedy}",
    )

    # Previews of mtls, and its check.
    POLICY_OLDER = _blocked(
        "{policy}, which this charm did not make, is older and decides about {about}",
        "kubectl -n {namespace} delete peerauthentication {name}",
    )
    SIDECARS_AWAITED = _blocked(
        "{count} pods that should have a sidecar have none, and could call no other", _LIST
    )
    PODS_WITHOUT_LABELS = _blocked(
        "{caller} calls {workload}:{port}, whose pods have no labels by which an exception could "
        "select them",
        "give the pods of {workload} a label",
    )
    SERVICE_PASSES_GATEWAY = _blocked(
        "Service {service} ({kind}) leads to {port} past the gateway, and callers that come by it "
        "have no certificate",
        f"make it a ClusterIP, or {_EXCEPT}",
    )
    CLIENTS_WITHOUT_CERTIFICATE = _blocked(
        "{rule} has clients call {port} without the mesh's certificates",
        f"take its tls mode out, or {_EXCEPT}",
    )
    SERVICE_HIDDEN = _blocked(
        "{rule} hides {port} from proxies, which then call it in plain text",
        f"add its namespace to the egress hosts there, or {_EXCEPT}",
    )
    CALLER_OUTSIDE_MESH = _doubt(
        "{workload} has no sidecar: members of the mesh would not answer it",
        f"let it join, or {_EXCEPT}",
    )
    PORT_EXCEPTED = _note("{port} stays open to plain text for {callers}")
    POLICY_KEEPS_OPEN = _note(
        "{policy}, which this charm did not make, keeps {workloads} open to plain text"
    )
    PLAIN_TEXT_UNKNOWN = _doubt(
        "plain-text callers outside the model, for example Prometheus, cannot be detected",
        'query istio_requests_total{{reporter="destination",connection_security_policy="none"}} '
        f"and {_EXCEPT}",
    )

    def __call__(self, **about: object) -> Message:
        """Create the message; raise KeyError if a name of the row has no value."""
        row = self.value
        for template in (row.condition, row.command, row.more):
            template.format(**about)
        symptoms = (row.symptom,) if row.symptom else ()
        return Message(self, about, row.severity, symptoms=symptoms)

"""Everything that the unit's status can say: one row each, and how a row reads when it is shown.

`juju status` cuts messages at 120 characters, so the command of a shown message ends within the
first 100.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import ops

from istio_integrator import texts

LONGEST = 1000
"""Characters of a status; `juju status` shows a line of them, and the rest is in its JSON."""
VISIBLE = 100
"""Characters within which a command ends."""
_LONGEST_COMMAND = 46
"""Characters of a command that leave room for the condition; a longer one is diagnose's."""
_RUN = "run: "


class Severity(enum.Enum):
    """How severe a message is, the severest first, in Juju's words for statuses."""

    BLOCKED = "blocked"
    """The operator has to act."""
    MAINTENANCE = "maintenance"
    """The charm is changing the model."""
    WAITING = "waiting"
    """The condition ends by itself, or when another team acts."""
    NOTE = "active"
    """A phrase of the active status."""


class Row(NamedTuple):
    """One thing that can be said; `{names}` are filled in by the message."""

    severity: Severity
    condition: str
    command: str = ""
    """What the operator runs next; empty where no command helps."""
    more: str = ""
    """Details and consequences, behind the command."""
    symptom: str = ""
    """The heading of docs/how-to/symptoms.md that describes what users see: its anchor."""


@dataclasses.dataclass(frozen=True)
class Message:
    """A row, and what its names stand for."""

    said: Said
    about: Mapping[str, object]

    @property
    def severity(self) -> Severity:
        """The severity of the row."""
        return self.said.value.severity

    @property
    def condition(self) -> str:
        """What was found."""
        return self.said.value.condition.format(**self.about)

    @property
    def command(self) -> str:
        """The next command; empty where the row has none."""
        return self.said.value.command.format(**self.about)

    @property
    def more(self) -> str:
        """What follows the command."""
        return self.said.value.more.format(**self.about).strip("; ")

    @property
    def seen(self) -> str:
        """Everything but the command."""
        return "; ".join(filter(None, (self.condition, self.more)))

    @property
    def text(self) -> str:
        """`CONDITION; run: COMMAND; MORE`, with the last two where there are any."""
        command = self.command and f"{_RUN}{self.command}"
        return "; ".join(filter(None, (self.condition, command, self.more)))

    def status(self, *, application: str, others: int = 0) -> ops.StatusBase:
        """Return the status that people see, whose command ends within the visible characters.

        Where the condition is too long for that, the command comes first. A long command is shown
        by the action diagnose.

        Args:
            application: This application, for the command.
            others: Messages that are not shown.
        """
        condition, command = self.condition, self.command
        run = f"{_RUN}{command}" if command else ""
        more = "; ".join(filter(None, (f"+{others} more" if others else "", self.more)))
        text = "; ".join(filter(None, (condition, run, more)))
        if command and len(texts.plain(f"{condition}; {run}")) > VISIBLE:
            if len(command) > _LONGEST_COMMAND:
                run = f"{_RUN}juju run {application}/leader diagnose"
            text = "; ".join(filter(None, (run, condition, more)))
        return ops.StatusBase.from_name(self.severity.value, texts.plain(text, LONGEST))


def status(said: Sequence[Message], *, application: str) -> ops.StatusBase:
    """Return the status of the severest message, which counts the other problems.

    Of equally severe ones it is the first. Without problems all notes are the active status.
    """
    problems = [each for each in said if each.severity is not Severity.NOTE]
    if problems:
        severities = list(Severity)
        severest = min(problems, key=lambda each: severities.index(each.severity))
        return severest.status(application=application, others=len(problems) - 1)
    return ops.ActiveStatus(texts.plain(" · ".join(each.text for each in said), LONGEST))


_TRUST = "juju trust {application} --scope=cluster"


class Said(enum.Enum):
    """The rows, by the part of the charm that says them; calling one makes its message."""

    # Requests to the API server that failed.
    CONFIG_INVALID = Row(Severity.BLOCKED, "{problem}")
    PERMISSION_MISSING = Row(
        Severity.BLOCKED, "missing permission: {right}", _TRUST, symptom="is-forbidden-user"
    )
    OBJECT_REFUSED = Row(Severity.BLOCKED, "{author} refuses {reference}", "{command}", "{more}")
    WEBHOOK_SILENT = Row(
        Severity.WAITING, "{author} does not answer for {reference}", "{command}", "{more}"
    )
    OBJECT_FOREIGN = Row(Severity.BLOCKED, "{reference} exists and {belongs}: rename or delete it")
    KIND_ABSENT = Row(
        Severity.WAITING, "the cluster lacks a kind: are Istio's CRDs installed? ({problem})"
    )
    API_SILENT = Row(Severity.WAITING, "waiting for the Kubernetes API: {problem}")

    # The model's namespace as a member of the mesh.
    CONTROLLER_MODEL = Row(
        Severity.BLOCKED, "a controller model never joins a mesh: deploy into another model"
    )
    MODEL_TAKEN = Row(
        Severity.BLOCKED,
        "namespace {namespace} is managed by {owner}: remove one of the two integrators",
        symptom="two-kubeflows-in-one-cluster",
    )
    NAMESPACE_OF_OTHER_MESH = Row(
        Severity.BLOCKED, "namespace {namespace} has {labels}", "{command}", "{more}"
    )
    NAMESPACE_IN_AMBIENT = Row(
        Severity.BLOCKED,
        "namespace {namespace} is in ambient mode",
        "{command}",
        "or set mesh-mode=auto",
    )
    INJECTION_DISABLED = Row(
        Severity.BLOCKED,
        "namespace {namespace} has {labels}",
        "{command}",
        "or set mesh-mode=none",
    )
    EVERY_POD_JOINS = Row(
        Severity.BLOCKED,
        "namespace {namespace} has {labels}",
        "{command}",
        "or unset included-pods, as every pod joins by this label",
    )
    NAMESPACE_NOT_IN_AMBIENT = Row(
        Severity.BLOCKED,
        "namespace {namespace} opts out of ambient",
        "{command}",
        "or set mesh-mode=sidecar; it has {labels}",
    )
    AMBIENT_LACKS = Row(
        Severity.BLOCKED,
        "namespace {namespace} is to be in ambient mode (mesh-mode={mode}), and {lack}: install "
        "Istio with profile=ambient, or set mesh-mode=sidecar",
    )
    AMBIENT_UNKNOWN = Row(
        Severity.BLOCKED,
        "missing permission: list daemonsets",
        _TRUST,
        "or apply the roles; mesh-mode={mode} needs to see whether there is a ztunnel",
        symptom="is-forbidden-user",
    )
    MODEL_IGNORED_BY_ISTIOD = Row(
        Severity.BLOCKED,
        "the discoverySelectors of {istiod} leave this namespace out",
        "kubectl label namespace {namespace} {label}",
    )
    NOT_IN_MESH_YET = Row(Severity.WAITING, "not in the mesh until {event}")
    NAMESPACES_TAKEN = Row(Severity.NOTE, "{count} managed by {owners}")
    SERVICE_IGNORED_BY_ISTIOD = Row(
        Severity.BLOCKED,
        "istiod ignores {service}",
        "kubectl label namespace {namespace} {label}",
        "discoverySelectors leave out the authorization service",
    )
    NAMESPACES_IGNORED_BY_ISTIOD = Row(
        Severity.NOTE, "istiod ignores {count} served namespaces ({names}): label them {label}"
    )

    # Admission.
    ADMISSION_OFF = Row(Severity.NOTE, "admission: not needed")
    ADMISSION_WORKS = Row(Severity.NOTE, "admission: webhook")
    ADMISSION_NOT_LEADING = Row(Severity.WAITING, "admission: waiting for the leader")
    ADMISSION_STARTING = Row(Severity.WAITING, "admission: {problem}")
    ADMISSION_AUTHOR_SILENT = Row(
        Severity.WAITING,
        "admission: {author} does not answer",
        "juju run {application}/leader diagnose",
        "{words}",
    )
    ADMISSION_AUTHOR_REJECTS = Row(
        Severity.BLOCKED,
        "admission: {author} rejects pods",
        "juju run {application}/leader diagnose",
        "{words}",
    )
    ADMISSION_HINDERED = Row(
        Severity.BLOCKED,
        "admission: {problem}",
        "juju run {application}/leader diagnose",
        "{words}",
    )
    CHANGES_FORBIDDEN = Row(
        Severity.BLOCKED,
        "{author} forbids {changes} on pods",
        "juju run {application}/leader diagnose",
    )

    # The workload, and what it says about the model's pods.
    CONTAINER_STARTING = Row(Severity.WAITING, "waiting for the lifecycle container")
    PEBBLE_SILENT = Row(Severity.WAITING, "waiting for Pebble in lifecycle")
    SERVICE_NOT_STARTED = Row(Severity.WAITING, "lifecycle does not start: {problem}")
    SERVICE_NOT_READY = Row(Severity.WAITING, "waiting for lifecycle to watch the cluster")
    SERVICE_SILENT = Row(Severity.WAITING, "{problem}")
    IMAGE_TOO_OLD = Row(
        Severity.BLOCKED,
        "lifecycle-image is too old",
        "juju refresh {application} --resource lifecycle-image=IMAGE",
        "the image of the charm's revision ({contracts})",
    )
    IMAGE_DOES_NOT_FIT = Row(
        Severity.BLOCKED,
        "lifecycle-image does not fit the charm",
        "juju refresh {application}",
        "or add --resource lifecycle-image=IMAGE, the image of the charm's revision ({contracts})",
    )
    DATA_PLANE = Row(Severity.NOTE, "{data_plane}")
    PODS_HANG = Row(Severity.BLOCKED, "{problem}", "{command}")
    PODS_WAIT = Row(Severity.WAITING, "{pods} pods in mesh, {problem}", "{command}", "{more}")
    PODS_BEING_REPLACED = Row(
        Severity.MAINTENANCE, "{pods} pods in mesh, {count} being replaced", "{command}", "{more}"
    )
    PODS_WAIT_FOR_ISTIOD = Row(
        Severity.WAITING, "{pods} pods in mesh, {count} being replaced", "{command}", "{more}"
    )
    PODS_TO_RESTART = Row(
        Severity.BLOCKED, "{pods} pods in mesh", "juju run {application}/leader restart-uninjected"
    )
    PODS_TO_BE_REPLACED = Row(
        Severity.MAINTENANCE, "{pods} pods in mesh, {count} waiting to be replaced"
    )
    PODS_IN_MESH = Row(Severity.NOTE, "{pods} pods in mesh{details}")

    # The Istio that the model joins.
    INJECTOR_ABSENT = Row(
        Severity.WAITING, "waiting for istiod: the cluster has no sidecar injector"
    )
    ISTIOD_ELSEWHERE = Row(
        Severity.WAITING, "waiting for an istiod in {namespace}; there is one in {places}"
    )
    REVISION_ABSENT = Row(
        Severity.BLOCKED, "revision {revision} does not exist; there is {revisions}"
    )
    SEVERAL_ISTIOS = Row(
        Severity.BLOCKED,
        "several Istios",
        "juju config {application} {option}={example}",
        "or choose another of {injectors}",
    )
    INJECTORS_CLASH = Row(
        Severity.BLOCKED,
        "several Istios are asked for the same pods",
        "kubectl delete mutatingwebhookconfiguration {surplus}",
        "or delete another of {injectors}",
    )
    MESH = Row(Severity.NOTE, "{name}")
    ISTIOD_AWAY = Row(Severity.WAITING, "{name} {problem}", "{command}")
    NATIVE_SIDECARS_IMPOSSIBLE = Row(Severity.BLOCKED, "job-sidecars=native, but {obstacle}")
    NO_DEFAULT_REVISION = Row(
        Severity.BLOCKED,
        "no default revision for {count} profile namespaces",
        "istioctl tag set default --revision {revision}{where}",
    )

    # The gateway that serves the model.
    GATEWAY_NEEDS_HOSTS = Row(
        Severity.BLOCKED,
        "gateway-service={service} needs hosts",
        "juju config {application} hosts=NAME",
    )
    GATEWAY_ABSENT = Row(
        Severity.BLOCKED, "Service {service} does not exist", "kubectl -n {namespace} get services"
    )
    GATEWAY_WITHOUT_SELECTOR = Row(
        Severity.BLOCKED, "Service {service} selects no pods; set gateway-service to another"
    )
    GATEWAY_IGNORED_BY_ISTIOD = Row(
        Severity.BLOCKED,
        "istiod ignores gateway-service",
        "kubectl label namespace {namespace} {label}",
        "discoverySelectors leave out the namespace of {service}",
    )
    GATEWAY_SCOPED = Row(
        Severity.BLOCKED,
        "gateway-service={service}: istiod has {setting}, so this gateway does not see the model",
        "juju config {application} gateway-service=",
    )
    GATEWAY_SELECTS_ELSEWHERE = Row(
        Severity.BLOCKED,
        "gateway-service={service}: its selector also selects pods elsewhere: {workloads}",
    )
    GATEWAY_SELECTS_SEVERAL = Row(
        Severity.BLOCKED,
        "gateway-service={service}: its selector selects several workloads: {workloads}",
    )
    GATEWAY_IS_NONE = Row(
        Severity.BLOCKED, "gateway-service={service}: {pod} is not a gateway of Istio"
    )
    GATEWAY_OF_OTHER_ISTIOD = Row(
        Severity.BLOCKED,
        "gateway-service={service}: its istiod is that of {other}, the model's that of {own}",
    )
    GATEWAY_WITHOUT_PORT = Row(Severity.BLOCKED, "Service {service} has no port for HTTP or HTTPS")
    GATEWAY_WITHOUT_HTTPS_PORT = Row(Severity.BLOCKED, "Service {service} has no port for HTTPS")
    GATEWAY_WITHOUT_HTTP_PORT = Row(
        Severity.BLOCKED,
        "gateway {gateway} has an https port only: integrate certificates or set tls-secret",
    )
    GATEWAY_WITHOUT_PODS = Row(
        Severity.WAITING,
        "waiting for pods of Service {service}",
        symptom="connection-refused-at-the-gateway",
    )
    GATEWAY_NOT_READY = Row(Severity.WAITING, "gateway {gateway} is not ready")
    GATEWAY_OF_OTHER_OWNER = Row(
        Severity.BLOCKED,
        "{reference} exists and {belongs}: rename or delete it, or name its gateway in "
        "gateway-service",
    )
    GATEWAY_NAMED_WITH_GATEWAY_API = Row(
        Severity.BLOCKED,
        "gateway-service={service} is refused with routing=gateway-api",
        "juju config {application} gateway-service=",
    )
    GATEWAY_API_LACKS = Row(Severity.BLOCKED, "routing=gateway-api: {problem}")
    GATEWAY_API_FORBIDDEN = Row(
        Severity.BLOCKED,
        "routing=gateway-api lacks a role",
        _TRUST,
        "or apply the role that ends in -httproutes of rbac/roles.yaml",
    )
    GATEWAY_API_CUTS_OFF = Row(
        Severity.BLOCKED,
        "routing=gateway-api would cut off {count} VirtualServices of other teams on {gateway} "
        "({names}): their owners have to move to HTTPRoutes, or set routing=virtualservice",
    )
    GATEWAY_NOT_ACCEPTED_YET = Row(Severity.WAITING, "waiting for istiod to take Gateway {name}")
    GATEWAY_NOT_ACCEPTED = Row(Severity.BLOCKED, "Gateway {name}: istiod says: {words}")
    GATEWAY_NOT_PROGRAMMED = Row(Severity.WAITING, "Gateway {name}: istiod says: {words}")
    GATEWAY_ADDRESS = Row(Severity.NOTE, "Gateway {name} at {address}")
    GATEWAY_METADATA_AWAITED = Row(
        Severity.BLOCKED, "gateway-metadata: {applications} waits for it; set routing=gateway-api"
    )
    ANNOTATIONS_REFUSED = Row(
        Severity.BLOCKED, "gateway-service-annotations: {service}: {problem}"
    )
    HOSTS_IN_PLAIN_HTTP = Row(
        Severity.NOTE,
        "other teams' hosts within {host} are not authenticated in plain HTTP; set "
        "https-redirect=true",
    )

    # Certificates.
    CERTIFICATES_NEED_HOSTS = Row(
        Severity.BLOCKED, "certificates needs hosts", "juju config {application} hosts=NAME"
    )
    TLS_SECRET_ABSENT = Row(Severity.BLOCKED, "tls-secret: there is no Secret {secret}")
    CERTIFICATE_REFUSED = Row(Severity.BLOCKED, "certificates: refused: {reason}")
    CERTIFICATE_AWAITED = Row(Severity.WAITING, "waiting for a certificate")

    # Routes and their authentication.
    REQUEST_INVALID = Row(Severity.BLOCKED, "{request}")
    APPLICATION_SILENT = Row(Severity.WAITING, "waiting for {applications} on {endpoint}")
    OBJECT_INVALID = Row(Severity.BLOCKED, "the API server refuses {reference}: {words}")
    SEVERAL_AUTHENTICATORS = Row(
        Severity.BLOCKED,
        "ingress is closed: keep one of {applications}",
        symptom="403-at-the-gateway",
    )
    TWO_WAYS_TO_AUTHENTICATE = Row(
        Severity.BLOCKED,
        "ingress is closed: {first} and {second} both authenticate requests",
        "{command}",
        "or remove the other one",
        symptom="403-at-the-gateway",
    )
    NO_AUTHENTICATOR = Row(
        Severity.BLOCKED,
        "ingress is closed: integrate ingress-auth or forward-auth, or set "
        "require-authentication=false",
        symptom="403-at-the-gateway",
    )
    AUTHENTICATOR_INVALID = Row(
        Severity.BLOCKED,
        "ingress is closed: {endpoint} of {application}: {problem}",
        symptom="403-at-the-gateway",
    )
    AUTHENTICATOR_AWAITED = Row(
        Severity.WAITING,
        "ingress is closed: waiting for {what}",
        symptom="403-at-the-gateway",
    )
    ROUTES_NOT_SEEN_YET = Row(
        Severity.WAITING, "looking whether gateway {gateway} serves the routes"
    )
    GATEWAY_NOT_SEEN = Row(
        Severity.WAITING, "gateway {gateway} is not seen: the workload does not answer"
    )
    ENVOY_NOT_SEEN = Row(
        Severity.WAITING,
        "Envoy of {gateway} is {why}",
        "kubectl -n {namespace} get pods",
        "{detail}",
    )
    ROUTES_SERVED = Row(Severity.NOTE, "{routes} served by {gateway}{some}")

    # What the gateway's Envoy lacks; the names are those of `integrator_contract.seen.Cause`.
    UPDATE_REFUSED = Row(
        Severity.BLOCKED,
        "Envoy refuses port {port} of {gateway}",
        "kubectl -n {namespace} get envoyfilter",
        "{words}; {others}",
        symptom="connection-refused-at-the-gateway",
    )
    WARMING = Row(
        Severity.BLOCKED,
        "port {port} of {gateway} waits for Secret {secrets}",
        "kubectl -n {namespace} get secret {secrets}",
        "a Gateway names it as credentialName; {others}",
    )
    FILTERS_IGNORED = Row(
        Severity.BLOCKED,
        "istiod sends no EnvoyFilter to {gateway}",
        "kubectl -n {istiod} describe deploy",
        "PILOT_IGNORE_RESOURCES or a managed control plane ignores them; {others}",
        symptom="404-at-the-gateway",
    )
    FILTERS_MISSING = Row(
        Severity.BLOCKED,
        "port {port} of {gateway} lacks this charm's filters",
        "kubectl -n {namespace} get envoyfilter",
        "{others}",
        symptom="404-at-the-gateway",
    )
    HOST_TAKEN = Row(
        Severity.BLOCKED,
        "Gateway {by} has {host} on port {port}",
        "kubectl get gateways.networking.istio.io -A",
        "istiod serves the older one; {others}",
    )
    SERVER_MISSING = Row(
        Severity.BLOCKED,
        "istiod leaves out {protocol} on port {port}",
        "kubectl get gateways.networking.istio.io -A",
        "an older Gateway at {gateway} has the port with another protocol; {others}",
        symptom="connection-refused-at-the-gateway",
    )
    ROUTES_MISSING = Row(
        Severity.BLOCKED,
        "{gateway} has {routes} routes of {host}",
        "kubectl -n {istiod} logs -l app=istiod",
        "for one VirtualService with an error Envoy refuses all routes: look for ACK ERROR; "
        "{others}",
    )
    OTHER_DOMAIN = Row(
        Severity.BLOCKED,
        "istiod uses the DNS domain {domain}",
        "kubectl -n {istiod} describe deploy",
        "this charm's routes name Services in another one; {others}",
    )
    CLUSTER_MISSING = Row(
        Severity.BLOCKED,
        "{gateway} does not see Service {home}/{service}",
        "kubectl -n {home} get service {service} -o yaml",
        "exportTo, defaultServiceExportTo or a Sidecar hides it; {others}",
    )

    # Tenants.
    TENANT_POLICY_OFF = Row(Severity.NOTE, "tenant-policy is off: it needs Kubernetes 1.30")
    TENANT_POLICY_UNKNOWN = Row(
        Severity.BLOCKED,
        "tenant-policy={mode} needs Kubernetes 1.30",
        "juju config {application} tenant-policy=off",
    )
    TENANT_WARNED = Row(Severity.NOTE, "{object} breaks tenant-policy", "{command}")
    TENANT_REJECTED = Row(Severity.BLOCKED, "{object} breaks tenant-policy", "{command}")

    # Security in the mesh.
    WAYPOINT_HIDES_CALLERS = Row(
        Severity.BLOCKED,
        "waypoint {waypoint} hides the callers",
        "juju config {application} authorization=off",
        "authorization={mode} names callers, and in namespace {namespace} the waypoint calls in "
        "their place",
    )
    REQUESTS_NEED_WAYPOINT = Row(
        Severity.NOTE, "requests to {count} of them are ignored (they need a waypoint)"
    )
    AUTHORIZATION_INVALID = Row(Severity.BLOCKED, "authorization: {problem}")
    AUTHORIZATION_WAITS = Row(Severity.WAITING, "authorization: {problem}")
    CALLERS_NAMED = Row(Severity.NOTE, "callers named for {workloads}{rest}")
    MTLS_CUTS_OFF = Row(
        Severity.BLOCKED,
        "mtls=strict {how}",
        "juju run {application}/leader preview-security mtls=strict",
        "{more}",
    )
    MTLS_EXCEPTION_AWAITED = Row(
        Severity.WAITING,
        "{option}: waiting for a Service or workload {name} in the mesh, with a port that is "
        "known",
    )
    MTLS_STRICT = Row(Severity.NOTE, "strict mutual TLS{left}")

    # What a check found.
    FOUND_BROKEN = Row(Severity.BLOCKED, "{finding}", "{command}")

    # Observability.
    LOKI_WITHOUT_URL = Row(
        Severity.BLOCKED, "logging: {units} sends no URL that logs can be pushed to"
    )

    def __call__(self, **about: object) -> Message:
        """Make the message."""
        return Message(self, about)

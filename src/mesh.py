"""The external Istio: which one the model joins, whether it is alive, and what it can do."""

from __future__ import annotations

import dataclasses
import datetime
import logging
import re
from collections.abc import Callable, Iterable
from typing import Any

import httpx2
import ops

import cluster
import config
import errors
import injectors
import meshconfig
import probe

logger = logging.getLogger(__name__)

DEFAULT_STATUS_PORT = 15020

_PROFILES = {
    "app.kubernetes.io/part-of": "kubeflow-profile",
    injectors.INJECTION_LABEL: "enabled",
}
"""Kubeflow labels the namespaces of its users so, whatever revisions there are."""
_NATIVE_DEFAULT = (1, 33)
"""Kubelets from here on run native sidecars without a known fault (stable in 1.33)."""
_NATIVE_POSSIBLE = (1, 29)
"""Kubelets from here on have native sidecars switched on."""
_SIDECAR = cluster.kind("networking.istio.io/v1", "Sidecar")
_SCOPED = "PILOT_SCOPE_GATEWAY_TO_NAMESPACE"
_UNKNOWN = (0, 0)
MESH_CONFIG_DELAY = datetime.timedelta(minutes=2)
"""Until a change of its ConfigMap has reached istiod, which reads a file that kubelets mount."""
_MINOR = re.compile(r"v?(\d+)\.(\d+)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mesh:
    """One Istio control plane, as found in the cluster and as a dry-run pod showed it."""

    namespace: str
    """Where istiod runs; empty when the injector is addressed by URL."""
    revision: str
    """What a namespace or pod names to get it: a revision or tag, `default` for the default."""
    is_default: bool
    """Whether it serves `istio-injection=enabled`."""
    service: str = "istiod"
    """The Service that the injector's webhook configuration points to."""
    url: str = ""
    """The injector's address where there is no Service."""
    version: str = ""
    """As the proxy's image or istiod itself says; empty when neither does."""
    proxy_revision: str = ""
    """The revision that new pods get, which a tag may move; empty while nobody answers."""
    webhook_configuration: str = ""
    """The name of the injector's MutatingWebhookConfiguration."""
    hold_by_default: bool = False
    """Whether the mesh's own configuration already holds applications."""
    status_port: int = DEFAULT_STATUS_PORT
    """Of the proxies, unless a pod says otherwise; 0 is switched off."""
    root_namespace: str = "istio-system"
    alive: bool = False
    """Whether the injector answered the dry-run pod with a sidecar."""
    problem: str = ""
    """Why it is not alive, with the API server's words."""
    probed: bool = False
    """Whether a dry-run pod showed what it does; without, what follows is assumed."""
    native_sidecars: bool = False
    """Whether pods that run to completion get native sidecars: probe, nodes and option agree."""
    native_by_default: bool = False
    """Whether pods that ask for nothing get native sidecars."""
    native_warning: str = ""
    """What the operator should know about `native_sidecars`."""
    hold_honoured: bool = True
    """Whether a classic sidecar that is asked to hold the application does."""
    overwritten: tuple[str, ...] = ()
    """Annotations of pods that istiod's own `injectedAnnotations` replace."""
    cni: bool = False
    """Whether Istio's CNI plugin redirects the traffic of pods, from their first moment."""
    captures_outbound: bool = True
    """Whether calls of pods go through their proxies, which `injectedAnnotations` may end."""
    captures_names: bool = False
    """Whether look-ups of names go through them too (`ISTIO_META_DNS_CAPTURE`)."""
    excluded_outbound_ports: tuple[int, ...] = ()
    """That every proxy leaves alone, unless its pod names ports of its own: then only those."""
    registry_only: bool = False
    """Whether proxies let nothing out that Istio does not know."""
    gateways_scoped: bool = False
    """Whether a Gateway only binds to gateway workloads of its own namespace."""
    extension_providers: tuple[cluster.Object, ...] = ()
    """What AuthorizationPolicies may name, as the mesh configuration has it."""

    @property
    def cuts_off_controller(self) -> bool:
        """Whether charms would not reach Juju's controller through what their pods get.

        The controller may be anywhere, so a proxy that lets nothing unknown out is in the way.
        """
        return self.captures_outbound and (self.registry_only or self._leads_nowhere)

    @property
    def cuts_off_names(self) -> bool:
        """Whether the first look-up of a charm's pod gets no answer."""
        return self.captures_names and self._leads_nowhere

    @property
    def _leads_nowhere(self) -> bool:
        """Whether init containers call a proxy that starts after them, through the CNI plugin."""
        return self.cni and not self.native_by_default

    @property
    def namespace_labels(self) -> dict[str, str]:
        """The label that makes a namespace a member."""
        if self.is_default:
            return {injectors.INJECTION_LABEL: "enabled"}
        return {injectors.REVISION_LABEL: self.revision}

    @property
    def pod_labels(self) -> dict[str, str]:
        """The label that makes one pod a member in a namespace that is not."""
        if self.is_default:
            return {injectors.INJECT_LABEL: "true"}
        return {injectors.REVISION_LABEL: self.revision}

    @property
    def sidecars(self) -> str:
        """What kind pods that run to completion get, as status messages say it."""
        return (
            f"{'native' if self.native_sidecars or self.native_by_default else 'classic'} sidecars"
        )

    @property
    def name(self) -> str:
        """How status messages call it."""
        where = f"{self.namespace}/{self.service}" if self.namespace else self.url
        revision = "" if self.is_default else f" {self.revision}"
        version = f" {'.'.join(self.version.split('.')[:2])}" if self.version else ""
        return f"{where}{revision}{version}"


def decide_native(mode: str, *, shown: bool, kubelets: Iterable[str]) -> tuple[bool, str]:
    """Decide whether pods that run to completion get native sidecars.

    Args:
        mode: The option `sidecar-mode`.
        shown: Whether a dry-run pod that asked for one got one.
        kubelets: The version of every node's kubelet.

    Returns:
        The decision, and what the operator should know about it.
    """
    oldest = min([_minor(version) for version in kubelets] or [_UNKNOWN])
    version = ".".join(map(str, oldest))
    if mode == "classic":
        return False, ""
    if mode == "auto":
        return shown and oldest >= _NATIVE_DEFAULT, ""
    if not shown:
        return False, "sidecar-mode=native, but istiod injects classic sidecars"
    if oldest < _NATIVE_POSSIBLE:
        return False, f"sidecar-mode=native, but a node's kubelet {version} has none"
    if oldest < _NATIVE_DEFAULT:
        return True, f"a node's kubelet is {version}: native sidecars are beta there"
    return True, ""


def _minor(version: str) -> tuple[int, ...]:
    match = _MINOR.match(version)
    return (int(match[1]), int(match[2])) if match else _UNKNOWN


class Discovery:
    """Finds the Istio to join and has it answer.

    Args:
        api: The API server.
        options: What the operator asks for.
        model: The namespace that joins.
        application: For the commands that statuses name.
        hint: Where a charmed Istio says that istiod runs; the options come first.
        ask_version: How istiod is asked for its version, by namespace and Service.
        now: The clock.
    """

    def __init__(
        self,
        api: cluster.Cluster,
        options: config.Config,
        *,
        model: str,
        application: str,
        hint: str = "",
        ask_version: Callable[[str, str], str] | None = None,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self._cluster = api
        self._config = options
        self._model = model
        self._application = application
        self._namespace = options.istiod_namespace or hint
        self._ask_version = ask_version or istiod_version
        self._now = now
        self._missing: injectors.NoInjector | injectors.Refusal | None = None
        self._unserved: list[cluster.Object] = []
        self.mesh: Mesh | None = None

    def reconcile(self) -> None:
        """Look again; nothing is written."""
        found = injectors.find(self._cluster.list(cluster.MUTATING_WEBHOOK))
        chosen = injectors.choose(
            found,
            namespace=self._namespace,
            revision=self._config.revision,
            application=self._application,
        )
        if isinstance(chosen, injectors.Injector):
            self.mesh = self._examine(chosen)
            if not any(one.is_default for one in found):
                self._unserved = self._cluster.list(cluster.NAMESPACE, labels=_PROFILES)
        else:
            self._missing = chosen

    def remove(self) -> None:
        """Nothing is ours to remove."""

    def statuses(self) -> Iterable[ops.StatusBase]:
        """Say which Istio it is, or what is missing."""
        if isinstance(self._missing, injectors.Refusal):
            yield ops.BlockedStatus(self._missing.message)
        elif self._missing is not None:
            yield ops.WaitingStatus(self._missing.message)
        elif self.mesh is not None:
            yield ops.ActiveStatus(self.mesh.name)
            if not self.mesh.alive:
                yield ops.WaitingStatus(f"{self.mesh.name} {self.mesh.problem}")
            elif self.mesh.native_warning and not self.mesh.native_sidecars:
                yield ops.BlockedStatus(self.mesh.native_warning)
            if self._unserved:
                yield ops.BlockedStatus(
                    f"{len(self._unserved)} profile namespaces ask for the default revision and "
                    f"there is none; run: istioctl tag set default --revision {self.mesh.revision}"
                )
            if self._config.hold_application and not self.mesh.hold_honoured:
                replaced = ", ".join(self.mesh.overwritten) or "nothing"
                logger.warning(
                    "%s does not honour the hold of applications; its injectedAnnotations "
                    "replace %s",
                    self.mesh.name,
                    replaced,
                )

    def _examine(self, injector: injectors.Injector) -> Mesh:
        found = self._config_map(injector, meshconfig.MESH)
        settings = meshconfig.settings(found)
        # istiod refuses all that a policy guards whose provider it does not know yet.
        is_read = self._now() - _changed(found) >= MESH_CONFIG_DELAY
        providers = cluster.items(settings, "extensionProviders") if is_read else []
        defaults = cluster.at(settings, "defaultConfig")
        root_namespace = str(settings.get("rootNamespace") or injector.namespace)
        mesh = Mesh(
            namespace=injector.namespace,
            revision=injector.revision,
            is_default=injector.is_default and self._config.revision in ("", "default"),
            service=injector.service,
            url=injector.url,
            webhook_configuration=injector.configuration,
            hold_by_default=defaults.get("holdApplicationUntilProxyStarts") is True,
            status_port=int(defaults.get("statusPort") or DEFAULT_STATUS_PORT),
            root_namespace=root_namespace,
            excluded_outbound_ports=meshconfig.excluded_ports(
                self._config_map(injector, meshconfig.INJECTOR)
            ),
            registry_only=meshconfig.is_registry_only(
                settings, self._sidecars(root_namespace), model=self._model
            ),
            gateways_scoped=meshconfig.variable(self._deployment(injector), _SCOPED) == "true",
            extension_providers=tuple(providers),
        )
        return self._probe(mesh)

    def _sidecars(self, root_namespace: str) -> list[cluster.Object]:
        try:
            return [
                each
                for namespace in sorted({self._model, root_namespace} - {""})
                for each in self._cluster.list(_SIDECAR, namespace=namespace)
            ]
        except errors.ForbiddenError as error:
            logger.warning("Whether Sidecars keep charms from their controller: %s", error)
            return []

    def _config_map(self, injector: injectors.Injector, name: str) -> cluster.Object | None:
        if not injector.namespace:
            return None
        if injector.istiod_revision != "default":
            name = f"{name}-{injector.istiod_revision}"
        return self._cluster.get(cluster.CONFIG_MAP, name, injector.namespace)

    def _deployment(self, injector: injectors.Injector) -> cluster.Object | None:
        if not injector.namespace:
            return None
        # Istio's charts give the Service and the Deployment the same name.
        return self._cluster.get(cluster.DEPLOYMENT, injector.service, injector.namespace)

    def _probe(self, mesh: Mesh) -> Mesh:
        namespace, labels = self._place(mesh)
        try:
            native = probe.ask(self._cluster, namespace, labels, native=True)
        except errors.ForbiddenError:
            if namespace == self._model:
                raise
            # Without trust no other namespace can be asked; once the model has the label, it can.
            return dataclasses.replace(mesh, alive=self._is_served(mesh))
        # An istiod that is away for a moment says nothing about what it will inject: what new
        # pods ask for stays as it is.
        shown = native.native or not native.injected
        decision, warning = decide_native(
            self._config.sidecar_mode, shown=shown, kubelets=self._kubelets()
        )
        if not native.injected:
            refused = "" if labels else ", new pods are refused"
            problem = f"does not inject{refused}: {native.problem}"
            return dataclasses.replace(mesh, problem=problem, native_sidecars=decision)
        classic = probe.ask(self._cluster, namespace, labels, native=False)
        default = probe.ask(self._cluster, namespace, labels, native=None)
        return dataclasses.replace(
            mesh,
            alive=True,
            probed=True,
            native_sidecars=decision,
            native_by_default=default.native,
            native_warning=warning,
            hold_honoured=classic.held,
            overwritten=classic.overwritten,
            cni=default.cni,
            captures_outbound=default.captures_outbound,
            captures_names=default.captures_names,
            proxy_revision=default.revision,
            version=native.version or self._ask_version(mesh.namespace, mesh.service),
        )

    def _place(self, mesh: Mesh) -> tuple[str, dict[str, str]]:
        """Where the probe is asked for, and the labels that it needs there."""
        for name in (self._model, mesh.namespace, "default"):
            found = self._cluster.get(cluster.NAMESPACE, name) if name else None
            marks = cluster.at(found, "metadata", "labels")
            mesh_marks = {
                key: marks[key]
                for key in (injectors.INJECTION_LABEL, injectors.REVISION_LABEL)
                if key in marks
            }
            if found and mesh_marks == mesh.namespace_labels:
                return name, {}
            if found and not mesh_marks:
                return name, mesh.pod_labels
        return self._model, mesh.pod_labels

    def _is_served(self, mesh: Mesh) -> bool:
        slices = self._cluster.list(
            cluster.ENDPOINT_SLICE,
            namespace=mesh.namespace,
            labels={"kubernetes.io/service-name": mesh.service},
        )
        endpoints = [one for part in slices for one in cluster.items(part, "endpoints")]
        return any(cluster.at(one, "conditions").get("ready") is True for one in endpoints)

    def _kubelets(self) -> list[str]:
        nodes = self._cluster.list(cluster.NODE)
        return [node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes]


def _changed(obj: cluster.Object | None) -> datetime.datetime:
    """Read when somebody last wrote an object; long ago where it does not say."""
    written: list[Any] = cluster.items(cluster.at(obj, "metadata"), "managedFields")
    times = [entry["time"] for entry in written if "time" in entry]
    latest = max(times, default="1970-01-01T00:00:00Z")
    return datetime.datetime.fromisoformat(latest)


def istiod_version(namespace: str, service: str) -> str:
    """Ask istiod itself; empty when it can't be asked."""
    if not namespace:
        return ""
    try:
        answer = httpx2.get(f"http://{service}.{namespace}.svc:15014/version", timeout=2)
    except httpx2.HTTPError as error:
        logger.debug("istiod's version is not known: %s", error)
        return ""
    match = re.match(r"v?(\d+\.\d+(?:\.\d+)?)", answer.text)
    return match[1] if answer.is_success and match else ""

"""The search for the Istio that the model joins, and what a dry-run pod shows of it."""

from __future__ import annotations

import dataclasses
import functools
import logging
import re
from collections.abc import Callable, Iterable

import httpx2

from integrator_contract import names
from istio_integrator import error_messages
from istio_integrator.config import config
from istio_integrator.istio import injectors, installation, meshconfig, native_sidecars, probe
from istio_integrator.kube import cluster, errors
from istio_integrator.messages import Message, Said

logger = logging.getLogger(__name__)

_PROFILES = {
    names.PART_OF: names.PROFILE,
    names.INJECTION: "enabled",
}
"""Kubeflow labels the namespaces of its users so, whatever revisions there are."""


def istiod_version(namespace: str, service: str) -> str:
    """Ask istiod itself for its version; empty when it can't be asked."""
    if not namespace:
        return ""
    try:
        answer = httpx2.get(f"http://{service}.{namespace}.svc:15014/version", timeout=2)
    except httpx2.HTTPError as error:
        logger.debug("istiod's version is not known: %s", error)
        return ""
    match = re.match(r"v?(\d{1,4}\.\d{1,4}(?:\.\d{1,4})?)", answer.text)
    return match[1] if answer.is_success and match else ""


def _revised(name: str, injector: injectors.Injector) -> str:
    """Name a ConfigMap of an installation as its revision has it."""
    revision = injector.istiod_revision
    return name if revision == "default" else f"{name}-{revision}"


class Discovery:
    """Finds the Istio to join and has it answer.

    Args:
        api: The API server.
        options: What the operator asks for.
        model: The namespace that joins.
        application: For the commands that statuses name.
        pod: The name of this unit's own pod, which the dry-run pods are like.
        hint: Where a charmed Istio says that istiod runs; the options come first.
        ask_version: How istiod is asked for its version, by namespace and Service.
    """

    def __init__(
        self,
        api: cluster.Cluster,
        options: config.Config,
        *,
        model: str,
        application: str,
        pod: str = "",
        hint: str = "",
        ask_version: Callable[[str, str], str] = istiod_version,
    ) -> None:
        self._cluster = api
        self._config = options
        self._model = model
        self._application = application
        self._pod = pod
        self._hint = hint
        self._ask_version = ask_version
        self._missing: Message | None = None
        self._unserved: list[cluster.Object] = []
        self._tried_in = model
        self._present: tuple[injectors.Injector, ...] = ()
        self.mesh: installation.Mesh | None = None

    def reconcile(self) -> None:
        """Look again; nothing is written."""
        present = injectors.find(self._cluster.list(cluster.MUTATING_WEBHOOK))
        self._present = tuple(present)
        chosen = injectors.choose(
            present,
            namespace=self._config.istiod_namespace,
            revision=self._config.revision,
            application=self._application,
            hint=self._hint,
        )
        if isinstance(chosen, injectors.Injector):
            self.mesh = self._examine(chosen)
            if not any(one.is_default for one in present):
                # One that goes asks for nothing any more.
                self._unserved = [
                    each
                    for each in self._cluster.list(cluster.NAMESPACE, labels=_PROFILES)
                    if "deletionTimestamp" not in each["metadata"]
                ]
            if self._config.hold_application and not self.mesh.hold_honoured:
                logger.warning(
                    "%s does not honour the hold of applications; its injectedAnnotations "
                    "replace %s",
                    self.mesh.name,
                    ", ".join(self.mesh.overwritten) or "nothing",
                )
        else:
            self._missing = chosen

    def messages(self) -> Iterable[Message]:
        """Say which Istio it is, or what is missing."""
        if self._missing is not None:
            yield self._missing
        elif self.mesh is not None:
            yield Said.MESH(name=self.mesh.name)
            if self.mesh.refusal is not None:
                yield error_messages.of_refusal(
                    self.mesh.refusal,
                    f"the charm's dry-run Pod {self._tried_in}/{probe.NAME}",
                    f"it is not known whether {self.mesh.name} injects",
                )
            elif not self.mesh.alive:
                yield Said.ISTIOD_AWAY(
                    name=self.mesh.name, problem=self.mesh.problem, command=self.mesh.remedy
                )
            elif self.mesh.native_obstacle is not None:
                yield self.mesh.native_obstacle
            if self._unserved:
                place = self.mesh.installed_in
                where = (
                    f" --istioNamespace {place}"
                    if place not in ("", injectors.USUAL_NAMESPACE)
                    else ""
                )
                yield Said.NO_DEFAULT_REVISION(
                    count=len(self._unserved), revision=self.mesh.revision, where=where
                )

    def _examine(self, injector: injectors.Injector) -> installation.Mesh:
        config_map = self._config_map(injector, _revised(meshconfig.MESH, injector))
        settings = meshconfig.settings(self._shared(injector), config_map)
        defaults = cluster.at(settings, "defaultConfig")
        named = settings.get("rootNamespace")
        root_namespace = named if isinstance(named, str) and named else injector.installed_in
        mesh = installation.Mesh(
            namespace=injector.namespace,
            remote_namespace=injector.remote_namespace,
            has_settings=config_map is not None,
            revision=injector.revision,
            is_default=injector.is_default and self._config.revision in ("", "default"),
            service=injector.service,
            url=injector.url,
            webhook_configuration=injector.configuration,
            injectors=self._present,
            hold_by_default=defaults.get("holdApplicationUntilProxyStarts") is True,
            status_port=meshconfig.port(defaults.get("statusPort"), names.DEFAULT_STATUS_PORT),
            root_namespace=root_namespace,
            trust_domains=meshconfig.trust_domains(settings),
            discovery_selectors=tuple(cluster.parts(settings, "discoverySelectors")),
            registry_only=meshconfig.is_registry_only(
                settings, self._sidecars(root_namespace), model=self._model
            ),
        )
        mesh = self._probe(mesh)
        if mesh.probed:
            return mesh
        values = self._config_map(injector, _revised(meshconfig.INJECTOR, injector))
        ports = meshconfig.excluded_ports(values)
        return dataclasses.replace(
            mesh, has_values=values is not None, excluded_outbound_ports=ports
        )

    def _sidecars(self, root_namespace: str) -> list[cluster.Object]:
        try:
            return [
                each
                for namespace in sorted({self._model, root_namespace} - {""})
                for each in self._cluster.list(cluster.SIDECAR, namespace=namespace)
            ]
        except errors.ForbiddenError as error:
            logger.warning("Whether Sidecars keep charms from their controller: %s", error)
            return []

    def _config_map(self, injector: injectors.Injector, name: str) -> cluster.Object | None:
        if not injector.installed_in:
            return None
        try:
            return self._cluster.get(cluster.CONFIG_MAP, name, injector.installed_in)
        except errors.ForbiddenError as error:
            logger.warning("Settings of the mesh are only known as a dry-run pod shows: %s", error)
            return None

    def _shared(self, injector: injectors.Injector) -> cluster.Object | None:
        """Read what istiod's Deployment has it read below its own mesh configuration."""
        if not injector.namespace:
            return None
        try:
            # Istio's charts name it like its Service.
            found = self._cluster.get(cluster.DEPLOYMENT, injector.service, injector.namespace)
        except errors.ForbiddenError as error:
            logger.warning("Whether istiod has shared settings is not known: %s", error)
            return None
        name = meshconfig.shared(found)
        return self._config_map(injector, name) if name else None

    def _probe(self, mesh: installation.Mesh) -> installation.Mesh:
        namespace, labels = self._place(mesh)
        self._tried_in = namespace
        like = self._cluster.get(cluster.POD, self._pod, self._model) if self._pod else None
        ask = functools.partial(probe.ask, self._cluster, namespace, labels, like=like)
        try:
            default = ask()
        except errors.ForbiddenError:
            if namespace == self._model:
                raise
            # Without trust no other namespace can be asked; once the model has the label, it can.
            alive = bool(mesh.namespace) and self._is_served(mesh)
            if alive:
                return dataclasses.replace(mesh, alive=True)
            return dataclasses.replace(
                mesh,
                problem=f"can't be asked while {self._model} has other labels",
                remedy=f"juju trust {self._application} --scope=cluster",
            )
        # An istiod that is away for a moment says nothing about what it will inject: what new
        # pods ask for stays as it is.
        native = default
        if default.injected:
            native = ask(annotations={**probe.NATIVE, **probe.HOLD})
            if native.refusal is not None:
                native = ask(annotations=probe.NATIVE)
        shown, mode = native.native or not default.injected, self._config.job_sidecars
        kubelets = None
        if native_sidecars.depends_on_kubelets(mode, shown=shown, by_default=default.native):
            kubelets = native_sidecars.kubelets(self._cluster.list(cluster.NODE))
        decision, obstacle = native_sidecars.decide(
            mode, shown=shown, kubelets=kubelets, refused=native.refusal
        )
        if default.refusal is not None:
            return dataclasses.replace(
                mesh,
                problem=f"is not tested: {default.problem}",
                refusal=default.refusal,
                native_sidecars=decision,
            )
        if not default.injected:
            refused = "" if labels else ", new pods are refused"
            problem = f"does not inject{refused}: {default.problem}"
            return dataclasses.replace(mesh, problem=problem, native_sidecars=decision)
        if not mesh.has_settings:
            mesh = dataclasses.replace(
                mesh,
                hold_by_default=default.holds,
                status_port=default.status_port,
            )
        return dataclasses.replace(
            mesh,
            alive=True,
            probed=True,
            native_sidecars=decision,
            native_by_default=default.native,
            native_obstacle=obstacle,
            overwritten=native.overwritten,
            cni=default.cni,
            captures_outbound=default.captures_outbound,
            captures_names=default.captures_names,
            discovery_address=default.discovery_address,
            excluded_outbound_ports=default.excluded_outbound_ports,
            proxy_revision=default.revision,
            version=default.version or self._ask_version(mesh.namespace, mesh.service),
        )

    def _place(self, mesh: installation.Mesh) -> tuple[str, dict[str, str]]:
        """Choose the namespace of the probe, and the labels that it needs there."""
        for name in (self._model, mesh.installed_in, "default"):
            namespace = self._cluster.get(cluster.NAMESPACE, name) if name else None
            if namespace is None:
                continue
            labels = injectors.mesh_labels(cluster.at(namespace, "metadata", "labels"))
            if labels == mesh.namespace_labels or (labels and mesh.has_member(labels)):
                return name, {}
            if not labels:
                return name, mesh.pod_labels
        return self._model, mesh.pod_labels

    def _is_served(self, mesh: installation.Mesh) -> bool:
        slices = self._cluster.list(
            cluster.ENDPOINT_SLICE,
            namespace=mesh.namespace,
            labels={names.SERVICE_NAME: mesh.service},
        )
        endpoints = [one for part in slices for one in cluster.parts(part, "endpoints")]
        return any(cluster.at(one, "conditions").get("ready") is True for one in endpoints)

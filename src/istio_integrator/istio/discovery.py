"""The search for the Istio that the model joins, and what a dry-run pod shows of it."""

from __future__ import annotations

import dataclasses
import functools
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

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

    Dry-run pods are like `pod`, the unit's own. `hint` is the namespace in which a charmed Istio
    says that istiod runs; the options come first.
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
        self._tried_in = model
        self._said: list[Message] = []
        self.mesh: installation.Mesh | None = None

    def reconcile(self) -> None:
        """Look again; nothing is written."""
        present = injectors.find(self._cluster.list(cluster.MUTATING_WEBHOOK))
        chosen = injectors.choose(
            present,
            namespace=self._config.istiod_namespace,
            revision=self._config.revision,
            application=self._application,
            hint=self._hint,
        )
        if not isinstance(chosen, injectors.Injector):
            self._said = [chosen]
            return
        self.mesh = mesh = self._examine(chosen, present)
        self._said = [Said.MESH(name=mesh.name), *self._of_injector(mesh)]
        if not any(one.is_default for one in present):
            self._said += self._of_profiles(mesh)
        if self._config.hold_application and not mesh.hold_honoured:
            logger.warning(
                "%s does not honour the hold of applications; its injectedAnnotations replace %s",
                mesh.name,
                ", ".join(mesh.overwritten) or "nothing",
            )

    def messages(self) -> Sequence[Message]:
        """Say which Istio it is, or what is missing."""
        return self._said

    def _of_injector(self, mesh: installation.Mesh) -> Iterable[Message]:
        if mesh.refusal is not None:
            yield error_messages.of_refusal(
                mesh.refusal,
                f"the charm's dry-run Pod {self._tried_in}/{probe.NAME}",
                f"it is not known whether {mesh.name} injects",
            )
        elif not mesh.alive:
            yield Said.ISTIOD_AWAY(name=mesh.name, problem=mesh.problem, command=mesh.remedy)
        elif mesh.native_obstacle is not None:
            yield mesh.native_obstacle

    def _of_profiles(self, mesh: installation.Mesh) -> Iterable[Message]:
        # A namespace that is being deleted needs no injector any more.
        profiles = [
            each
            for each in self._cluster.list(cluster.NAMESPACE, labels=_PROFILES)
            if "deletionTimestamp" not in each["metadata"]
        ]
        if profiles:
            home = mesh.installed_in
            is_usual = home in ("", injectors.USUAL_NAMESPACE)
            yield Said.NO_DEFAULT_REVISION(
                count=len(profiles),
                revision=mesh.revision,
                where="" if is_usual else f" --istioNamespace {home}",
            )

    def _examine(
        self, injector: injectors.Injector, present: Iterable[injectors.Injector]
    ) -> installation.Mesh:
        own = self._config_map(injector, _revised(meshconfig.MESH, injector))
        # Istio's charts name the Deployment like its Service.
        istiod = self._own(cluster.DEPLOYMENT, injector.service, injector.namespace)
        environment = meshconfig.environment(istiod)
        shared = environment.get(meshconfig.SHARED)
        settings = meshconfig.IstiodSettings.read(
            own,
            self._config_map(injector, shared) if shared else None,
            environment=environment if istiod else None,
            installed_in=injector.installed_in,
        )
        is_registry_only = meshconfig.is_registry_only(
            self._sidecars(settings.root_namespace),
            model=self._model,
            default=settings.registry_only,
        )
        found: dict[str, Any] = {
            **vars(injector),
            **vars(settings),
            "is_default": injector.is_default and self._config.revision in ("", "default"),
            "registry_only": is_registry_only,
        }
        mesh = installation.Mesh(**found, injectors=tuple(present))
        mesh = self._probe(mesh)
        if mesh.probed:
            return mesh
        values = self._config_map(injector, _revised(meshconfig.INJECTOR, injector))
        ports = meshconfig.excluded_ports(values)
        return dataclasses.replace(
            mesh, has_values=values is not None, excluded_outbound_ports=ports
        )

    def _sidecars(self, root_namespace: str) -> list[cluster.Object]:
        return [
            each
            for namespace in sorted({self._model, root_namespace} - {""})
            for each in self._cluster.list_if_allowed(cluster.SIDECAR, namespace)
        ]

    def _config_map(self, injector: injectors.Injector, name: str) -> cluster.Object | None:
        return self._own(cluster.CONFIG_MAP, name, injector.installed_in)

    def _own(self, kind: cluster.Kind, name: str, namespace: str) -> cluster.Object | None:
        """Read an object of the installation; None where it is not there or may not be read."""
        return self._cluster.get_if_allowed(kind, name, namespace) if namespace else None

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
            if mesh.namespace and self._is_served(mesh):
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
        decision, obstacle = native_sidecars.decide(
            self._config.job_sidecars,
            shown=native.native or not default.injected,
            by_default=default.native,
            nodes=lambda: self._cluster.list(cluster.NODE),
            refused=native.refusal,
        )
        mesh = dataclasses.replace(mesh, native_sidecars=decision)
        if default.refusal is not None:
            problem = f"is not tested: {default.problem}"
            return dataclasses.replace(mesh, problem=problem, refusal=default.refusal)
        if not default.injected:
            refused = "" if labels else ", new pods are refused"
            problem = f"does not inject{refused}: {default.problem}"
            return dataclasses.replace(mesh, problem=problem)
        if not mesh.has_settings:
            mesh = dataclasses.replace(
                mesh, hold_by_default=default.holds, status_port=default.status_port
            )
        return dataclasses.replace(
            mesh,
            alive=True,
            probed=True,
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

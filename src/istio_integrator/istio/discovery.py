"""The search for the Istio that the model joins, and what a dry-run pod shows of it."""

from __future__ import annotations

import dataclasses
import functools
import logging
import re
from collections.abc import Iterable, Sequence
from typing import Any

from integrator_contract import names
from istio_integrator import error_messages
from istio_integrator.config import config
from istio_integrator.istio import injectors, installation, meshconfig, probe
from istio_integrator.kube import cluster, errors
from istio_integrator.messages import Message, Said

logger = logging.getLogger(__name__)

_PROFILES = {names.PART_OF: names.PROFILE, names.INJECTION: "enabled"}
"""Kubeflow labels the namespaces of its users so, whatever revisions there are."""
_NATIVE_DEFAULT = (1, 33)
"""Kubelets from here on run native sidecars without a known fault (stable in 1.33)."""
_NATIVE_POSSIBLE = (1, 29)
"""Kubelets from here on have native sidecars switched on."""
_UNKNOWN: tuple[int, int] = (0, 0)
_MINOR = re.compile(r"v?(\d{1,4})\.(\d{1,4})")


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
    ) -> None:
        self._cluster = api
        self._config = options
        self._model = model
        self._application = application
        self._pod = pod
        self._hint = hint
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
        self.mesh = mesh = self._probe(self._examine(chosen, present))
        self._said = [Said.MESH(name=mesh.name), *self._of_injector(mesh)]
        if not any(one.is_default for one in present):
            self._said += self._of_profiles(mesh)
        if self._config.hold_application and names.PROXY_CONFIG in mesh.overwritten:
            logger.warning(
                "%s does not honour the hold of applications; its injectedAnnotations replace %s",
                mesh.name,
                ", ".join(mesh.overwritten),
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
        def read(kind: cluster.Kind, name: str, namespace: str) -> cluster.Object | None:
            return self._cluster.get_if_allowed(kind, name, namespace) if namespace else None

        home, revision = injector.installed_in, injector.istiod_revision
        # Istio's charts name the Deployment like its Service.
        istiod = read(cluster.DEPLOYMENT, injector.service, injector.namespace)
        environment = meshconfig.environment(istiod)
        shared = environment.get(meshconfig.SHARED)
        suffix = "" if revision == "default" else f"-{revision}"
        settings = meshconfig.IstiodSettings.read(
            read(cluster.CONFIG_MAP, meshconfig.MESH + suffix, home),
            read(cluster.CONFIG_MAP, shared, home) if shared else None,
            environment=environment if istiod else None,
            installed_in=home,
        )
        sidecars = [
            each
            for namespace in sorted({self._model, settings.root_namespace} - {""})
            for each in self._cluster.list_if_allowed(cluster.SIDECAR, namespace)
        ]
        found: dict[str, Any] = {
            **vars(injector),
            **vars(settings),
            "is_default": injector.is_default and self._config.revision in ("", "default"),
            "registry_only": meshconfig.is_registry_only(
                sidecars, model=self._model, default=settings.registry_only
            ),
        }
        return installation.Mesh(**found, injectors=tuple(present))

    def _probe(self, mesh: installation.Mesh) -> installation.Mesh:
        """Add what a dry-run pod shows."""
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
        if default.probed:
            native = ask(annotations={**probe.NATIVE, **probe.HOLD})
            if native.refusal is not None:
                native = ask(annotations=probe.NATIVE)
        decision, obstacle = self._decide_native(default, native)
        problem = default.problem
        if default.refusal is not None:
            problem = f"is not tested: {problem}"
        elif not default.probed:
            refused = "" if labels else ", new pods are refused"
            problem = f"does not inject{refused}: {problem}"
        shown = dataclasses.replace(default, problem=problem, overwritten=native.overwritten)
        if mesh.has_settings:
            of_mesh = {"hold_by_default": mesh.hold_by_default, "status_port": mesh.status_port}
            shown = dataclasses.replace(shown, **of_mesh)
        return dataclasses.replace(
            mesh,
            **vars(shown),
            alive=default.probed,
            native_sidecars=decision,
            native_obstacle=obstacle if default.probed else None,
        )

    def _decide_native(
        self, default: probe.ProbedProxy, native: probe.ProbedProxy
    ) -> tuple[bool, Message | None]:
        """Decide whether pods that run to completion get native sidecars.

        The message says what keeps the option `job-sidecars` from being followed.
        """
        mode = self._config.job_sidecars
        is_shown = native.native_proxy or not default.probed
        if mode == "classic" or (mode == "auto" and not is_shown):
            return False, None
        if mode == "auto" and default.native_proxy:
            return True, None
        oldest = _oldest_kubelet(self._cluster.list(cluster.NODE)) if is_shown else _UNKNOWN
        if mode == "auto":
            return oldest >= _NATIVE_DEFAULT, None
        if not is_shown:
            obstacle = "istiod injects classic sidecars"
            if native.refusal is not None:
                obstacle = f"{native.refusal.author} refuses pods that ask for one"
        elif oldest == _UNKNOWN:
            obstacle = "not every node tells its kubelet's version"
        elif oldest < _NATIVE_POSSIBLE:
            obstacle = f"a node's kubelet {'.'.join(map(str, oldest))} has none"
        else:
            return True, None
        return False, Said.NATIVE_SIDECARS_IMPOSSIBLE(obstacle=obstacle)

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


def _oldest_kubelet(nodes: Iterable[cluster.Object]) -> tuple[int, int]:
    """Return the oldest minor version of the nodes' kubelets; 0.0 where one can't be read."""

    def read(node: cluster.Object) -> list[tuple[int, int]]:
        # A virtual node that has no kubelet has no say.
        match = _MINOR.match(str(node["status"]["nodeInfo"]["kubeletVersion"]))
        return [(int(match[1]), int(match[2])) if match else _UNKNOWN]

    return min(cluster.read_each(nodes, read), default=_UNKNOWN)

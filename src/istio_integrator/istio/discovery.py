"""The search for the Istio that the model joins, with the results of a dry-run pod."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Sequence

from integrator_contract import dry_run, names
from istio_integrator import error_messages
from istio_integrator.config import config
from istio_integrator.istio import injectors, installation, meshconfig, probe
from istio_integrator.kube import cluster, errors
from istio_integrator.messages import Message, Template

_PROFILES = {names.PART_OF: names.PROFILE, names.INJECTION: "enabled"}
"""Labels of Kubeflow's profile namespaces, which do not depend on Istio's revisions."""
_NATIVE_DEFAULT = (1, 33)
"""From this version kubelets run native sidecars without a known fault (stable in 1.33)."""
_NATIVE_POSSIBLE = (1, 29)
"""From this version kubelets have native sidecars enabled by default."""
_UNKNOWN: tuple[int, int] = (0, 0)
_MINOR = re.compile(r"v?(\d{1,4})\.(\d{1,4})")


@dataclasses.dataclass
class Discovery:
    """Finds the Istio to join and tests its injector."""

    api: cluster.Cluster
    options: config.Config
    """Override the hint."""
    model: str
    application: str
    pod: str = ""
    """The unit's own pod, the pattern of dry-run pods."""
    hint: str = ""
    """The namespace of istiod, from a relation to a charmed Istio."""
    mesh: installation.Mesh | None = None
    messages: Sequence[Message] = ()
    """The name and problems of the Istio, or the reason why none was chosen."""

    def reconcile(self) -> None:
        """Search again; nothing is written."""
        present = injectors.list_injectors(self.api.list(cluster.MUTATING_WEBHOOK))
        chosen = injectors.choose_injector(
            present, self.options, application=self.application, hint=self.hint
        )
        if not isinstance(chosen, injectors.Injector):
            self.messages = [chosen]
            return
        is_default = chosen.is_default and self.options.revision in ("", "default")
        examined = installation.Mesh(
            injector=dataclasses.replace(chosen, is_default=is_default),
            settings=meshconfig.read(self.api, chosen, model=self.model),
            injectors=tuple(present),
        )
        namespace, labels = self._choose_probe_namespace(examined)
        self.mesh = mesh = self._probe_injector(examined, namespace, labels)
        self.messages = [*self._report_mesh(mesh, namespace)]

    def _report_mesh(self, mesh: installation.Mesh, namespace: str) -> Iterable[Message]:
        yield Template.MESH(name=mesh.name)
        if mesh.proxy.refusal is not None:
            yield error_messages.explain_refusal(
                mesh.proxy.refusal,
                f"the charm's dry-run Pod {namespace}/{dry_run.NAME}",
                f"it is not known whether {mesh.name} injects",
            )
        elif not mesh.alive:
            yield Template.ISTIOD_AWAY(name=mesh.name, problem=mesh.problem, command=mesh.remedy)
        elif mesh.native_obstacle is not None:
            yield mesh.native_obstacle
        if any(one.is_default for one in mesh.injectors):
            return
        profiles = self.api.list(cluster.NAMESPACE, labels=_PROFILES)
        # A namespace that is being deleted needs no injector any more.
        if count := sum("deletionTimestamp" not in each["metadata"] for each in profiles):
            home = mesh.injector.installed_in
            is_usual = home in ("", injectors.USUAL_NAMESPACE)
            yield Template.NO_DEFAULT_REVISION(
                count=count,
                revision=mesh.injector.revision,
                where="" if is_usual else f" --istioNamespace {home}",
            )

    def _probe_injector(
        self, mesh: installation.Mesh, namespace: str, labels: dict[str, str]
    ) -> installation.Mesh:
        """Add the results of a dry-run pod."""
        like = self.api.get(cluster.POD, self.pod, self.model) if self.pod else None
        ask = functools.partial(probe.probe_injector, self.api, namespace, labels, like=like)
        try:
            default = ask()
        except errors.ForbiddenError:
            if namespace == self.model:
                raise
            # Without trust the charm can create pods only in the model. The probe runs there once
            # the model has the label.
            if mesh.injector.namespace and self._has_ready_endpoint(mesh):
                return dataclasses.replace(mesh, alive=True)
            return dataclasses.replace(
                mesh,
                problem=f"can't be asked while {self.model} has other labels",
                remedy=f"juju trust {self.application} --scope=cluster",
            )
        # While istiod does not answer, its kind of sidecars is not known, so the annotations of
        # new pods stay as they are.
        native = ask(annotations=probe.NATIVE) if default.probed else default
        decision, obstacle = self._decide_native(default, native)
        problem = default.problem
        if default.refusal is None and not default.probed:
            refused = "" if labels or default.is_unchanged else ", new pods are refused"
            problem = f"does not inject{refused}: {problem}"
        return dataclasses.replace(
            mesh,
            proxy=default,
            problem=problem,
            alive=default.probed,
            native_sidecars=decision,
            native_refused=native.refusal is not None,
            native_obstacle=obstacle if default.probed else None,
        )

    def _decide_native(
        self, default: probe.ProbedProxy, native: probe.ProbedProxy
    ) -> tuple[bool, Message | None]:
        """Decide whether Jobs get native sidecars, and why the option cannot be met."""
        mode = self.options.job_sidecars
        is_shown = native.native_proxy or not default.probed
        if mode == "auto" and native.refusal is not None:
            # Admission leaves out the annotation that a policy rejects, and names the policy.
            is_shown = True
        if mode == "classic" or (mode == "auto" and not is_shown):
            return False, None
        if mode == "auto" and default.native_proxy:
            return True, None
        oldest = _find_oldest_kubelet(self.api.list(cluster.NODE)) if is_shown else _UNKNOWN
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
        return False, Template.NATIVE_SIDECARS_IMPOSSIBLE(obstacle=obstacle)

    def _choose_probe_namespace(self, mesh: installation.Mesh) -> tuple[str, dict[str, str]]:
        """Choose the namespace of the dry-run pod, and the labels that it needs there."""
        for name in (self.model, mesh.injector.installed_in, "default"):
            namespace = self.api.get(cluster.NAMESPACE, name) if name else None
            if namespace is None:
                continue
            labels = injectors.pick_mesh_labels(cluster.at(namespace, "metadata", "labels"))
            if labels == mesh.namespace_labels or (labels and mesh.has_member(labels)):
                return name, {}
            if not labels:
                return name, mesh.pod_labels
        return self.model, mesh.pod_labels

    def _has_ready_endpoint(self, mesh: installation.Mesh) -> bool:
        labels = {names.SERVICE_NAME: mesh.injector.service}
        slices = self.api.list(cluster.ENDPOINT_SLICE, mesh.injector.namespace, labels)
        endpoints = [one for part in slices for one in cluster.parts(part, "endpoints")]
        return any(cluster.at(one, "conditions").get("ready") is True for one in endpoints)


def _find_oldest_kubelet(nodes: Iterable[cluster.Object]) -> tuple[int, int]:
    """Return the oldest minor version of the nodes' kubelets; 0.0 if one can't be parsed."""

    def read(node: cluster.Object) -> list[tuple[int, int]]:
        # A virtual node without a kubelet is ignored.
        match = _MINOR.match(str(node["status"]["nodeInfo"]["kubeletVersion"]))
        return [(int(match[1]), int(match[2])) if match else _UNKNOWN]

    return min(cluster.read_each(nodes, read), default=_UNKNOWN)

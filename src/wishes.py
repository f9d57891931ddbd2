"""What new pods get: what the operator asks for, and what the mesh can do."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING, Any

import cluster
import component
import injectors
import podrules

if TYPE_CHECKING:
    import mesh

SEEN_ANNOTATION = "istio-integrator.charmhub.io/seen"
"""On what is applied: what it takes from the mesh, to be kept while the mesh says nothing."""

_DNS = 53
_CHARMS = "app.kubernetes.io/name"
"""Juju labels the pods of its applications so; all of them call the controller."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seen:
    """What new pods get that depends on the mesh."""

    native: bool = False
    inject_label: tuple[str, str] = (injectors.INJECT_LABEL, "true")
    istiod_namespace: str = ""
    controller_ports: tuple[int, ...] = ()
    """That charms need to reach Juju's controller, as far as the mesh would keep them from it."""
    mesh_ports: tuple[int, ...] = ()
    """That the mesh excludes everywhere, but for pods that name ports: they name these too."""
    held: bool = False
    """Whether the mesh holds applications by itself, so that no pod needs to ask for it."""

    @classmethod
    def of(cls, scope: component.Scope, before: Seen | None) -> Seen:
        """Keep what was seen last as far as the mesh can't be asked: it may be back soon.

        Args:
            scope: The mesh as it is now.
            before: What was seen last, None if nothing.
        """
        mesh = scope.mesh
        seen = before or cls()
        if mesh is not None:
            is_known = mesh.probed or before is None
            seen = cls(
                native=mesh.native_sidecars if is_known else seen.native,
                inject_label=next(iter(mesh.pod_labels.items())),
                istiod_namespace=mesh.namespace,
                controller_ports=seen.controller_ports,
                mesh_ports=mesh.excluded_outbound_ports,
                held=mesh.hold_by_default,
            )
            if is_known:
                seen = dataclasses.replace(seen, controller_ports=_cut_off(scope, mesh))
        if scope.config.sidecar_mode == "classic":
            return dataclasses.replace(seen, native=False)
        return seen

    @classmethod
    def read(cls, obj: cluster.Object | None) -> Seen | None:
        """Read what an applied object says; None if it says nothing that can be understood."""
        text = cluster.at(obj, "metadata", "annotations").get(SEEN_ANNOTATION)
        try:
            match json.loads(text or "null"):
                case {
                    "native": bool(native),
                    "inject-label": [str(key), str(value)],
                    "istiod-namespace": str(namespace),
                    **rest,
                }:
                    return cls(
                        native=native,
                        inject_label=(key, value),
                        istiod_namespace=namespace,
                        controller_ports=tuple(map(int, rest.get("controller-ports", ()))),
                        mesh_ports=tuple(map(int, rest.get("mesh-ports", ()))),
                        held=rest.get("held") is True,
                    )
                case _:
                    return None
        except (TypeError, ValueError):
            return None

    def text(self) -> str:
        """Write it for `read`."""
        values = {
            "native": self.native,
            "inject-label": self.inject_label,
            "istiod-namespace": self.istiod_namespace,
            "controller-ports": self.controller_ports,
            "mesh-ports": self.mesh_ports,
            "held": self.held,
        }
        return json.dumps(values, sort_keys=True)


def _cut_off(scope: component.Scope, found: mesh.Mesh) -> tuple[int, ...]:
    """Return the ports that charms need and that the mesh cuts off."""
    ports = scope.controller.ports if found.cuts_off_controller else ()
    if scope.controller.is_named and found.cuts_off_names:
        ports = (*ports, _DNS)
    return tuple(port for port in ports if port not in found.excluded_outbound_ports)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wishes:
    """What new pods get."""

    model: str
    application: str
    membership: str
    lifecycle_in_model: bool
    """Whether pods of the model get more than their place in or outside of the mesh."""
    included_pods: str
    excluded_pods: str
    hold_application: bool
    seen: Seen
    rules: podrules.PodRules

    @classmethod
    def of(cls, scope: component.Scope, seen: Seen, *, lifecycle_in_model: bool) -> Wishes:
        """Gather them from options and mesh."""
        options = scope.config
        rules = options.pod_rules
        ports = rules.excluded_outbound_ports
        if seen.controller_ports:
            ports = (*ports, podrules.Ports(selector=_CHARMS, ports=seen.controller_ports))
        rules = dataclasses.replace(
            rules, excluded_outbound_ports=tuple(rule.beside(seen.mesh_ports) for rule in ports)
        )
        return cls(
            model=scope.model,
            application=scope.application,
            membership=options.mesh_membership,
            lifecycle_in_model=lifecycle_in_model,
            included_pods=options.included_pods if options.mesh_membership == "selected" else "",
            excluded_pods=options.excluded_pods,
            hold_application=options.hold_application and not seen.held,
            seen=seen,
            rules=rules,
        )

    def settings(self) -> dict[str, Any]:
        """Write them as the workload reads them; `revision` names all the others."""
        rules = self.rules
        values = {
            "model": self.model,
            "application": self.application,
            "membership": self.membership,
            "lifecycle-in-model": self.lifecycle_in_model,
            "included-pods": self.included_pods,
            "excluded-pods": self.excluded_pods,
            "inject-label": dict([self.seen.inject_label]),
            "hold-application": self.hold_application,
            "native": self.seen.native,
            "pod-labels": [rule.as_setting() for rule in rules.labels],
            "pod-annotations": [rule.as_setting() for rule in rules.annotations],
            "excluded-outbound-ports": [
                rule.as_setting() for rule in rules.excluded_outbound_ports
            ],
            "image-registries": [rule.as_setting() for rule in rules.image_registries],
        }
        text = json.dumps(values, sort_keys=True)
        return {**values, "revision": hashlib.sha256(text.encode()).hexdigest()[:16]}

    @property
    def changes_lifecycle(self) -> bool:
        """Whether anything happens to pods outside of the model."""
        return self.hold_application or self.seen.native or self.rules != podrules.PodRules()

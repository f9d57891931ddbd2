"""Read which Istio mesh a model belongs to, and the gateway that it is reached by.

A charm that needs to know istiod's namespace, the revision or the gateway adds to its metadata

    requires:
      mesh-info:
        interface: istio_mesh_info
        limit: 1
        optional: true

and asks whenever it needs the facts:

    from charms.istio_integrator.v0.mesh_info import MeshInfoRequirer

    class MyCharm(ops.CharmBase):
        def __init__(self, framework: ops.Framework):
            super().__init__(framework)
            self.mesh_info = MeshInfoRequirer(self)
            framework.observe(self.mesh_info.on.changed, self._on_mesh_changed)

        def _on_mesh_changed(self, _: ops.EventBase) -> None:
            info = self.mesh_info.get()
            if info is None:
                ...  # not related, or istio-integrator has not found an Istio yet

The facts are in the application data bag of istio-integrator, one text for each field of
`MeshInfo`. An empty text is a fact that is not known; fields that this version of the library does
not know are ignored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import ops

LIBID = "5b0c4c2f6d7e4b6f9a53a4d0b1f7c2e8"
LIBAPI = 0
LIBPATCH = 1

DEFAULT_RELATION_NAME = "mesh-info"


@dataclasses.dataclass(frozen=True)
class MeshInfo:
    """One mesh, as istio-integrator found it."""

    root_namespace: str
    """Where mesh-wide configuration lives."""
    istiod_namespace: str
    """Where istiod runs; empty when it is outside of the cluster."""
    revision: str
    """What a namespace or pod names to join; `default` for the default one."""
    version: str = ""
    """Istio's version, such as 1.31.1."""
    gateway_name: str = ""
    """The Gateway that routes of this model are bound to; empty while there is none."""
    gateway_namespace: str = ""
    """Where that Gateway is."""
    gateway_workload_namespace: str = ""
    """Where the pods of the gateway are: EnvoyFilters and TLS Secrets for it belong there."""

    @classmethod
    def read(cls, bag: Mapping[str, str]) -> MeshInfo | None:
        """Read a data bag; None while it does not say which mesh."""
        known = {field.name for field in dataclasses.fields(cls)}
        values = {key: value for key, value in bag.items() if key in known}
        if not values.get("root_namespace") or "revision" not in values:
            return None
        return cls(**{"istiod_namespace": "", **values})

    def write(self) -> dict[str, str]:
        """Write a data bag."""
        return dataclasses.asdict(self)


class MeshInfoChangedEvent(ops.EventBase):
    """The facts have come, changed or gone."""


class MeshInfoEvents(ops.ObjectEvents):
    """Events of `MeshInfoRequirer`."""

    changed = ops.EventSource(MeshInfoChangedEvent)


class MeshInfoRequirer(ops.Object):
    """The side of a charm that wants to know.

    Args:
        charm: The charm.
        relation_name: The endpoint, as in its metadata.
    """

    on = MeshInfoEvents()  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]

    def __init__(
        self, charm: ops.CharmBase, relation_name: str = DEFAULT_RELATION_NAME
    ) -> None:
        super().__init__(charm, f"{relation_name}-requirer")
        self._charm = charm
        self._relation_name = relation_name
        events = charm.on[relation_name]
        self.framework.observe(events.relation_changed, self._on_event)
        self.framework.observe(events.relation_broken, self._on_event)

    def get(self) -> MeshInfo | None:
        """Return the facts; None while not related, or while no Istio is found."""
        for relation in self._charm.model.relations[self._relation_name]:
            if relation.active:
                return MeshInfo.read(relation.data[relation.app])
        return None

    def _on_event(self, _: ops.EventBase) -> None:
        self.on.changed.emit()

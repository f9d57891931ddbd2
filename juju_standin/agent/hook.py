"""What the agent runs: a hook with everything that its environment needs."""

from dataclasses import asdict, dataclass
from typing import Any

PEBBLE_KINDS = (
    "pebble-ready",
    "pebble-custom-notice",
    "pebble-check-failed",
    "pebble-check-recovered",
)


@dataclass(frozen=True, kw_only=True)
class Hook:
    """One hook, of one kind, for one relation or container where it concerns one."""

    kind: str
    """Juju's name of the kind, such as `config-changed`, `relation-joined`, `pebble-ready`."""
    relation: str = ""
    """Number of the relation, as text."""
    endpoint: str = ""
    remote_application: str = ""
    remote_unit: str = ""
    departing_unit: str = ""
    version: int = 0
    """Version of the remote settings that the hook is about."""
    workload: str = ""
    notice_id: str = ""
    notice_type: str = ""
    notice_key: str = ""
    check: str = ""
    boot_id: str = ""

    @property
    def name(self) -> str:
        """The name under which the charm knows it."""
        if self.is_relation:
            return f"{self.endpoint}-{self.kind}"
        if self.is_pebble:
            return f"{self.workload}-{self.kind}"
        return self.kind

    @property
    def is_relation(self) -> bool:
        """Whether it concerns a relation."""
        return self.kind.startswith("relation-")

    @property
    def is_pebble(self) -> bool:
        """Whether a workload container's Pebble caused it."""
        return self.kind in PEBBLE_KINDS

    @property
    def relation_key(self) -> str:
        """The relation as hook tools write it, `endpoint:number`."""
        return f"{self.endpoint}:{self.relation}" if self.relation else ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are set, for the controller to keep."""
        return {key: value for key, value in asdict(self).items() if value}

#!/usr/bin/env python3
"""A charm that uses what Python has since 3.12, and a package that is compiled for its Python."""

import itertools
import platform

import ops
import pydantic


class Settings(pydantic.BaseModel):
    """The options."""

    level: int


class Newer(ops.CharmBase):
    """Says which Python it lives in."""

    _stored = ops.StoredState()

    def __init__(self, framework: ops.Framework) -> None:
        super().__init__(framework)
        self._stored.set_default(seen="")
        for event in (self.on.install, self.on.config_changed, self.on.cluster_relation_joined):
            framework.observe(event, self._on_event)
        framework.observe(self.on.workload_pebble_ready, self._on_ready)
        framework.observe(self.on.words_action, self._on_words)
        framework.observe(self.on.collect_unit_status, self._on_collect_status)

    def _on_event(self, event: ops.EventBase) -> None:
        self._stored.seen += f" {event.handle.kind}"
        if isinstance(event, ops.RelationJoinedEvent):
            event.relation.data[self.unit]["python"] = platform.python_version()

    def _on_ready(self, event: ops.PebbleReadyEvent) -> None:
        service: ops.pebble.ServiceDict = {"override": "replace", "command": "sleep 100000"}
        event.workload.add_layer("sleep", {"services": {"sleep": service}}, combine=True)
        event.workload.start("sleep")

    def _on_words(self, event: ops.ActionEvent) -> None:
        pairs = itertools.batched(event.params["text"].split(), 2)
        event.set_results({"pairs": "|".join("+".join(pair) for pair in pairs)})

    def _on_collect_status(self, event: ops.CollectStatusEvent) -> None:
        container = self.unit.get_container("workload")
        if not (container.can_connect() and container.get_services("sleep")):
            event.add_status(ops.WaitingStatus("workload"))
        level = self.load_config(Settings).level
        event.add_status(ops.ActiveStatus(f"level {level}, Python {platform.python_version()}"))


if __name__ == "__main__":
    ops.main(Newer)

#!/usr/bin/env python3
"""A charm that writes down what happens to it."""

import json
import logging
import os
import pathlib

import ops

logger = logging.getLogger(__name__)


class Tiny(ops.CharmBase):
    """Observes everything, and counts it."""

    _stored = ops.StoredState()

    def __init__(self, framework):
        super().__init__(framework)
        self._stored.set_default(seen=0, note="")
        for name, bound in self.on.events().items():
            if name.startswith("collect_"):
                continue
            if name.endswith("_action"):
                framework.observe(bound, getattr(self, f"_on_{name}"))
            else:
                framework.observe(bound, self._on_anything)
        framework.observe(self.on.collect_unit_status, self._on_collect)

    def _on_collect(self, event):
        event.add_status(ops.ActiveStatus(f"level {self.config['level']}"))

    def _on_anything(self, event):
        hook = os.environ["JUJU_HOOK_NAME"]
        self._stored.seen += 1
        self._stored.note = "lines\nand: 'quotes', \"more\" # and signs"
        logger.info("SAW %s", json.dumps({"hook": hook, **self._facts()}))
        if isinstance(event, ops.RelationEvent) and event.relation.active:
            event.relation.data[self.unit][f"unit-{hook}"] = "written"
            if self.unit.is_leader():
                event.relation.data[self.app]["greeting"] = f"level {self.config['level']}"
        if isinstance(event, ops.PebbleReadyEvent):
            layer = {"services": {"sleeper": {"override": "replace", "command": "sleep 1000"}}}
            event.workload.add_layer("tiny", layer, combine=True)
            event.workload.replan()

    def _facts(self):
        relation = os.environ.get("JUJU_RELATION_ID", "")
        facts = {
            "seen": self._stored.seen,
            "note": self._stored.note,
            "leader": self.unit.is_leader(),
            "relation": relation,
            "remote": os.environ.get("JUJU_REMOTE_UNIT", ""),
            "departing": os.environ.get("JUJU_DEPARTING_UNIT", ""),
            "notice": os.environ.get("JUJU_NOTICE_KEY", ""),
            "peers": len(self.model.relations["cluster"]),
            "planned": self.app.planned_units(),
            "deferred": os.environ.get("JUJU_DISPATCH_PATH", ""),
        }
        if relation:
            number = int(relation.split(":")[1])
            found = self.model.get_relation(relation.split(":")[0], number)
            facts["units"] = sorted(unit.name for unit in found.units)
            facts["data"] = {
                unit.name: dict(found.data[unit]) for unit in [*found.units, self.unit]
            }
        return facts

    def _on_inspect_action(self, event):
        peers = [dict(r.data[self.unit]) for r in self.model.relations["cluster"]]
        event.set_results(
            {
                "environment": json.dumps(dict(os.environ)),
                "peers": json.dumps(peers),
                "config": json.dumps(dict(self.config)),
                "folder": str(pathlib.Path.cwd()),
            }
        )


if __name__ == "__main__":
    # Before 2.17 the module can't be called itself.
    main = ops.main if callable(ops.main) else ops.main.main
    main(Tiny, use_juju_for_storage=True)

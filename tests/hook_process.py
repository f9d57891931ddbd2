"""A charm's hook in a process of its own, as Juju starts it, with hook tools that print files."""

import json
import os
import pathlib
import subprocess
import sys
import typing

ROOT = pathlib.Path(__file__).parents[1]
APPLICATION = "istio-integrator"
TOOLS = """#!/bin/sh
tool=${0##*/}; last=; relation=
while [ $# -gt 0 ]; do
    case "$1" in -r) relation=$2; shift;; --app) tool="$tool-app";; --*) ;; *) last=$1;; esac
    shift
done
case "$tool" in
    is-leader) echo true;;
    config-get|goal-state) cat "$WORLD/$tool";;
    relation-ids) cat "$WORLD/ids-$last" 2>/dev/null || echo '[]';;
    relation-list) echo '[]';;
    relation-list-app) cat "$WORLD/$relation-name";;
    relation-get-app) [ "$last" = istio-integrator ] && echo '{}' || cat "$WORLD/$relation";;
    relation-get) echo '{}';;
    relation-set) cat >/dev/null;;
    juju-log) echo "$last" >>"$WORLD/log";;
esac
"""
NAMES = (
    "is-leader config-get goal-state relation-ids relation-list relation-get relation-set "
    "juju-log status-set"
)


class Bag(typing.NamedTuple):
    """What a related application wrote; `ops.testing.Relation` has these fields, too."""

    endpoint: str
    id: int
    remote_app_name: str
    remote_app_data: dict


class Unit:
    """A charm in a folder of its own, as a unit has it."""

    def __init__(self, folder, model="kubeflow", checkout=ROOT, command=(), **variables):
        """Place the charm.

        Args:
            folder: Where, with the answers of the hook tools.
            model: The namespace.
            checkout: Whose charm.
            command: The program of a hook; without it, the charm's.
            variables: More of its environment.
        """
        charm, self.world, tools = folder / "charm", folder / "world", folder / "tools"
        for each in (charm, self.world, tools):
            each.mkdir(parents=True)
        for name in NAMES.split():
            (tools / name).write_text(TOOLS)
            (tools / name).chmod(0o755)
        for name in ("metadata.yaml", "config.yaml", "actions.yaml", "templates", "rbac"):
            if (checkout / name).exists():
                (charm / name).symlink_to(checkout / name)
        self._command = command or (sys.executable, checkout / "src" / "charm.py")
        self._environment = {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": f"{checkout / 'src'}:{checkout / 'lib'}",
            "JUJU_CHARM_DIR": str(charm),
            "JUJU_MODEL_NAME": model,
            "JUJU_MODEL_UUID": "b2f5b6e0-0000-4000-8000-000000000000",
            "JUJU_UNIT_NAME": f"{APPLICATION}/0",
            "JUJU_VERSION": "3.6.9",
            "WORLD": str(self.world),
            **variables,
        }
        self.says()

    def says(self, bags=(), **options):
        """Have Juju say what each related application wrote, and what the operator did."""
        planned = {f"{APPLICATION}/0": {"status": "active", "since": "2026-01-01T00:00:00Z"}}
        written = {"config-get": options, "goal-state": {"units": planned, "relations": {}}}
        for bag in bags:
            relation = f"{bag.endpoint}:{bag.id}"
            written[relation] = bag.remote_app_data
            written[f"{relation}-name"] = bag.remote_app_name
            written.setdefault(f"ids-{bag.endpoint}", []).append(relation)
        for name, value in written.items():
            (self.world / name).write_text(json.dumps(value))

    def hook(self, event, bag=None):
        """Run a hook, which may be of a relation."""
        name = f"{bag.endpoint}-{event}" if bag else event
        environment = {"JUJU_DISPATCH_PATH": f"hooks/{name}", "JUJU_HOOK_NAME": name}
        if bag:
            relation = {"JUJU_RELATION": bag.endpoint, "JUJU_REMOTE_APP": bag.remote_app_name}
            environment |= {**relation, "JUJU_RELATION_ID": f"{bag.endpoint}:{bag.id}"}
        done = subprocess.run(
            self._command,
            env=self._environment | environment,
            cwd=self._environment["JUJU_CHARM_DIR"],
            capture_output=True,
            text=True,
            check=False,
        )
        log = self.world / "log"
        assert done.returncode == 0, (done.stderr, log.read_text() if log.exists() else "")

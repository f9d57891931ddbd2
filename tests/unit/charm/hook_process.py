"""A hook of the charm in a process of its own, as Juju starts it, beside its tools' stand-ins."""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[3]
TOOLS = """#!/bin/sh
case "${0##*/} $*" in
    is-leader*) echo true;;
    goal-state*) cat "$WORLD/goal";;
    "relation-ids tracing"*) cat "$WORLD/ids";;
    "relation-ids receive-ca-cert"*) echo '["receive-ca-cert:2"]';;
    relation-ids*) echo '[]';;
    relation-list*--app*) echo '"tempo"';;
    relation-list*) echo '[]';;
    relation-get*receive-ca-cert*) cat "$WORLD/authorities";;
    relation-get*tempo*) cat "$WORLD/bag";;
    juju-log*) echo "$*" >>"$WORLD/log";;
    *) echo '{}';;
esac
"""
NAMES = (
    "is-leader config-get goal-state relation-ids relation-list relation-get relation-set "
    "state-get state-set state-delete juju-log status-set status-get application-version-set"
)


class Unit:
    """The charm as Juju starts it, where there is no API server."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.charm, self._world = folder / "charm", folder / "world"
        tools = folder / "tools"
        for each in (self.charm, self._world, tools):
            each.mkdir()
        for name in NAMES.split():
            (tools / name).write_text(TOOLS)
            (tools / name).chmod(0o755)
        for name in ("metadata.yaml", "config.yaml", "actions.yaml"):
            (self.charm / name).write_text((ROOT / name).read_text())
        self.environment = {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'lib'}",
            "JUJU_CHARM_DIR": str(self.charm),
            "JUJU_MODEL_NAME": "kubeflow",
            "JUJU_MODEL_UUID": "b2f5b6e0-0000-4000-8000-000000000000",
            "JUJU_UNIT_NAME": "istio-integrator/0",
            "JUJU_VERSION": "3.6.9",
            "WORLD": str(self._world),
        }
        planned = {"istio-integrator/0": {"status": "active", "since": "2026-01-01T00:00:00Z"}}
        goal = {"units": planned, "relations": {}}
        (self._world / "goal").write_text(json.dumps(goal))
        self.related("")

    def related(self, url: str, *authorities: str) -> None:
        """Relate a collector of traces, or none, and authorities that may know it."""
        sent = {"certificates": json.dumps(authorities)}
        (self._world / "authorities").write_text(json.dumps(sent))
        receivers = [{"protocol": {"name": "otlp_http", "type": "http"}, "url": url}]
        bag = {"receivers": json.dumps(receivers)} if url else {}
        (self._world / "ids").write_text(json.dumps(["tracing:1"] if url else []))
        (self._world / "bag").write_text(json.dumps(bag))

    def hook(self, event: str) -> None:
        """Run a hook."""
        environment = {**self.environment, "JUJU_DISPATCH_PATH": f"hooks/{event}"}
        if event.startswith("tracing-"):
            relation = {"JUJU_RELATION": "tracing", "JUJU_RELATION_ID": "tracing:1"}
            environment |= {**relation, "JUJU_REMOTE_APP": "tempo"}
        done = subprocess.run(
            [sys.executable, ROOT / "src" / "charm.py"],
            env=environment,
            cwd=self.charm,
            capture_output=True,
            text=True,
            check=False,
        )
        log = self._world / "log"
        assert done.returncode == 0, (done.stderr, log.read_text() if log.exists() else "")

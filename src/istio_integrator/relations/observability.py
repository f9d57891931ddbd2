"""The wire formats of the Canonical Observability Stack: Prometheus, Grafana and Loki.

They are those of the charm libraries prometheus_k8s.v0.prometheus_scrape,
grafana_k8s.v0.grafana_dashboard and loki_k8s.v1.loki_push_api, which live on Charmhub only. Their
topology, rules and compression are those of cosl, which is imported once one of them is related.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
import urllib.parse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import ops

from integrator_contract import bounded
from istio_integrator.kube import cluster

if TYPE_CHECKING:
    from cosl import JujuTopology

METRICS = "metrics-endpoint"
GRAFANA = "grafana-dashboard"

_HERE = pathlib.Path(__file__).parents[2]
DASHBOARDS = _HERE / "grafana_dashboards"
ALERT_RULES = _HERE / "prometheus_alert_rules"

_SELECTOR = re.compile(r"\b(up|(?:sidecar_lifecycle|istio_integrator)_\w+)(\{)?")
"""A metric of ours in a rule's expression, and the brace where it has matchers already."""
_PREFIX = "loki-"
_URL = re.compile(r"https?://[!-~]{1,2048}")
_OFF = ("-all",)
"""What a log target forwards that nobody wants any more: layers can't take a target out."""


def topology(charm: ops.CharmBase) -> JujuTopology:
    """Return where the metrics and logs of a unit come from, in Juju's terms."""
    from cosl import JujuTopology  # noqa: PLC0415 - it takes long to import

    return JujuTopology.from_charm(charm)


def scrape_jobs(servers: Mapping[str, str], port: int) -> list[dict[str, Any]]:
    """List what Prometheus is to scrape: every unit, and the webhook's servers."""
    jobs: dict[str, list[dict[str, Any]]] = {"lifecycle": [{"targets": [f"*:{port}"]}]}
    for name, address in sorted(servers.items()):
        host = f"[{address}]" if ":" in address else address
        # Without a label of their own the servers' series could not be told apart: the consumer
        # makes `instance` from the topology alone.
        config = {"targets": [f"{host}:{port}"], "labels": {"pod": name}}
        jobs.setdefault("admission", []).append(config)
    return [
        {"job_name": name, "metrics_path": "/metrics", "static_configs": configs}
        for name, configs in jobs.items()
    ]


def alert_rules(topology: JujuTopology) -> dict[str, Any]:
    """Read the alert rules, for this application's metrics only.

    cosl writes the matchers into expressions by a program that is no Python package. Charms that
    read the rules from Prometheus' charm may not have it either: the rules of two applications
    would then read each other's series.
    """
    from cosl.rules import AlertRules  # noqa: PLC0415

    matchers = ", ".join(f'{key}="{value}"' for key, value in _matchers(topology).items())

    def selected(metric: re.Match[str]) -> str:
        return f"{metric[1]}{{{matchers}{', ' if metric[2] else '}'}"

    rules = AlertRules("promql", topology)
    rules.add_path(ALERT_RULES)
    told = rules.as_dict()
    for group in told["groups"]:
        for rule in group["rules"]:
            rule["expr"] = _SELECTOR.sub(selected, rule["expr"])
    return told


def _matchers(topology: JujuTopology) -> dict[str, str]:
    labels = topology.label_matcher_dict
    return {key: value for key, value in labels.items() if key != "juju_charm"}


def dashboards(topology: JujuTopology) -> dict[str, Any]:
    """Read the dashboards as Grafana's charm takes them."""
    sent = {
        f"file:{path.stem}": _dashboard(path, topology)
        for path in sorted(DASHBOARDS.glob("*.json"))
    }
    digest = hashlib.sha256(json.dumps(sent, sort_keys=True).encode()).hexdigest()
    # The consumer wants something that differs when the dashboards do.
    return {"templates": sent, "uuid": digest[:32]}


def _dashboard(path: pathlib.Path, topology: JujuTopology) -> dict[str, Any]:
    from cosl import DashboardPath40UID, LZMABase64  # noqa: PLC0415

    charm = str(topology.charm_name)
    board = json.loads(path.read_text())
    # The consumer has its own, and would keep both.
    del board["templating"]
    board["uid"] = DashboardPath40UID.generate(charm, path.relative_to(_HERE.parent).as_posix())
    board["tags"] = [*board.get("tags", []), f"charm: {charm}"]
    alternative = hashlib.shake_256(f"{charm}-file:{path.stem}".encode()).hexdigest(8)
    return {
        "charm": charm,
        "content": LZMABase64.compress(json.dumps(board)),
        "juju_topology": topology.as_dict(excluded_keys=["charm_name"]),
        "inject_dropdowns": True,
        "dashboard_alt_uid": alternative,
    }


def log_targets(
    topology: JujuTopology, units: Mapping[str, Mapping[str, str]]
) -> dict[str, ops.pebble.LogTargetDict]:
    """Write where Pebble sends the workload's logs."""
    own = {"juju_unit": str(topology.unit), "charm": str(topology.charm_name), "product": "Juju"}
    labels = _matchers(topology) | own
    targets: dict[str, ops.pebble.LogTargetDict] = {}
    for unit, bag in sorted(units.items()):
        if url := push_url(bag):
            targets[f"{_PREFIX}{unit.replace('/', '-')}"] = {
                "override": "replace",
                "type": "loki",
                "location": url,
                "services": ["all"],
                "labels": labels,
            }
    return targets


def push_url(bag: Mapping[str, str]) -> str:
    """Read where a unit of Loki takes logs; empty where it names no URL that can be sent to."""
    try:
        endpoint = {"endpoint": bounded.read_json(bag.get("endpoint", "{}"))}
        url = str(cluster.at(endpoint, "endpoint").get("url"))
        place = urllib.parse.urlsplit(url)
        # Reading the port checks it.
        is_place = place.hostname and place.port != 0
    except ValueError:
        return ""
    return url if is_place and _URL.fullmatch(url) else ""


def changed_targets(
    present: Mapping[str, ops.pebble.LogTarget], wanted: Mapping[str, ops.pebble.LogTargetDict]
) -> dict[str, ops.pebble.LogTargetDict]:
    """Write what has to change; targets that are not wanted any more forward nothing."""
    changes = {
        name: target
        for name, target in wanted.items()
        if name not in present or present[name] != target
    }
    for name, target in present.items():
        if name.startswith(_PREFIX) and name not in wanted and tuple(target.services) != _OFF:
            off = {"override": "replace", "type": "loki", "location": target.location}
            changes[name] = cast("ops.pebble.LogTargetDict", {**off, "services": list(_OFF)})
    return changes

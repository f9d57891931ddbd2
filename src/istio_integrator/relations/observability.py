"""The wire formats of the Canonical Observability Stack: Prometheus, Grafana and Loki.

They are those of the charm libraries prometheus_k8s.v0.prometheus_scrape,
grafana_k8s.v0.grafana_dashboard and loki_k8s.v1.loki_push_api, which live on Charmhub only.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import lzma
import pathlib
import re
import urllib.parse
from collections.abc import Mapping
from typing import Any, cast

import ops
import yaml

from istio_integrator.kube import cluster, documents

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Topology:
    """Where the metrics and logs of a unit come from, in Juju's terms."""

    model: str
    model_uuid: str
    application: str
    unit: str
    charm: str

    @property
    def metadata(self) -> dict[str, str]:
        """The topology as the libraries send it."""
        return {
            "model": self.model,
            "model_uuid": self.model_uuid,
            "application": self.application,
            "unit": self.unit,
            "charm_name": self.charm,
        }

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the application: a unit's would hide the other units from a rule."""
        return {
            "juju_model": self.model,
            "juju_model_uuid": self.model_uuid,
            "juju_application": self.application,
            "juju_charm": self.charm,
        }

    @property
    def matchers(self) -> str:
        """The labels that metrics of the application have, as PromQL's matchers."""
        labels = {key: value for key, value in self.labels.items() if key != "juju_charm"}
        return ", ".join(f'{key}="{value}"' for key, value in labels.items())


def scrape_jobs(servers: Mapping[str, str], port: int) -> list[dict[str, Any]]:
    """List what Prometheus is to scrape: every unit, and the webhook's servers.

    Args:
        servers: Addresses of the webhook's pods by name.
        port: Of either's metrics.
    """
    jobs = [_job("lifecycle", [{"targets": [f"*:{port}"]}])]
    if servers:
        # Without a label of their own the servers' series could not be told apart: the consumer
        # makes `instance` from the topology alone.
        configs = [
            {"targets": [f"{_host(address)}:{port}"], "labels": {"pod": name}}
            for name, address in sorted(servers.items())
        ]
        jobs.append(_job("admission", configs))
    return jobs


def _job(name: str, configs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"job_name": name, "metrics_path": "/metrics", "static_configs": configs}


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def alert_rules(topology: Topology) -> dict[str, Any]:
    """Read the alert rules, for this application's metrics only.

    Prometheus' charm would add the labels by itself, others that take the rules may not: two
    applications' series would then be one alert's, and the rule an error.
    """
    groups: list[dict[str, Any]] = []
    for path in sorted(ALERT_RULES.glob("*.rules")):
        for group in yaml.safe_load(path.read_text())["groups"]:
            rules = [_rule(rule, topology) for rule in group["rules"]]
            groups.append({"name": _group_name(topology, group["name"]), "rules": rules})
    return {"groups": groups}


def _rule(rule: dict[str, Any], topology: Topology) -> dict[str, Any]:
    def selected(metric: re.Match[str]) -> str:
        return f"{metric[1]}{{{topology.matchers}{', ' if metric[2] else '}'}"

    return {
        **rule,
        "expr": _SELECTOR.sub(selected, rule["expr"]),
        "labels": {**rule["labels"], **topology.labels},
    }


def _group_name(topology: Topology, name: str) -> str:
    # By this form the consumer knows that the topology is already in it.
    words = (topology.model, topology.model_uuid[:8], topology.application, name, "rules")
    return re.sub(r"[^a-zA-Z0-9_:]", "_", "_".join(words))


def dashboards(topology: Topology) -> dict[str, Any]:
    """Read the dashboards as Grafana's charm takes them."""
    templates = {f"file:{path.stem}": path for path in sorted(DASHBOARDS.glob("*.json"))}
    sent = {name: _dashboard(name, path, topology) for name, path in templates.items()}
    digest = hashlib.sha256(json.dumps(sent, sort_keys=True).encode()).hexdigest()
    # The consumer wants something that differs when the dashboards do.
    return {"templates": sent, "uuid": digest[:32]}


def _dashboard(name: str, path: pathlib.Path, topology: Topology) -> dict[str, Any]:
    board = json.loads(path.read_text())
    # The consumer has its own, and would keep both.
    del board["templating"]
    relative = path.relative_to(_HERE.parent).as_posix()
    # Of this length the consumer takes it for one of its own making.
    board["uid"] = hashlib.shake_256(f"{topology.charm}-{relative}".encode()).hexdigest(20)
    board["tags"] = [*board.get("tags", []), f"charm: {topology.charm}"]
    return {
        "charm": topology.charm,
        "content": compressed(json.dumps(board)),
        "juju_topology": {
            key: topology.metadata[key] for key in ("model", "model_uuid", "application", "unit")
        },
        "inject_dropdowns": True,
        "dashboard_alt_uid": hashlib.shake_256(f"{topology.charm}-{name}".encode()).hexdigest(8),
    }


def compressed(text: str) -> str:
    """Compress as the libraries do, for data bags that know text only."""
    return base64.b64encode(lzma.compress(text.encode(), preset=3)).decode()


def log_targets(
    topology: Topology, units: Mapping[str, Mapping[str, str]]
) -> dict[str, ops.pebble.LogTargetDict]:
    """Write where Pebble sends the workload's logs.

    Args:
        topology: Ours.
        units: The data bags of Loki's units by their names.
    """
    own = {"juju_unit": topology.unit, "charm": topology.charm, "product": "Juju"}
    labels = {key: value for key, value in topology.labels.items() if key != "juju_charm"} | own
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
    """Read where a unit of Loki takes logs; empty where it does not say."""
    try:
        endpoint = {"endpoint": documents.read_json(bag.get("endpoint", "{}"))}
    except ValueError:
        return ""
    return _url(cluster.at(endpoint, "endpoint").get("url"))


def _url(value: object) -> str:
    """Return a URL that can be sent to; empty where it is none."""
    try:
        place = urllib.parse.urlsplit(value if isinstance(value, str) else "")
        # Reading the port checks it.
        is_place = place.hostname and place.port != 0
    except ValueError:
        return ""
    return str(value) if is_place and _URL.fullmatch(str(value)) else ""


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

"""This application's data for Prometheus, Grafana and Loki.

The data bags are those of the charm libraries prometheus_k8s.v0.prometheus_scrape,
grafana_k8s.v0.grafana_dashboard and loki_k8s.v1.loki_push_api, which live on Charmhub only. Their
topology, rules and compression are those of cosl, which is imported once one of them is related.
"""

from __future__ import annotations

import functools
import hashlib
import json
import pathlib
import re
import urllib.parse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import ops

from integrator_contract import bounded
from istio_integrator.admission import webhook
from istio_integrator.component import Component
from istio_integrator.facts import Facts
from istio_integrator.kube import cluster
from istio_integrator.lifecycle import service
from istio_integrator.messages import Message, Template
from istio_integrator.relations import endpoints
from istio_integrator.situation.workload import translate_pebble_errors

if TYPE_CHECKING:
    from cosl import JujuTopology

METRICS = "metrics-endpoint"
GRAFANA = "grafana-dashboard"

_HERE = pathlib.Path(__file__).parents[1]
DASHBOARDS = _HERE / "grafana_dashboards"
ALERT_RULES = _HERE / "prometheus_alert_rules"

_SELECTOR = re.compile(r"\b(up|(?:sidecar_lifecycle|istio_integrator)_\w+)(\{)?")
"""A metric of this charm in a rule's expression, and the brace if it already has matchers."""
_PREFIX = "loki-"
_URL = re.compile(r"https?://[!-~]{1,2048}")


class Observability(Component):
    """Publishes metrics, alerts, dashboards and logs to the observability stack."""

    name = "observability"

    def __init__(self, facts: Facts, charm: ops.CharmBase) -> None:
        super().__init__(facts)
        self._charm = charm

    def reconcile(self) -> list[Message]:
        """Publish metrics, alerts and dashboards, forward logs, and name a Loki without a URL."""
        situation, related = self._situation, self._situation.related
        related.publish_unit(
            METRICS,
            lambda address: {
                "prometheus_scrape_unit_address": address,
                "prometheus_scrape_unit_name": situation.unit,
            },
        )
        if situation.leader and related.is_related(GRAFANA):
            related.write(GRAFANA, {"dashboards": json.dumps(read_dashboards(self._topology))})
        if situation.leader and related.is_related(METRICS):
            scraping = {
                "scrape_metadata": self._topology.as_dict(),
                "scrape_jobs": make_scrape_jobs(self._list_servers()),
                "alert_rules": read_alert_rules(self._topology),
            }
            related.write(METRICS, {key: json.dumps(value) for key, value in scraping.items()})
        # Loki units without an endpoint will publish one later.
        units = related.list_unit_bags(endpoints.LOGGING)
        urls = {unit: read_push_url(bag) for unit, bag in units.items() if "endpoint" in bag}
        self._forward_logs({unit: url for unit, url in urls.items() if url})
        lost = sorted(unit for unit, url in urls.items() if not url)
        return [Template.LOKI_WITHOUT_URL(units=", ".join(lost))] if lost else []

    @functools.cached_property
    def _topology(self) -> JujuTopology:
        from cosl import JujuTopology  # noqa: PLC0415 - it takes long to import

        return JujuTopology.from_charm(self._charm)

    def _list_servers(self) -> dict[str, str]:
        pods: list[cluster.Object] = []
        with self._situation.cluster.skip_if_forbidden():
            labels = webhook.make_pod_labels(self._situation.manifests.owner)
            pods = self._situation.cluster.list(cluster.POD, self._situation.model, labels)
        addresses = {
            pod["metadata"]["name"]: cluster.at(pod, "status").get("podIP") for pod in pods
        }
        return {name: address for name, address in addresses.items() if isinstance(address, str)}

    def _forward_logs(self, urls: Mapping[str, str]) -> None:
        container = self._situation.workload.container
        if not container.can_connect():
            # The hook of its pebble-ready does this later.
            return
        targets = make_log_targets(self._topology, urls) if urls else {}
        with translate_pebble_errors("logs are not forwarded"):
            for name, target in container.get_plan().log_targets.items():
                if name.startswith(_PREFIX) and name not in targets:
                    # A layer cannot remove a target.
                    targets[name] = {**target.to_dict(), "services": ["-all"]}
            if targets:
                container.add_layer("log-forwarding", {"log-targets": targets}, combine=True)


def make_scrape_jobs(servers: Mapping[str, str]) -> list[dict[str, Any]]:
    """List the scrape jobs of Prometheus: every unit, and the webhook's servers."""
    jobs: dict[str, list[dict[str, Any]]] = {"lifecycle": [{"targets": [f"*:{service.PORT}"]}]}
    for name, address in sorted(servers.items()):
        host = f"[{address}]" if ":" in address else address
        # The servers' series need a label of their own: the consumer makes `instance` from the
        # topology alone.
        config = {"targets": [f"{host}:{service.PORT}"], "labels": {"pod": name}}
        jobs.setdefault("admission", []).append(config)
    return [
        {"job_name": name, "metrics_path": "/metrics", "static_configs": configs}
        for name, configs in jobs.items()
    ]


def read_alert_rules(topology: JujuTopology) -> dict[str, Any]:
    """Read the alert rules, for this application's metrics only.

    cosl needs a separate binary to write the matchers into expressions, and the consumers of
    Prometheus' charm may lack it, too. The rules of two applications would then read each other's
    series.
    """
    from cosl.rules import AlertRules  # noqa: PLC0415

    matchers = ", ".join(f'{key}="{value}"' for key, value in _make_matchers(topology).items())

    def selected(metric: re.Match[str]) -> str:
        return f"{metric[1]}{{{matchers}{', ' if metric[2] else '}'}"

    rules = AlertRules("promql", topology)
    rules.add_path(ALERT_RULES)
    told = rules.as_dict()
    for group in told["groups"]:
        for rule in group["rules"]:
            rule["expr"] = _SELECTOR.sub(selected, rule["expr"])
    return told


def _make_matchers(topology: JujuTopology) -> dict[str, str]:
    labels = topology.label_matcher_dict
    return {key: value for key, value in labels.items() if key != "juju_charm"}


def read_dashboards(topology: JujuTopology) -> dict[str, Any]:
    """Read the dashboards in the format of Grafana's charm."""
    sent = {
        f"file:{path.stem}": _read_dashboard(path, topology)
        for path in sorted(DASHBOARDS.glob("*.json"))
    }
    digest = hashlib.sha256(json.dumps(sent, sort_keys=True).encode()).hexdigest()
    # The consumer needs a value that changes with the dashboards.
    return {"templates": sent, "uuid": digest[:32]}


def _read_dashboard(path: pathlib.Path, topology: JujuTopology) -> dict[str, Any]:
    from cosl import DashboardPath40UID, LZMABase64  # noqa: PLC0415

    charm = str(topology.charm_name)
    board = json.loads(path.read_text())
    # The consumer adds its own and would keep both.
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


def make_log_targets(
    topology: JujuTopology, urls: Mapping[str, str]
) -> dict[str, ops.pebble.LogTargetDict]:
    """Return a Pebble log target for each Loki unit's URL."""
    own = {"juju_unit": str(topology.unit), "charm": str(topology.charm_name), "product": "Juju"}
    return {
        f"{_PREFIX}{unit.replace('/', '-')}": {
            "override": "replace",
            "type": "loki",
            "location": url,
            "services": ["all"],
            "labels": _make_matchers(topology) | own,
        }
        for unit, url in sorted(urls.items())
    }


def read_push_url(bag: Mapping[str, str]) -> str:
    """Return the push URL of a Loki unit; empty if it has no valid URL."""
    try:
        endpoint = {"endpoint": bounded.read_json(bag.get("endpoint", "{}"))}
        url = str(cluster.at(endpoint, "endpoint").get("url"))
        place = urllib.parse.urlsplit(url)
        # Reading the port validates it.
        is_place = place.hostname and place.port != 0
    except ValueError:
        return ""
    return url if is_place and _URL.fullmatch(url) else ""

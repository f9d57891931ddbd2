"""A real Prometheus that scrapes what data bags say, read as the Prometheus charm does."""

import contextlib
import json
import math
import pathlib
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from testbed import paths
from tests import needs

DASHBOARD = paths.SOURCE / "src" / "grafana_dashboards" / "istio-integrator.json"
_INTERVAL = "1s"


def program(name: str) -> pathlib.Path:
    """Return `prometheus` or `promtool`, which `make setup` unpacks."""
    found = paths.unpacked(name, "prometheus")
    if not found.exists():
        needs.leave_out(f"{name} is missing: make setup unpacks it")
    return found


def jobs(
    application: Mapping[str, str], units: Sequence[Mapping[str, str]]
) -> list[dict[str, Any]]:
    """Turn data bags of `prometheus_scrape` into jobs, by the rules of its consumer."""
    metadata = json.loads(application["scrape_metadata"])
    topology = {
        f"juju_{'charm' if key == 'charm_name' else key}": value
        for key, value in metadata.items()
        if key != "unit"
    }
    return [
        {
            "job_name": f"juju_{metadata['model']}_prometheus_scrape_{job['job_name']}",
            "metrics_path": job["metrics_path"],
            "static_configs": [
                target
                for config in job["static_configs"]
                for target in _targets(config, topology, units)
            ],
            "relabel_configs": [
                {
                    "source_labels": [*topology, "juju_unit"],
                    "separator": "_",
                    "target_label": "instance",
                }
            ],
        }
        for job in json.loads(application["scrape_jobs"])
    ]


def _targets(
    config: dict[str, Any], topology: dict[str, str], units: Sequence[Mapping[str, str]]
) -> Iterator[dict[str, Any]]:
    labels = {**config.get("labels", {}), **topology}
    for target in config["targets"]:
        host, _, port = target.rpartition(":")
        if host != "*":
            yield {"targets": [target], "labels": labels}
            continue
        for unit in units:
            address = f"{unit['prometheus_scrape_unit_address']}:{port}"
            own = {"juju_unit": unit["prometheus_scrape_unit_name"]}
            yield {"targets": [address], "labels": {**labels, **own}}


class Prometheus:
    """A running one."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.strict = False
        """Whether NaN, a quantile of nothing yet, counts as no data."""

    def get(self, path: str, **query: str) -> Any:
        """Ask its HTTP API."""
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=5) as response:
            return json.load(response)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Evaluate an expression now; each sample has `metric` and `value`."""
        return self.get("query", query=expression)["result"]

    def series(self, expression: str, seconds: int) -> list[dict[str, Any]]:
        """Evaluate an expression over the last seconds; each has `metric` and `values`."""
        end = time.time()
        span = {"start": f"{end - seconds}", "end": f"{end}", "step": "1"}
        return self.get("query_range", query=expression, **span)["result"]

    def _numbers(self, expression: str) -> list[float]:
        values = [float(sample["value"][1]) for sample in self.query(expression)]
        return [value for value in values if not (self.strict and math.isnan(value))]

    def without_data(self, expressions: Mapping[str, str], seconds: float) -> list[str]:
        """Name the expressions for which no number has come in this time."""
        left = dict(expressions)
        end = time.monotonic() + seconds
        while left and time.monotonic() < end:
            left = {name: text for name, text in left.items() if not self._numbers(text)}
            time.sleep(0.5)
        return sorted(left)


@contextlib.contextmanager
def serving(
    folder: pathlib.Path, scraped: list[dict[str, Any]], rules: dict[str, Any] | pathlib.Path
) -> Iterator[Prometheus]:
    """Run Prometheus while the block runs, with alert rules or the file that has them."""
    folder.mkdir(exist_ok=True)
    if isinstance(rules, pathlib.Path):
        shutil.copy(rules, folder / "rules.yaml")
    else:
        (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    interval = {"scrape_interval": _INTERVAL, "evaluation_interval": _INTERVAL}
    config = {"global": interval, "rule_files": ["rules.yaml"], "scrape_configs": scraped}
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    command = [
        str(program("prometheus")),
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=warn",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield _ready(Prometheus(address), folder / "prometheus.log")
    finally:
        process.terminate()
        process.wait()


def _ready(server: Prometheus, log: pathlib.Path) -> Prometheus:
    end = time.monotonic() + 30
    while True:
        try:
            server.query("vector(1)")
        except OSError:
            if time.monotonic() > end:
                raise AssertionError(log.read_text()) from None
            time.sleep(0.1)
        else:
            return server


def filled(expression: str, window: str) -> str:
    """Return an expression of the dashboard with Grafana's variables filled in."""
    return re.sub(r"\$juju_\w+", ".*", expression.replace("$__rate_interval", window))


def dashboard_panels() -> list[dict[str, Any]]:
    """Return the dashboard's panels as Grafana has them."""
    return json.loads(DASHBOARD.read_text())["panels"]


def dashboard_variables() -> list[dict[str, Any]]:
    """Return the dashboard's own variables, which COS replaces by its."""
    return json.loads(DASHBOARD.read_text())["templating"]["list"]


def dashboard_queries(window: str = "30s") -> dict[str, str]:
    """Return the dashboard's expressions by panel; rates are taken over the window."""
    return {
        f"{panel['title']} ({target['refId']})": filled(target["expr"], window)
        for panel in dashboard_panels()
        for target in panel.get("targets", [])
    }


def shown(server: Prometheus, window: str, seconds: int) -> list[dict[str, Any]]:
    """Return what Grafana would show of the last seconds, panel by panel, for a picture."""
    return [
        {
            "title": panel["title"],
            "type": panel["type"],
            "place": panel["gridPos"],
            "unit": panel.get("fieldConfig", {}).get("defaults", {}).get("unit", ""),
            "series": [
                {
                    "name": legend(target.get("legendFormat", ""), found["metric"]),
                    "values": [(time, float(value)) for time, value in found["values"]],
                }
                for target in panel.get("targets", [])
                for found in server.series(filled(target["expr"], window), seconds)
            ],
        }
        for panel in dashboard_panels()
    ]


def legend(text: str, labels: Mapping[str, str]) -> str:
    """Return a series' name as Grafana makes it of the panel's format."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), text)

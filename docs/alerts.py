"""The page about alerts, made of the rules that Prometheus gets."""

from __future__ import annotations

import pathlib
import re
import textwrap

import tables
import yaml

RULES = "src/prometheus_alert_rules/istio-integrator.rules"
_EXAMPLES = {
    "$labels.juju_model": "kubeflow",
    "$labels.juju_application": "istio-integrator",
    "$labels.juju_unit": "istio-integrator/0",
}
"""What stands in the page for what the alert itself names."""


def page(root: pathlib.Path) -> str:
    """Describe each alert in the words that it is sent with."""
    (group,) = yaml.safe_load((root / RULES).read_text())["groups"]
    rows: list[tuple[str, str, str, str]] = []
    sections: list[str] = []
    for rule in group["rules"]:
        name, said = rule["alert"], {k: _read(v) for k, v in rule["annotations"].items()}
        link = f"[{name.removeprefix('IstioIntegrator')}](#{name.lower()})"
        rows.append((link, rule["labels"]["severity"], rule["for"], said["summary"]))
        paragraph = textwrap.fill(said["description"], 100, break_on_hyphens=False)
        sections.append(f"## {name}\n\n{paragraph}\n\n{said['runbook']}")
    return (
        "# Alerts\n\n"
        "Each alert names the next step, and clears by itself when that step was taken. The alert"
        " itself\nhas the same text, with the names of its model and unit in place of `kubeflow`"
        " and\n`istio-integrator/0`. `critical` alerts are for a pager, `warning` alerts for a"
        " daily review.\n[Monitor it](../how-to/monitor.md) describes how Prometheus gets them."
        "\n\n"
        + tables.table(("alert", "severity", "after", "summary"), rows)
        + "\n"
        + "\n".join(sections)
    )


def _read(text: str) -> str:
    return re.sub(r"\{\{ *(.*?) *\}\}", _filled, text)


def _filled(variable: re.Match[str]) -> str:
    name = variable[1].partition("|")[0].strip()
    return _EXAMPLES.get(name, name.rpartition(".")[2].lstrip("$").upper())

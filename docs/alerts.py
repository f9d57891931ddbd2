"""The page about alerts, made of the rules that Prometheus gets."""

from __future__ import annotations

import pathlib
import re
import textwrap

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
    sections: list[str] = []
    for rule in group["rules"]:
        name, said = rule["alert"], {k: _read(v) for k, v in rule["annotations"].items()}
        when = f"*{rule['labels']['severity']}*, after {rule['for']}: {said['summary']}"
        told = f"{when} {said['description']}"
        paragraph = textwrap.fill(told, 100, break_on_hyphens=False)
        sections.append(f"## {name}\n\n{paragraph}\n\n{said['runbook']}")
    return (
        "# Alerts\n\n"
        "Each alert has the text of this page, with its own model and unit in place of\n"
        "`kubeflow` and `istio-integrator/0`. `critical` alerts are for a pager, `warning`\n"
        "alerts for a daily review. [Monitor it](../how-to/monitor.md) describes how Prometheus\n"
        "gets them.\n\n" + "\n".join(sections)
    )


def _read(text: str) -> str:
    return re.sub(r"\{\{ *(.*?) *\}\}", _filled, text)


def _filled(variable: re.Match[str]) -> str:
    name = variable[1].partition("|")[0].strip()
    return _EXAMPLES.get(name, name.rpartition(".")[2].lstrip("$").upper())

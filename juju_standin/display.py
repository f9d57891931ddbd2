"""Print what Juju's command line prints: a model's status as a table, answers as YAML."""

from collections.abc import Sequence
from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a block, as Juju's own library does."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def document(value: Any) -> str:
    """Render the answer of an action, or anything else that is shown as YAML."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)


LONGEST_MESSAGE = 120
"""Characters of a message in the table; Juju 3.6 and 4.0 cut what is longer."""


def status(found: dict[str, Any], *, relations: bool = False) -> str:
    """Render what `status --format json` gives, on request with the relations."""
    model = found["model"]
    applications: list[Sequence[str]] = [("App", "Version", "Status", "Scale", "Charm", "Message")]
    units: list[Sequence[str]] = [("Unit", "Workload", "Agent", "Address", "Message")]
    for name, application in found["applications"].items():
        shown = application["application-status"]
        present = len(application["units"])
        applications.append(
            (
                name,
                application.get("version", ""),
                shown["current"],
                f"{present}/{application['scale']}",
                application["charm"],
                cut(shown.get("message", "")),
            )
        )
        for unit, details in application["units"].items():
            workload, agent = details["workload-status"], details["juju-status"]
            units.append(
                (
                    f"{unit}{'*' if details.get('leader') else ''}",
                    workload["current"],
                    agent["current"],
                    details["address"],
                    cut(workload.get("message") or agent.get("message", "")),
                )
            )
    head = table(
        [
            ("Model", "Controller", "Cloud", "Version", "Status"),
            (
                model["name"],
                model["controller"],
                model["cloud"],
                model["version"],
                model["model-status"]["current"],
            ),
        ]
    )
    parts = [head, table(applications), table(units)]
    return "\n\n".join([*parts, table(_relations(found))] if relations else parts)


def _relations(found: dict[str, Any]) -> list[Sequence[str]]:
    """Name each side's application and endpoint, and the application that it is related to."""
    rows: list[Sequence[str]] = [("Endpoint", "Related to", "Interface")]
    for name, application in found["applications"].items():
        for endpoint, others in application["relations"].items():
            rows += [
                (f"{name}:{endpoint}", other["related-application"], other["interface"])
                for other in others
            ]
    return rows


def cut(message: str) -> str:
    """Cut a message as Juju's table does."""
    return message if len(message) <= LONGEST_MESSAGE else f"{message[: LONGEST_MESSAGE - 3]}..."


def table(rows: Sequence[Sequence[str]]) -> str:
    """Align columns."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )

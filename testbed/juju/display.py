"""Print a model's status as a table."""

from collections.abc import Sequence
from typing import Any


def status(found: dict[str, Any]) -> str:
    """Render what `status --format json` gives."""
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
                shown.get("message", ""),
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
                    workload.get("message") or agent.get("message", ""),
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
    return "\n\n".join([head, table(applications), table(units)])


def table(rows: Sequence[Sequence[str]]) -> str:
    """Align columns."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )

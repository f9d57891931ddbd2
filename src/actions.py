"""What actions answer, as text for people; pure."""

from __future__ import annotations

from typing import Any

import yaml

import cluster
import lifecycle


def listed(answer: lifecycle.Answer) -> dict[str, str]:
    """Answer `list-uninjected`."""
    summary = answer.summary
    return {
        "in-mesh": f"{summary.in_mesh}/{summary.eligible}",
        "pods": "\n".join(map(_line, answer.pods)) or "none",
    }


def restarted(pods: list[dict[str, Any]], *, dry_run: bool) -> dict[str, str]:
    """Answer `restart-uninjected`."""
    ours = [pod for pod in pods if pod.get("fixable")]
    others = [pod for pod in pods if not pod.get("fixable")]
    key = "would-restart" if dry_run else "restarting"
    return {
        key: "\n".join(map(_line, ours)) or "none",
        "not-ours-to-restart": "\n".join(map(_line, others)) or "none",
    }


def shown(objects: list[cluster.Object]) -> dict[str, str]:
    """Answer `show-manifests` with live objects, without the API server's bookkeeping."""
    cleaned: list[Any] = []
    for obj in objects:
        metadata = {key: obj["metadata"][key] for key in obj["metadata"] if key != "managedFields"}
        head = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata}
        rest = {key: value for key, value in obj.items() if key not in (*head, "status")}
        if obj["kind"] == "Secret":
            rest["data"] = dict.fromkeys(cluster.at(obj, "data"), "(not shown)")
        cleaned.append({**head, **rest})
    return {"manifests": yaml.safe_dump_all(cleaned, sort_keys=False) if cleaned else "none"}


def _line(pod: dict[str, Any]) -> str:
    workload = pod.get("workload")
    owner = f" ({workload})" if workload else ""
    return f"{pod.get('namespace')}/{pod.get('name')}{owner}: {pod.get('message')}"

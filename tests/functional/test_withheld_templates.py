"""A real kube-apiserver numbers the templates of a DaemonSet where we look for the number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sidecar_lifecycle.model import resources
from sidecar_lifecycle.shell import settings as options
from sidecar_lifecycle.shell.convergence import cluster as hands
from sidecar_lifecycle.shell.kube import client

from tests import workload_access


def daemon_set(namespace: str, image: str) -> dict[str, Any]:
    labels = {"app": "x"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "x"}]}}
    template["spec"]["containers"][0]["image"] = image
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "x", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": template,
            "updateStrategy": {"type": "OnDelete"},
        },
    }


async def test_template_that_changes_has_another_number(kubeconfig: Path, namespace: str):
    connection = workload_access.connect(kubeconfig)
    try:
        settings = options.Settings(model=namespace, application="a", unit="a/0")
        subject = hands.Cluster(connection, options.Live(settings))
        where = client.path(resources.DaemonSet, namespace)
        await connection.request("POST", where, body=daemon_set(namespace, "registry.invalid/x:1"))
        first = (await subject.owners([])).lookup("DaemonSet", "x")
        await connection.request(
            "PUT", f"{where}/x", body=daemon_set(namespace, "registry.invalid/x:2")
        )
        second = (await subject.owners([])).lookup("DaemonSet", "x")
    finally:
        await connection.close()

    assert first is not None
    assert second is not None
    assert (first.withheld_from, second.withheld_from) == ("1", "2")

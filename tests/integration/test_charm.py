"""The life of the charm on a real Juju: deploy, relate, toggle, refresh, scale, remove."""

from __future__ import annotations

import json
import pathlib
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import jubilant
import pytest

APP = "istio-integrator"
CERTIFICATES = "self-signed-certificates"
WEB = "kubeflow-volumes"


@pytest.fixture(scope="module")
def juju() -> Iterator[jubilant.Juju]:
    """A model of its own, with time for a bundle's images to be fetched."""
    with jubilant.temp_model() as juju:
        juju.wait_timeout = 15 * 60
        yield juju


def kubectl(*arguments: str) -> dict[str, Any]:
    """Ask the cluster that the controller runs on."""
    command = ["kubectl", "--output=json", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def model_of(juju: jubilant.Juju) -> str:
    assert juju.model is not None
    return juju.model.rpartition(":")[2].rpartition("/")[2]


def namespace_labels(juju: jubilant.Juju) -> dict[str, str]:
    return kubectl("get", "namespace", model_of(juju))["metadata"].get("labels", {})


def settled(*apps: str) -> Callable[[jubilant.Status], bool]:
    return lambda status: jubilant.all_active(status, *apps)


@pytest.fixture(scope="module")
def deployed(juju: jubilant.Juju, charm: pathlib.Path, resources: dict[str, str]) -> str:
    juju.deploy(charm, APP, resources=resources, trust=True)
    juju.wait(settled(APP), error=jubilant.any_error)
    return APP


def test_deployed_charm_makes_the_model_a_member(juju: jubilant.Juju, deployed: str):
    message = juju.status().apps[deployed].app_status.message
    assert "pods in mesh" in message
    labels = namespace_labels(juju)
    assert labels.get("istio-injection") == "enabled" or "istio.io/rev" in labels


def test_application_that_comes_later_is_in_the_mesh_and_gets_its_route(
    juju: jubilant.Juju, deployed: str
):
    juju.deploy(WEB, trust=True)
    juju.config(deployed, {"strict-ingress-auth": False})
    juju.integrate(f"{deployed}:ingress", f"{WEB}:ingress")
    juju.wait(settled(deployed, WEB), error=jubilant.any_error)
    answer = juju.run(f"{deployed}/0", "list-uninjected").results
    assert answer["pods"] == "none"


def test_certificate_of_a_relation_reaches_the_gateway(juju: jubilant.Juju, deployed: str):
    juju.deploy(CERTIFICATES)
    juju.config(deployed, {"hosts": "kubeflow.example.test"})
    juju.integrate(f"{deployed}:certificates", f"{CERTIFICATES}:certificates")
    juju.wait(settled(deployed, CERTIFICATES), error=jubilant.any_error)
    manifests = juju.run(f"{deployed}/0", "show-manifests").results["manifests"]
    assert "kubernetes.io/tls" in manifests


@pytest.mark.parametrize(
    ("option", "value"),
    [("hold-application", False), ("proxy-shutdown", False), ("sidecar-convergence", "manual")],
)
def test_options_can_be_toggled(
    juju: jubilant.Juju, deployed: str, option: str, value: bool | str
):
    before = juju.config(deployed)[option]
    juju.config(deployed, {option: value})
    juju.wait(settled(deployed), error=jubilant.any_error)
    juju.config(deployed, {option: before})
    juju.wait(settled(deployed), error=jubilant.any_error)


def test_bad_option_blocks_and_names_itself(juju: jubilant.Juju, deployed: str):
    juju.config(deployed, {"sidecar-mode": "sideways"})
    status = juju.wait(lambda status: jubilant.all_blocked(status, deployed))
    assert "sidecar-mode" in status.apps[deployed].app_status.message
    juju.config(deployed, reset="sidecar-mode")
    juju.wait(settled(deployed), error=jubilant.any_error)


def test_refreshed_charm_changes_nothing(
    juju: jubilant.Juju, deployed: str, charm: pathlib.Path, resources: dict[str, str]
):
    labels = namespace_labels(juju)
    juju.refresh(deployed, path=charm, resources=resources)
    juju.wait(settled(deployed), error=jubilant.any_error)
    assert namespace_labels(juju) == labels


def test_units_come_and_go_and_one_acts(juju: jubilant.Juju, deployed: str):
    juju.add_unit(deployed, num_units=2)
    juju.wait(
        lambda status: (
            len(status.apps[deployed].units) == 3 and jubilant.all_active(status, deployed)
        ),
        error=jubilant.any_error,
    )
    juju.remove_unit(deployed, num_units=2)
    juju.wait(
        lambda status: (
            len(status.apps[deployed].units) == 1 and jubilant.all_active(status, deployed)
        )
    )


def test_removed_charm_leaves_the_cluster_as_it_was(juju: jubilant.Juju, deployed: str):
    juju.remove_application(deployed)
    juju.wait(lambda status: deployed not in status.apps)
    labels = namespace_labels(juju)
    assert "istio-injection" not in labels
    assert "istio.io/rev" not in labels
    owner = f"istio-integrator.charmhub.io/owner={model_of(juju)}.{deployed}"
    left = kubectl(
        "get",
        "mutatingwebhookconfigurations,clusterroles,configmaps,deployments",
        "--all-namespaces",
        f"--selector={owner}",
    )
    assert left["items"] == []

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


def last_hook(status: jubilant.Status, app: str) -> dict[str, str]:
    """When the agent of each unit began to do what it does, or has nothing to do since."""
    return {name: unit.juju_status.since for name, unit in status.apps[app].units.items()}


def configure(juju: jubilant.Juju, app: str, values: dict[str, bool | str]) -> None:
    """Change options, and wait until the units have seen them and are settled again."""
    before = last_hook(juju.status(), app)
    juju.config(app, values)
    wait_for_hooks(juju, app, before)


def wait_for_hooks(juju: jubilant.Juju, app: str, before: dict[str, str]) -> None:
    """Wait until the units have run hooks since then, and are settled again."""
    juju.wait(
        lambda status: (
            not last_hook(status, app).items() & before.items()
            and jubilant.all_agents_idle(status, app)
            and jubilant.all_active(status, app)
        ),
        error=jubilant.any_error,
    )


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
    juju.wait(
        lambda status: (
            jubilant.all_active(status, deployed, WEB)
            and "1 route " in status.apps[deployed].app_status.message
        ),
        error=jubilant.any_error,
    )
    answer = juju.run(f"{deployed}/0", "list-uninjected").results
    assert answer["pods"] == "none"


def test_certificate_of_a_relation_reaches_the_gateway(juju: jubilant.Juju, deployed: str):
    juju.deploy(CERTIFICATES)
    juju.config(deployed, {"hosts": "kubeflow.example.test"})
    juju.integrate(f"{deployed}:certificates", f"{CERTIFICATES}:certificates")
    juju.wait(settled(CERTIFICATES), error=jubilant.any_error)

    def has_certificate(status: jubilant.Status) -> bool:
        if not jubilant.all_active(status, deployed):
            return False
        manifests = juju.run(f"{deployed}/0", "show-manifests").results["manifests"]
        return "kubernetes.io/tls" in manifests

    juju.wait(has_certificate, error=jubilant.any_error)


@pytest.mark.parametrize(
    ("option", "value"),
    [("hold-application", False), ("proxy-shutdown", False), ("sidecar-convergence", "manual")],
)
def test_options_can_be_toggled(
    juju: jubilant.Juju, deployed: str, option: str, value: bool | str
):
    before = juju.config(deployed)[option]
    assert isinstance(before, bool | str)
    configure(juju, deployed, {option: value})
    assert juju.config(deployed)[option] == value
    configure(juju, deployed, {option: before})


def test_bad_option_blocks_and_names_itself(juju: jubilant.Juju, deployed: str):
    juju.config(deployed, {"job-sidecars": "sideways"})
    status = juju.wait(lambda status: jubilant.all_blocked(status, deployed))
    assert "job-sidecars" in status.apps[deployed].app_status.message
    juju.config(deployed, reset="job-sidecars")
    juju.wait(settled(deployed), error=jubilant.any_error)


def has_ambient() -> bool:
    daemons = kubectl("get", "daemonsets", "--all-namespaces")["items"]
    chosen = [each["spec"]["selector"].get("matchLabels", {}) for each in daemons]
    return any(each.get("app") == "ztunnel" for each in chosen)


def sidecars(juju: jubilant.Juju) -> set[str]:
    """Name the model's pods that have one."""
    return {
        pod["metadata"]["name"]
        for pod in kubectl("--namespace", model_of(juju), "get", "pods")["items"]
        if "sidecar.istio.io/status" in pod["metadata"].get("annotations", {})
    }


def redirected(juju: jubilant.Juju) -> set[str]:
    """Name the model's pods that ztunnel has taken in."""
    return {
        pod["metadata"]["name"]
        for pod in kubectl("--namespace", model_of(juju), "get", "pods")["items"]
        if pod["metadata"].get("annotations", {}).get("ambient.istio.io/redirection") == "enabled"
    }


def test_model_goes_into_ambient_mode_and_back(juju: jubilant.Juju, deployed: str):
    if not has_ambient():
        pytest.skip("the cluster has no ztunnel: install Istio with profile=ambient")
    before = namespace_labels(juju)
    configure(juju, deployed, {"mesh-mode": "ambient"})
    juju.wait(lambda _: not sidecars(juju))
    labels = namespace_labels(juju)
    assert labels["istio.io/dataplane-mode"] == "ambient"
    assert "istio-injection" not in labels
    assert "ambient mode" in juju.status().apps[deployed].app_status.message
    juju.wait(lambda _: f"{WEB}-0" in redirected(juju))
    assert not any(name.startswith(("modeloperator", deployed)) for name in redirected(juju))
    configure(juju, deployed, {"mesh-mode": "sidecar"})
    juju.wait(lambda _: f"{WEB}-0" in sidecars(juju))
    assert namespace_labels(juju) == before
    assert not redirected(juju)
    juju.config(deployed, reset="mesh-mode")
    juju.wait(settled(deployed), error=jubilant.any_error)


def test_refreshed_charm_changes_nothing(
    juju: jubilant.Juju, deployed: str, charm: pathlib.Path, resources: dict[str, str]
):
    labels = namespace_labels(juju)
    before = last_hook(juju.status(), deployed)
    juju.refresh(deployed, path=charm, resources=resources)
    wait_for_hooks(juju, deployed, before)
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

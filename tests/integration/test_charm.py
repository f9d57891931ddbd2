"""The life of the charm on a real Juju: deploy, relate, toggle, refresh, scale, remove."""

import json
import pathlib
import subprocess
import textwrap
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import jubilant  # pyright: ignore[reportMissingImports]  it is in an environment of these tests
import pytest

APP = "istio-integrator"
CERTIFICATES = "self-signed-certificates"
WEB = "kubeflow-volumes"
MANY = 30
"""Applications that are related at once."""


@pytest.fixture(scope="module")
def juju() -> Iterator[jubilant.Juju]:
    """A model of its own, with time for a bundle's images to be fetched."""
    with jubilant.temp_model() as juju:
        juju.wait_timeout = 15 * 60
        yield juju


def kubectl(*arguments: str) -> dict[str, Any]:
    """Ask the cluster that the controller runs on."""
    return json.loads(kubectl_text("--output=json", *arguments))


def kubectl_text(*arguments: str) -> str:
    """Have kubectl do something in that cluster, and return what it prints."""
    command = ["kubectl", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


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
    juju.config(deployed, {"require-authentication": False})
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
        # The Secret lies in the gateway's namespace.
        manifests = juju.run(f"{deployed}/0", "show-manifests").results["manifests"]
        return "kubernetes.io/tls" in manifests

    juju.wait(has_certificate, error=jubilant.any_error)


@pytest.mark.parametrize(
    ("option", "value"),
    [("hold-application", False), ("proxy-shutdown", False), ("restart-pods", "manual")],
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
    # Juju 4.0 runs no hook after a reset, so the default is set.
    juju.config(deployed, {"job-sidecars": "auto"})
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
    juju.config(deployed, {"mesh-mode": "auto"})
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


def unit_pods(juju: jubilant.Juju) -> dict[str, dict[str, Any]]:
    """Return the pods of the model's units by name: Juju's charm-init is in no other."""
    return {
        pod["metadata"]["name"]: pod
        for pod in kubectl("--namespace", model_of(juju), "get", "pods")["items"]
        if any(each["name"] == "charm-init" for each in pod["spec"].get("initContainers", []))
    }


def test_unit_whose_pod_is_recreated_comes_back_with_its_charm_first(
    juju: jubilant.Juju, deployed: str
):
    """Juju takes the first container of a unit's pod for the charm's, also where sidecars hold."""
    name = f"{WEB}-0"
    before = unit_pods(juju)[name]["metadata"]["uid"]
    kubectl_text("--namespace", model_of(juju), "delete", "pod", name)

    def has_returned(status: jubilant.Status) -> bool:
        pod = unit_pods(juju).get(name)
        return (
            pod is not None
            and pod["metadata"]["uid"] != before
            and jubilant.all_active(status, deployed, WEB)
            and jubilant.all_agents_idle(status, deployed, WEB)
        )

    juju.wait(has_returned)
    assert name in sidecars(juju)
    first = {name: pod["spec"]["containers"][0]["name"] for name, pod in unit_pods(juju).items()}
    assert set(first.values()) == {"charm"}, first


ROUTED = {
    "metadata.yaml": """
        name: routed
        summary: Requests a route
        description: Requests a route whose prefix is the name of the application.
        requires: {ingress: {interface: ingress}}
        """,
    "manifest.yaml": """
        bases: [{name: ubuntu, channel: "24.04", architectures: [amd64, arm64]}]
        """,
    "dispatch": """
        #!/bin/sh
        set -e
        status-set active
        open-port 8080/tcp
        [ "$(is-leader)" = True ] || exit 0
        name=${JUJU_UNIT_NAME%/*}
        for relation in $(relation-ids ingress); do
          relation-set --relation "$relation" --app _supported_versions="- v1" \\
            data="{service: $name, port: 8080, prefix: /$name/, rewrite: /}"
        done
        """,
}
"""A charm without Python, for which no image is fetched."""


@pytest.fixture(scope="session")
def routed(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Pack a charm that requests a route of its own for each application."""
    path = tmp_path_factory.mktemp("routed") / "routed.charm"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in ROUTED.items():
            member = zipfile.ZipInfo(name)
            member.external_attr = 0o755 << 16
            archive.writestr(member, textwrap.dedent(text).lstrip())
    return path


def test_thirty_relations_at_once_are_all_served(
    juju: jubilant.Juju, deployed: str, routed: pathlib.Path
):
    """Notices of the workload overtake relation hooks that wait."""
    names = [f"routed-{number}" for number in range(MANY)]
    for name in names:
        juju.deploy(routed, name)
    juju.wait(settled(*names), timeout=60 * 60)
    for name in names:
        juju.integrate(f"{deployed}:ingress", f"{name}:ingress")

    def are_served(status: jubilant.Status) -> bool:
        # One more is of the scenario above.
        routes = f"{MANY + 1} routes"
        return settled(deployed)(status) and routes in status.apps[deployed].app_status.message

    juju.wait(are_served, error=jubilant.any_error)
    juju.remove_application(*names)
    juju.wait(lambda status: not {*names} & {*status.apps}, timeout=60 * 60)
    juju.wait(settled(deployed), error=jubilant.any_error)


def owned(juju: jubilant.Juju, app: str) -> list[dict[str, Any]]:
    """List the objects that the charm made."""
    owner = f"istio-integrator.charmhub.io/owner={model_of(juju)}.{app}"
    kinds = "mutatingwebhookconfigurations,clusterroles,configmaps,deployments"
    return kubectl("get", kinds, "--all-namespaces", f"--selector={owner}")["items"]


def test_application_that_was_removed_by_force_recovers_when_it_is_deployed_again(
    juju: jubilant.Juju, deployed: str, charm: pathlib.Path, resources: dict[str, str]
):
    juju.remove_application(deployed, force=True)
    juju.wait(lambda status: deployed not in status.apps)
    juju.deploy(charm, deployed, resources=resources, trust=True)
    juju.wait(settled(deployed), error=jubilant.any_error)
    labels = namespace_labels(juju)
    assert labels.get("istio-injection") == "enabled" or "istio.io/rev" in labels
    assert owned(juju, deployed)


def test_removed_charm_leaves_the_cluster_as_it_was(juju: jubilant.Juju, deployed: str):
    juju.remove_application(deployed)
    juju.wait(lambda status: deployed not in status.apps)
    labels = namespace_labels(juju)
    assert "istio-injection" not in labels
    assert "istio.io/rev" not in labels
    assert owned(juju, deployed) == []

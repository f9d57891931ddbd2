"""Which of several Istios the charm takes, where none of them is the default one.

Webhook configurations and tags are written by the real istioctl; there is no istiod behind them.
"""

from __future__ import annotations

import contextlib
import os
import subprocess

import pytest

from istio_integrator.kube import cluster as charm_cluster
from testbed import programs
from tests.functional import loopback_istiod
from tests.functional.discovery_world import ALLOWED, discover, said


@pytest.fixture(scope="module")
def api(client):
    """The API server."""
    return charm_cluster.Cluster(client)


def injectors_of(api, *revisions):
    """Have the injectors of revisions, without any istiod behind them."""
    return injectors_as(api, *(f"revision={revision}" for revision in revisions))


@contextlib.contextmanager
def injectors_as(api, *settings):
    """Have the injector of an installation with each of the settings."""
    applied = []
    loopback_istiod.create_namespace(api)
    try:
        for setting in settings:
            for (kind, _), item in loopback_istiod.render(setting).items():
                if kind == "MutatingWebhookConfiguration":
                    applied.append(api.apply(item))
        yield
    finally:
        for item in applied:
            api.delete(item)


def istioctl(kubeconfig, command):
    """Run the real istioctl."""
    run = subprocess.run(
        [programs.binary("istioctl"), *command.split()],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr + run.stdout


@pytest.fixture
def tags(kubeconfig):
    """Set a tag by istioctl, as the operator does; at the end all are removed."""
    share = programs.directory("istio") / "share" / "manifests"
    there = set()

    def set_tag(command):
        name = command.removeprefix("tag set ").partition(" ")[0]
        there.add(name)
        istioctl(kubeconfig, f"{command} --overwrite --skip-confirmation --manifests={share}")

    yield set_tag
    for name in there:
        istioctl(kubeconfig, f"tag remove {name} --skip-confirmation")


def test_only_revision_is_joined_by_its_name(api, namespace):
    with injectors_of(api, "canary"):
        found = discover(api, namespace).mesh
    assert not found.is_default
    assert found.namespace_labels == {"istio.io/rev": "canary"}
    assert (found.service, found.webhook_configuration) == (
        "istiod-canary",
        "istio-sidecar-injector-canary",
    )


@pytest.mark.long
def test_several_revisions_are_named_with_the_line_to_type(api, namespace):
    with injectors_of(api, "blue", "green"):
        several = said(discover(api, namespace))
        assert "juju config istio-integrator revision=" in several[0]
        assert all(f"{name} (istio-system)" in several[0] for name in ("blue", "green"))
        assert discover(api, namespace, revision="green").mesh.revision == "green"
        assert said(discover(api, namespace, revision="red")) == [
            "blocked: revision red does not exist; there is blue, green"
        ]


@pytest.mark.long
def test_istios_of_several_namespaces_are_told_apart(api, namespace):
    places = ("istio-one", "istio-two")
    with injectors_as(api, *(f"values.global.istioNamespace={place}" for place in places)):
        (several,) = said(discover(api, namespace))
        assert several.startswith(
            "blocked: several Istios; "
            "run: juju config istio-integrator istiod-namespace=istio-one; "
        )
        for place in places:
            for wish in ({"istiod_namespace": place}, {"hint": place}):
                found = discover(api, namespace, **wish).mesh
                assert (found.namespace, found.is_default) == (place, True)
                assert found.webhook_configuration == f"istio-sidecar-injector-{place}"
        both = discover(api, namespace, hint="istio-one", istiod_namespace="istio-two")
        assert both.mesh.namespace == "istio-two"


@pytest.mark.long
def test_tag_that_istioctl_sets_counts_and_is_followed(api, namespace, tags):
    with injectors_of(api, "blue", "green"):
        tags("tag set prod --revision blue")
        assert "prod (istio-system)" in said(discover(api, namespace))[0]
        found = discover(api, namespace, revision="prod").mesh
        assert found.namespace_labels == {"istio.io/rev": "prod"}
        assert found.service == "istiod-blue"
        tags("tag set prod --revision green")
        moved = discover(api, namespace, revision="prod").mesh
        assert moved.namespace_labels == found.namespace_labels
        assert moved.service == "istiod-green"


@pytest.mark.long
def test_profiles_without_a_default_revision_get_one_by_the_command_of_the_status(
    api, namespace, tags
):
    labels = {**ALLOWED, "app.kubernetes.io/part-of": "kubeflow-profile"}
    metadata = {"name": f"{namespace}-alice", "labels": labels}
    profile = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    api.create(profile)
    try:
        with injectors_of(api, "canary"):
            (blocked,) = [one for one in said(discover(api, namespace)) if "profile" in one]
            assert blocked.startswith("blocked: no default revision for 1 profile namespaces")
            command = blocked.partition("run: istioctl ")[2]
            assert command == "tag set default --revision canary"
            tags(command)
            discovery = discover(api, namespace)
            assert discovery.mesh.namespace_labels == ALLOWED
            assert not any("profile" in one for one in said(discovery))
    finally:
        api.delete(profile)

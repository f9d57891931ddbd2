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
from tests.functional.discovery_world import discover, said


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

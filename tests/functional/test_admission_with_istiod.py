"""The table of cases with the real istiod injecting after us.

What istiod makes of a pod that we changed must be what it makes of a pod that was sent like that:
the same in every field, or the same refusal. The webhook is asked again after the injection, which
changes nothing more.
"""

from __future__ import annotations

import json
import re

import pytest

from integrator_contract import names
from istio_integrator.istio import probe
from istio_integrator.kube import cluster, errors
from tests.functional import admission_cases as table
from tests.functional import loopback_istiod, loopback_webhook


@pytest.fixture(scope="module")
def api(client, kubeconfig, tmp_path_factory):
    """The API server, with an istiod that it asks."""
    api = cluster.Cluster(client)
    with loopback_istiod.serving(api, kubeconfig, tmp_path_factory.mktemp("istiod")):
        yield api


@pytest.fixture(scope="module")
def served(api, tmp_path_factory):
    """Every settings of the table, in namespaces of the mesh, and the servers."""
    root = tmp_path_factory.mktemp("webhooks")
    with loopback_webhook.worlds(api, "meshed", root, meshed=True) as served:
        yield served


@pytest.fixture(scope="module")
def world(served):
    return served[0]


def sent_as_wanted(case, namespace):
    """Write the pod as the table says that it is after us."""
    pod = case.pod(namespace)
    pod["metadata"] |= {"labels": case.all_labels, "annotations": case.all_annotations}
    spec = pod["spec"]
    for field in {"initContainers", "containers"} & set(spec):
        spec[field] = [
            {**one, "image": case.want_images.get(one["name"], one["image"])}
            for one in spec[field]
        ]
    spec["containers"] = case.in_order(spec["containers"])
    return pod


def outcome(world, pod):
    """Tell what became of a pod, without what differs by time and place."""
    try:
        created = world.try_pod(json.loads(json.dumps(pod)))
    except errors.ApiError as error:
        return {"refused": error.message}
    for field in ("uid", "creationTimestamp", "managedFields"):
        created["metadata"].pop(field, None)
    text = re.sub(r"kube-api-access-\w+", "kube-api-access", json.dumps(created))
    return json.loads(text.replace(pod["metadata"]["namespace"], "NAMESPACE"))


@pytest.mark.parametrize("case", table.CASES, ids=lambda case: case.id)
def test_istiod_takes_it_as_if_the_pod_had_been_sent_so(world, case):
    changed = outcome(world, case.pod(world.namespace(case)))

    assert changed == outcome(world, sent_as_wanted(case, world.twin_of(case)))
    if not case.settings.startswith("ambient"):
        # There it is not the injector that what we change is for.
        assert_meant(case, changed)


def assert_meant(case, created):
    """See that istiod did what each change is for."""
    if "refused" in created:
        assert case.want == ()
        return
    answer = probe.read(created)
    if "excluded" in case.want:
        assert "sidecar.istio.io/status" not in created["metadata"].get("annotations", {})
    if "inject" in case.want:
        assert answer.probed
    if "native" in case.want:
        assert answer.native_proxy
    if answer.probed and "hold" in case.want:
        first = created["spec"]["containers"][0]
        assert answer.native_proxy or "postStart" in first["lifecycle"]
    if answer.probed and "ports" in case.want:
        wanted = re.split(r"[, ]+", case.want_annotations[table.PORTS])
        assert set(wanted) <= set(ports_of(created["spec"]["initContainers"][0]))


def ports_of(container):
    """Read which outbound ports istio-init leaves alone."""
    arguments = container["args"]
    return re.split(r"[, ]+", arguments[arguments.index("-o") + 1])


@pytest.mark.parametrize(
    ("labels", "calls"),
    [
        pytest.param({}, 2, id="injected"),
        pytest.param({table.INJECT: "false"}, 1, id="outside"),
        pytest.param({names.MESH_PROBE: "true"}, 0, id="mesh-probe"),
    ],
)
def test_the_webhook_is_called_again_after_an_injection(served, labels, calls):
    world, servers = served
    reviews = "sidecar_lifecycle_admission_reviews_total"
    before = servers["hold"].metric(reviews)

    created = world.try_pod(table.Case(id="", labels=labels).pod(world.model("hold")))

    assert servers["hold"].metric(reviews) - before == calls
    assert probe.read(created).probed is (table.INJECT not in labels)

"""Which backend the charm chooses, on real API servers with and without policies."""

from __future__ import annotations

import base64
import dataclasses
import os
import time
from collections.abc import Iterator

import lightkube
import lightkube.resources.core_v1
import lightkube.types
import ops
import pytest
from lightkube.config.kubeconfig import KubeConfig

from integrator_contract import names
from istio_integrator import parts
from istio_integrator.admission import admission, policy, webhook
from istio_integrator.config import config
from istio_integrator.kube import cluster, errors, manifests, owners
from istio_integrator.mesh import installation, probe
from testbed import cluster as testbed_cluster

MODEL = "kubeflow"
APPLICATION = "istio-integrator"
POLICIES = "admissionregistration.k8s.io/v1"


KINDS = ["policies", "no-plugin", "no-api"]
everywhere = pytest.mark.parametrize("api", KINDS, indirect=True, scope="module")
with_policies = pytest.mark.parametrize("api", KINDS[:1], indirect=True, scope="module")


@pytest.fixture(scope="module")
def api(request, client) -> Iterator[tuple[str, cluster.Cluster]]:
    """API servers that have policies, only serve them, or know nothing of them."""
    if request.param == "policies":
        yield request.param, cluster.Cluster(client)
        return
    without = testbed_cluster.Testbed(f"choice-{request.param}-{os.getpid()}")
    without.up(
        testbed_cluster.Options(
            control_plane_only=True,
            disable_policy_api=request.param == "no-api",
            disable_policy_plugin=request.param == "no-plugin",
        )
    )
    configuration = KubeConfig.from_file(without.kubeconfig).get()
    with lightkube.Client(config=configuration) as other:
        yield request.param, cluster.Cluster(other)
    without.down()


@pytest.fixture
def model(api):
    _, reach = api
    metadata = {"name": MODEL}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    if reach.get(cluster.NAMESPACE, MODEL) is None:
        reach.create(namespace)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{APPLICATION}-0", "namespace": MODEL},
        "spec": {
            "containers": [{"name": "charm", "image": "charm"}],
            "imagePullSecrets": [{"name": "pull"}],
        },
    }
    if reach.get(cluster.POD, f"{APPLICATION}-0", MODEL) is None:
        reach.create(pod)
    yield
    subject(reach).remove()
    wait_until_unchanged(reach)
    left = [
        cluster.reference(obj)
        for folder in (
            policy.FOLDER,
            webhook.WORKLOAD_FOLDER,
            webhook.CONFIGURATION_FOLDER,
            webhook.CERTIFICATES_FOLDER,
        )
        for kind in manifests.kinds(folder)
        for obj in reach.list(kind, labels={names.COMPONENT: folder})
        if "deletionTimestamp" not in obj["metadata"]
    ]
    assert left == []


def wait_until_unchanged(reach):
    """Wait until the API server has noticed that the policy is gone."""
    probe_pod = probe.pod(MODEL, {names.PROBE: "policy"}, native=False)
    for _ in range(100):
        created = reach.create(probe_pod, dry_run=True)
        if names.SETTINGS not in created["metadata"]["annotations"]:
            return
        time.sleep(0.05)
    raise AssertionError("the policy still changes pods")


def subject(reach, *, leader=True, found=None, **options):
    scope = parts.Context(
        cluster=reach,
        manifests=manifests.Manifests(reach, model=MODEL, application=APPLICATION),
        config=config.Config(**options),
        mesh=found,
        model=MODEL,
        application=APPLICATION,
        unit=f"{APPLICATION}/0",
        leader=leader,
    )
    return admission.Admission(scope, lambda: "registry.example/lifecycle:1")


def said(subject):
    return [(type(status), status.message) for status in subject.statuses()]


def make_ready(reach):
    """Say what a kubelet would of the webhook's pods, and wait until that is known."""
    name = owners.object_name(APPLICATION, "admission")
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    for _ in range(200):
        labels = {names.COMPONENT: webhook.WORKLOAD_FOLDER}
        for pod in reach.list(cluster.POD, MODEL, labels):
            if "deletionTimestamp" not in pod["metadata"]:
                reach.client.patch(
                    lightkube.resources.core_v1.PodStatus,
                    pod["metadata"]["name"],
                    {"status": {"phase": "Running", "conditions": [ready]}},
                    namespace=MODEL,
                    patch_type=lightkube.types.PatchType.MERGE,
                )
        live = reach.get(cluster.DEPLOYMENT, name, MODEL)
        if cluster.at(live, "status").get("readyReplicas") == 2:
            return live
        time.sleep(0.05)
    raise AssertionError(live["status"])


@everywhere
@pytest.mark.usefixtures("model")
def test_auto_takes_the_policy_where_it_works_and_else_the_webhook(api):
    kind, reach = api
    choice = subject(reach)

    choice.reconcile()

    if kind == "policies":
        assert said(choice) == [(ops.ActiveStatus, "policy")]
        assert reach.get(cluster.DEPLOYMENT, "istio-integrator-admission", MODEL) is None
    else:
        starting = "admission: the webhook's pods are starting"
        assert said(choice) == [(ops.WaitingStatus, starting)]
        assert reach.list(cluster.MUTATING_WEBHOOK) == []


@everywhere
@pytest.mark.usefixtures("model")
def test_policy_alone_is_blocked_where_it_does_not_work(api):
    kind, reach = api
    choice = subject(reach, admission="policy")

    choice.reconcile()

    problem = {
        "policies": (ops.ActiveStatus, "policy"),
        "no-plugin": (ops.BlockedStatus, "admission: a dry-run pod came back unchanged"),
        "no-api": (
            ops.BlockedStatus,
            "admission: the cluster serves no MutatingAdmissionPolicy",
        ),
    }[kind]
    hint = "; set admission=auto or admission=webhook"
    want = problem[1] if problem[0] is ops.ActiveStatus else problem[1] + hint
    assert said(choice) == [(problem[0], want)]


@with_policies
@pytest.mark.usefixtures("model")
def test_the_webhook_is_asked_only_when_it_is_ready_and_goes_first(api):
    _, reach = api
    choice = subject(reach, admission="webhook")
    choice.reconcile()
    deployment = make_ready(reach)
    choice.reconcile()

    configurations = reach.list(cluster.MUTATING_WEBHOOK)
    assert len(configurations) == 1
    reference = configurations[0]["webhooks"][0]["clientConfig"]["service"]
    assert (reference["name"], reference["namespace"]) == (
        "istio-integrator-admission",
        MODEL,
    )
    spec = deployment["spec"]["template"]["spec"]
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert spec["containers"][0]["image"] == "registry.example/lifecycle:1"
    # No server is behind the Service here, so nothing may be claimed.
    assert [type(status) for status in choice.statuses()] == [ops.WaitingStatus]


@with_policies
@pytest.mark.usefixtures("model")
def test_the_webhooks_pods_are_admitted_under_the_restricted_standard(api):
    _, reach = api
    namespace = reach.get(cluster.NAMESPACE, MODEL)
    enforce = "pod-security.kubernetes.io/enforce"
    reach.merge_patch(namespace, {"metadata": {"labels": {enforce: "restricted"}}})
    try:
        subject(reach, admission="webhook").reconcile()
        live = reach.get(cluster.DEPLOYMENT, "istio-integrator-admission", MODEL)
        template = live["spec"]["template"]
        metadata = {"name": "one", "namespace": MODEL, **template["metadata"]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        created = reach.create(pod, dry_run=True)
    finally:
        reach.merge_patch(namespace, {"metadata": {"labels": {enforce: None}}})

    assert created["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
    assert "app.kubernetes.io/name" not in created["metadata"]["labels"]


@everywhere
@pytest.mark.usefixtures("model")
def test_a_second_reconcile_writes_nothing(api, monkeypatch):
    kind, reach = api
    subject(reach).reconcile()
    folders = (policy.FOLDER, webhook.WORKLOAD_FOLDER, webhook.CERTIFICATES_FOLDER)
    owned = [
        obj
        for folder in folders
        for of in manifests.kinds(folder)
        for obj in reach.list(of, labels={names.COMPONENT: folder})
    ]
    written = []
    apply = cluster.Cluster.apply

    def noted(self, obj):
        # Where there are no policies, this is where it is found out.
        live = apply(self, obj)
        written.append(cluster.reference(live))
        return live

    monkeypatch.setattr(cluster.Cluster, "apply", noted)
    subject(reach).reconcile()

    assert written == []
    assert len(owned) >= (1 if kind == "policies" else 6)


@with_policies
@pytest.mark.usefixtures("model")
def test_a_follower_writes_nothing_and_says_what_is_true(api):
    _, reach = api
    follower = subject(reach, leader=False)
    follower.reconcile()
    waiting = [(ops.WaitingStatus, "admission: waiting for the leader")]
    assert said(follower) == waiting

    subject(reach).reconcile()
    follower.reconcile()

    assert said(follower) == [(ops.ActiveStatus, "policy")]
    # It may see an option before the leader does, and nothing tells it when that has followed.
    ahead = subject(reach, leader=False, hold_application=False)
    ahead.reconcile()
    assert said(ahead) == [(ops.ActiveStatus, "policy")]


@with_policies
@pytest.mark.usefixtures("model")
def test_options_take_effect_at_once(api):
    _, reach = api
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one", "namespace": MODEL},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }
    for hold in (True, False, True):
        choice = subject(reach, hold_application=hold)
        choice.reconcile()
        found = cluster.at(reach.create(pod, dry_run=True), "metadata", "annotations")
        assert said(choice) == [(ops.ActiveStatus, "policy")]
        assert ("proxy.istio.io/config" in found) is hold


@with_policies
@pytest.mark.usefixtures("model")
def test_a_rotation_replaces_what_servers_show_and_what_clients_trust(api):
    _, reach = api
    choice = subject(reach, admission="webhook")
    choice.reconcile()
    assert "no webhook is in use" in choice.rotate()["result"]
    make_ready(reach)
    choice.reconcile()

    def now():
        secret = reach.get(cluster.SECRET, "istio-integrator-admission-tls", MODEL)["data"]
        hook = reach.list(cluster.MUTATING_WEBHOOK)[0]["webhooks"][0]
        return secret, base64.b64decode(hook["clientConfig"]["caBundle"]).decode()

    before, trusted_before = now()
    result = choice.rotate()["result"]
    after, trusted_after = now()

    # No server is behind the Service here.
    assert result.startswith("certificates are replaced, the webhook does not answer")
    assert all(before[key] != after[key] for key in ("ca.crt", "tls.crt", "tls.key"))
    assert trusted_after.endswith(trusted_before)
    assert len(trusted_after) > len(trusted_before)
    with pytest.raises(errors.CharmError, match="only the leader"):
        subject(reach, leader=False, admission="webhook").rotate()


@everywhere
@pytest.mark.usefixtures("model")
def test_an_absent_istiod_changes_nothing(api):
    kind, reach = api
    found = installation.Mesh(
        namespace="istio-system",
        revision="canary",
        is_default=False,
        alive=True,
        probed=True,
        native_sidecars=True,
    )
    away = dataclasses.replace(found, alive=False, probed=False, native_sidecars=False)
    subject(reach, found=found).reconcile()

    def applied():
        if kind == "policies":
            policies = reach.list(cluster.kind(POLICIES, "MutatingAdmissionPolicy"))
            return [(one["metadata"]["resourceVersion"], one["spec"]) for one in policies]
        return reach.get(cluster.CONFIG_MAP, f"{APPLICATION}-admission", MODEL)

    before = applied()
    for moment in (away, None, away):
        subject(reach, found=moment).reconcile()
        assert applied() == before
    subject(reach, found=dataclasses.replace(found, native_sidecars=False)).reconcile()
    assert applied() != before


@with_policies
@pytest.mark.usefixtures("model")
def test_a_policy_that_is_refused_gives_way_to_the_webhook(api, monkeypatch):
    _, reach = api
    subject(reach).reconcile()
    policies = cluster.kind(POLICIES, "MutatingAdmissionPolicy")
    render = manifests.render

    def unknown_to_this_server(folder, context):
        rendered = render(folder, context)
        if folder == policy.FOLDER:
            rendered[0]["spec"]["variables"][0]["expression"] += ".unheardOf()"
        return rendered

    monkeypatch.setattr(manifests, "render", unknown_to_this_server)
    choice = subject(reach)
    choice.reconcile()
    starting = "admission: the webhook's pods are starting"
    assert said(choice) == [(ops.WaitingStatus, starting)]
    assert reach.list(policies) != []
    make_ready(reach)
    choice = subject(reach)
    monkeypatch.setattr(choice, "_try", lambda *_, **__: admission.Trial(works=True))
    choice.reconcile()
    assert said(choice) == [(ops.ActiveStatus, "webhook")]
    assert reach.list(policies) == []

    alone = subject(reach, admission="policy")
    alone.reconcile()
    [status] = alone.statuses()
    assert status.message.startswith("admission: the policy is refused: MutatingAdmissionPolicy")

"""The life of the application: whatever fails becomes a status, and the next event repairs it."""

import itertools

import ops
import pytest
from ops import testing

import charm
from istio_integrator import error_messages
from istio_integrator.admission import admission
from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.kube import errors
from istio_integrator.messages import Said
from tests.unit.charm import charm_world, fake_cluster, needed_rights
from tests.unit.charm.charm_world import state

TIMEOUT = 0
FOLLOWS_ISTIO = ("security.istio.io/v1", "networking.istio.io/v1", "networking.istio.io/v1alpha3")


@pytest.fixture(autouse=True)
def connected(fake, monkeypatch):
    monkeypatch.setattr(admission, "PROBE_DELAYS", ())
    monkeypatch.setattr(charm_cluster, "connect", fake.api)
    prepare(fake)


@pytest.fixture
def ctx() -> testing.Context[charm.IstioIntegrator]:
    return testing.Context(charm.IstioIntegrator)


def prepare(fake):
    """Have our own pod."""
    fake.application()
    named = {"metadata": {"name": "istio-integrator-0", "namespace": "kubeflow"}}
    spec = {"containers": [{"name": "lifecycle", "image": "workload:1"}]}
    fake.add({"apiVersion": "v1", "kind": "Pod", **named, "spec": spec})


def fresh():
    """Set up a cluster to which nothing has happened yet."""
    fake = charm_world.model()
    fake_cluster.install_istio(fake)
    prepare(fake)
    return fake


def run(ctx, fake, monkeypatch, event="config_changed", **options) -> ops.StatusBase:
    monkeypatch.setattr(charm_cluster, "connect", fake.api)
    return ctx.run(getattr(ctx.on, event)(), state(**options)).unit_status


def requests(ctx, monkeypatch) -> list[tuple[str, str]]:
    """List what the charm asks of a cluster in which nothing fails, by verb and resource."""
    fake = fresh()
    run(ctx, fake, monkeypatch)
    return sorted(fake.asked)


SHARPENS = {
    ("list", "validatingwebhookconfigurations"),
    ("list", "peerauthentications"),
    ("list", "authorizationpolicies"),
}
"""Requests whose answer only tells of the faults of others, so that their failure is no status."""


def may_be_active(verb, resource, code):
    """Tell whether all is well although the request has failed: there may be no such object."""
    return (code == 404 and verb in ("get", "list")) or (verb, resource) in SHARPENS


CODES = [403, 404, 409, 429, 500, TIMEOUT]


@pytest.mark.parametrize(
    ("codes", "every"),
    [
        pytest.param(CODES, 13, id="some"),
        *(pytest.param([code], 1, id=f"{code}", marks=pytest.mark.long) for code in CODES),
    ],
)
def test_whatever_request_fails_is_a_status_and_is_repaired(ctx, monkeypatch, codes, every):
    asked = requests(ctx, monkeypatch)[::every]
    assert len(asked) > 1
    for (verb, resource), code in zip(asked, itertools.cycle(codes), strict=False):
        fake = fresh()
        if code == TIMEOUT:
            fake.timeouts.add((verb, resource))
        else:
            fake.broken[verb, resource] = code
        said = run(ctx, fake, monkeypatch)
        fine = {"active"} if may_be_active(verb, resource, code) else set()
        assert said.name in {"blocked", "waiting"} | fine, (verb, resource, said)
        fake.timeouts.clear()
        fake.broken.clear()
        said = run(ctx, fake, monkeypatch, "update_status")
        assert said.name == "active", (verb, resource, said)


def remove(ctx, fake, monkeypatch):
    monkeypatch.setattr(charm_cluster, "connect", fake.api)
    ctx.run(ctx.on.remove(), state(units=0))


def test_units_that_leave_at_once_do_not_fail_each_other(ctx, fake, monkeypatch):
    fake_cluster.install_istio(fake)
    run(ctx, fake, monkeypatch)
    fake.interference.append(lambda: fake.add(fake.find("Namespace", "kubeflow")))
    remove(ctx, fake, monkeypatch)
    assert "istio-injection" not in fake.labels("kubeflow")


def test_whatever_right_is_missing_is_named(ctx, monkeypatch):
    for verb, resource in requests(ctx, monkeypatch):
        fake = fresh()
        fake.forbidden.add((verb, resource))
        said = run(ctx, fake, monkeypatch)
        others = (
            needed_rights.of_ingress_alone()
            | needed_rights.POLICIES_OF_OTHERS
            | needed_rights.GOES_WITH_US
        )
        if resource in others:
            assert said.name != "blocked"
        else:
            assert isinstance(said, testing.BlockedStatus), (verb, resource, said)
            assert f"missing permission: {verb} {resource}" in said.message


def test_istios_own_kinds_may_be_absent_and_appear(ctx, fake, monkeypatch):
    fake_cluster.install_istio(fake)
    fake.absent.update(FOLLOWS_ISTIO)
    assert isinstance(run(ctx, fake, monkeypatch), testing.ActiveStatus)
    fake.absent.clear()
    assert isinstance(run(ctx, fake, monkeypatch, "update_status"), testing.ActiveStatus)
    fake.absent.update(FOLLOWS_ISTIO)
    ctx.run(ctx.on.remove(), state(units=0))
    assert "istio-injection" not in fake.labels("kubeflow")


def test_kind_that_a_route_needs_and_the_cluster_lacks_is_named(fake):
    fake.absent.add("networking.istio.io/v1")
    metadata = {"name": "kubeflow-gateway", "namespace": "kubeflow"}
    gateway = {"apiVersion": "networking.istio.io/v1", "kind": "Gateway", "metadata": metadata}
    with pytest.raises(errors.KindAbsentError) as raised:
        fake.api().apply(gateway)
    said = error_messages.of_error(raised.value, application="istio-integrator")
    assert said.said is Said.KIND_ABSENT
    assert "/apis/networking.istio.io/v1/namespaces/kubeflow/gateways" in said.text


def test_kinds_that_an_api_server_lacks_are_no_traceback(ctx, fake, monkeypatch):
    fake_cluster.install_istio(fake)
    fake.absent.add("admissionregistration.k8s.io/v1beta1")
    assert isinstance(run(ctx, fake, monkeypatch, "upgrade_charm"), testing.ActiveStatus)


POLICY = ("MutatingAdmissionPolicy", "istio-integrator.kubeflow.istio-integrator")
BINDING = ("MutatingAdmissionPolicyBinding", f"{POLICY[1]}.model")


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_refresh_removes_the_policy_of_an_earlier_version(ctx, fake, monkeypatch, version):
    fake_cluster.install_istio(fake)
    api_version = f"admissionregistration.k8s.io/{version}"
    marks = leftover("x", **{"istio-integrator.charmhub.io/component": "admission-policy"})
    labels = marks["metadata"]["labels"]
    theirs = {**labels, "istio-integrator.charmhub.io/owner": "other.istio-integrator"}
    anchor = fake.find("ClusterRole", "kubeflow-istio-integrator")["metadata"]
    for kind, name in (POLICY, BINDING):
        references = [{"kind": "ClusterRole", "name": anchor["name"], "uid": anchor["uid"]}]
        for named, metadata in ((name, labels), ("theirs", theirs)):
            fake.add(
                {
                    "apiVersion": api_version,
                    "kind": kind,
                    "metadata": {"name": named, "labels": metadata, "ownerReferences": references},
                }
            )

    assert isinstance(run(ctx, fake, monkeypatch, "upgrade_charm"), testing.ActiveStatus)

    assert fake.find(*POLICY) is fake.find(*BINDING) is None
    assert fake.find(POLICY[0], "theirs")
    assert fake.find(BINDING[0], "theirs")


def leftover(name, **labels):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": "kubeflow",
            "labels": {
                "app.kubernetes.io/managed-by": "istio-integrator",
                "istio-integrator.charmhub.io/owner": "kubeflow.istio-integrator",
                "istio-integrator.charmhub.io/component": "admission-webhook",
                **labels,
            },
        },
    }


def test_refresh_prunes_what_an_older_revision_left(ctx, fake, monkeypatch):
    fake_cluster.install_istio(fake)
    retired = {"istio-integrator.charmhub.io/component": "retired-component"}
    other = {"istio-integrator.charmhub.io/owner": "kubeflow.other", **retired}
    kept = {"istio-integrator.charmhub.io/component": "convergence"}
    lease = leftover("lease", **{"istio-integrator.charmhub.io/component": "lifecycle"})
    fake.add({**lease, "apiVersion": "coordination.k8s.io/v1", "kind": "Lease"})
    fake.add(leftover("retired", **retired))
    fake.add(leftover("of-another", **other))
    fake.add(leftover("memory", **kept))
    assert isinstance(run(ctx, fake, monkeypatch), testing.ActiveStatus)
    assert fake.find("ConfigMap", "retired", "kubeflow")
    run(ctx, fake, monkeypatch, "upgrade_charm", leader=False)
    assert fake.find("ConfigMap", "retired", "kubeflow")
    assert isinstance(run(ctx, fake, monkeypatch, "upgrade_charm"), testing.ActiveStatus)
    assert fake.find("ConfigMap", "retired", "kubeflow") is None
    assert fake.find("Lease", "lease", "kubeflow") is None
    assert fake.find("ConfigMap", "of-another", "kubeflow")
    assert fake.find("ConfigMap", "memory", "kubeflow")


@pytest.mark.parametrize("event", ["upgrade_charm", "leader_elected"])
def test_refresh_prunes_kinds_that_a_component_has_no_more(ctx, fake, monkeypatch, event):
    fake_cluster.install_istio(fake)
    marks = {"istio-integrator.charmhub.io/component": "tenant-policy"}
    fake.add(leftover("replaced", **marks))
    made = leftover("made", **marks)
    made["metadata"]["ownerReferences"] = [{"kind": "Service", "uid": "x", "controller": True}]
    fake.add(made)
    assert isinstance(run(ctx, fake, monkeypatch, event), testing.ActiveStatus)
    assert fake.find("ConfigMap", "replaced", "kubeflow") is None
    assert fake.find("ConfigMap", "made", "kubeflow")


def test_refresh_without_every_right_is_active(ctx, fake, monkeypatch):
    fake_cluster.install_istio(fake)
    fake.forbidden.add(("list", "rolebindings"))
    assert isinstance(run(ctx, fake, monkeypatch, "upgrade_charm"), testing.ActiveStatus)


def test_refresh_with_an_api_server_in_trouble_says_so(ctx, fake, monkeypatch):
    fake_cluster.install_istio(fake)
    fake.add(leftover("retired", **{"istio-integrator.charmhub.io/component": "retired"}))
    fake.broken["delete", "configmaps"] = 500
    assert isinstance(run(ctx, fake, monkeypatch, "upgrade_charm"), testing.WaitingStatus)


def test_refresh_adopts_what_an_older_revision_made(ctx, fake, monkeypatch):
    fake_cluster.install_istio(fake)
    run(ctx, fake, monkeypatch)
    service = ("Service", "istio-integrator-admission", "kubeflow")
    found = fake.find(*service)
    wanted = found["spec"]
    found["spec"] = {**wanted, "publishNotReadyAddresses": True, "ports": []}
    found["metadata"]["annotations"]["istio-integrator.charmhub.io/applied-hash"] = "old"
    assert isinstance(run(ctx, fake, monkeypatch, "upgrade_charm"), testing.ActiveStatus)
    assert fake.find(*service)["spec"]["ports"] == wanted["ports"]

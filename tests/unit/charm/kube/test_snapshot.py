"""What a hook has read of the cluster is read anew once it has written."""

import pytest

from istio_integrator.kube import cluster, errors
from tests.unit.cases import cases
from tests.unit.charm.objects import make

POLICY = "MutatingAdmissionPolicy"
PROBE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "probe-", "namespace": "kubeflow"},
    "spec": {"containers": []},
}


def config_map(name="settings", namespace="kubeflow", **labels):
    return make("ConfigMap", name, namespace, labels=labels, data={"key": "a"})


@pytest.fixture
def seen(fake):
    return cluster.CachedCluster(fake.api())


def test_object_is_read_once_and_an_absent_one_each_time(fake, seen):
    assert seen.get(cluster.CONFIG_MAP, "settings", "kubeflow") is None
    fake.add(config_map())
    assert [seen.get(cluster.CONFIG_MAP, "settings", "kubeflow")["data"] for _ in "ab"]
    assert fake.requests == ["get configmaps kubeflow settings"] * 2


@cases(
    "write",
    apply=lambda api: api.apply(config_map()),
    patch=lambda api: api.merge_patch(config_map(), {"data": {}}),
    delete=lambda api: api.delete(config_map()),
    create=lambda api: api.create(config_map("another")),
)
def test_written_kind_is_read_anew_and_no_other_even_if_the_answer_is_lost(fake, seen, write):
    def read():
        fake.requests.clear()
        for kind in (cluster.CONFIG_MAP, cluster.SERVICE):
            seen.list(kind, "kubeflow")
        seen.get(cluster.CONFIG_MAP, "settings", "kubeflow")
        return [each for each in fake.requests if each.startswith("list")]

    fake.add(config_map())
    assert read() == ["list configmaps kubeflow", "list services kubeflow"]
    assert read() == []
    write(seen)
    assert read() == ["list configmaps kubeflow"]
    fake.timeouts.add(("patch", "configmaps"))
    with pytest.raises(errors.UnreachableError):
        seen.apply(config_map("lost"))
    assert read() == ["list configmaps kubeflow"]


def test_other_versions_of_a_written_kind_are_read_anew(fake, seen):
    versions = [f"admissionregistration.k8s.io/{each}" for each in ("v1", "v1beta1")]
    for _ in "ab":
        fake.requests.clear()
        for version in versions:
            seen.list(cluster.kind(version, POLICY))
        assert len(fake.requests) == 2
        seen.apply(make(POLICY, "policy", "", api_version=versions[0]))


def test_trial_changes_nothing_that_is_known(fake, seen):
    seen.list(cluster.POD, "kubeflow")
    seen.create(PROBE, dry_run=True)
    fake.requests.clear()
    seen.list(cluster.POD, "kubeflow")
    assert fake.requests == []


def test_everything_is_read_anew_when_another_client_wrote_in_between(fake, seen):
    fake.add(config_map())
    seen.list(cluster.SERVICE)
    with pytest.raises(errors.ConflictError):
        seen.merge_patch(config_map(), {"metadata": {"resourceVersion": "0"}})
    fake.requests.clear()
    seen.list(cluster.SERVICE)
    assert fake.requests == ["list services"]

"""What a hook reads of the cluster: once, and anew once it has written."""

import pytest

from istio_integrator.kube import cluster, errors, snapshot
from tests.unit.charm.security import members


def config_map(name="settings", **labels):
    metadata = {"name": name, "namespace": "kubeflow", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": "a"}}


def names_of(found):
    return [each["metadata"]["name"] for each in found]


@pytest.fixture
def seen(fake):
    return snapshot.Snapshot(fake.api())


def test_object_is_read_once(fake, seen):
    fake.add(config_map())
    assert [seen.get(cluster.CONFIG_MAP, "settings", "kubeflow")["data"] for _ in "ab"]
    assert fake.requests == ["get configmaps kubeflow settings"]


def test_object_that_was_listed_is_not_read(fake, seen):
    fake.add(config_map())
    seen.list(cluster.CONFIG_MAP)
    assert seen.get(cluster.CONFIG_MAP, "settings", "kubeflow")["data"] == {"key": "a"}
    assert fake.requests == ["list configmaps"]


def test_object_that_is_absent_is_looked_for_each_time(fake, seen):
    seen.list(cluster.CONFIG_MAP)
    assert seen.get(cluster.CONFIG_MAP, "settings", "kubeflow") is None
    fake.add(config_map())
    assert seen.get(cluster.CONFIG_MAP, "settings", "kubeflow") is not None


def test_part_of_a_list_is_taken_from_it(fake, seen):
    for number, place in enumerate(("kubeflow", "kubeflow", "default")):
        obj = config_map(f"cm-{number}", app=f"app-{number}")
        obj["metadata"]["namespace"] = place
        fake.add(obj)
    assert len(seen.list(cluster.CONFIG_MAP)) == 3
    assert names_of(seen.list(cluster.CONFIG_MAP, "kubeflow")) == ["cm-0", "cm-1"]
    assert names_of(seen.list(cluster.CONFIG_MAP, "kubeflow", {"app": "app-1"})) == ["cm-1"]
    assert names_of(seen.list(cluster.CONFIG_MAP, None, {"app": None})) == ["cm-0", "cm-1", "cm-2"]
    assert fake.requests == ["list configmaps"]


def test_one_namespace_comes_from_the_list_of_all(fake):
    fake.namespace("kubeflow")
    seen = snapshot.Snapshot(fake.api())
    assert seen.get(cluster.NAMESPACE, "kubeflow") is not None
    assert "kubeflow" in names_of(seen.list(cluster.NAMESPACE))
    assert fake.requests == ["list namespaces"]


def test_namespace_is_read_by_its_name_where_none_may_be_listed(fake):
    fake.namespace("kubeflow")
    fake.forbidden.add(("list", "namespaces", ""))
    seen = snapshot.Snapshot(fake.api())
    assert seen.get(cluster.NAMESPACE, "kubeflow") is not None
    assert fake.requests == ["list namespaces", "get namespaces kubeflow"]


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda api: api.apply(config_map()), id="apply"),
        pytest.param(lambda api: api.merge_patch(config_map(), {"data": {}}), id="patch"),
        pytest.param(lambda api: api.delete(config_map()), id="delete"),
        pytest.param(lambda api: api.create(config_map("another")), id="create"),
    ],
)
def test_written_kind_is_read_anew(fake, seen, write):
    fake.add(config_map())
    fake.add(members.service("kfp-ui", 3000))
    for kind in (cluster.CONFIG_MAP, cluster.SERVICE):
        seen.list(kind, "kubeflow")
    seen.get(cluster.CONFIG_MAP, "settings", "kubeflow")
    write(seen)
    fake.requests.clear()
    for kind in (cluster.CONFIG_MAP, cluster.SERVICE):
        seen.list(kind, "kubeflow")
    assert fake.requests == ["list configmaps kubeflow"]


def test_object_is_read_anew_after_its_kind_was_written(fake, seen):
    fake.add(config_map())
    seen.get(cluster.CONFIG_MAP, "settings", "kubeflow")
    seen.apply(config_map("another"))
    fake.requests.clear()
    seen.get(cluster.CONFIG_MAP, "settings", "kubeflow")
    assert fake.requests == ["get configmaps kubeflow settings"]


def test_kind_is_read_anew_after_a_write_whose_answer_is_lost(fake, seen):
    fake.add(config_map())
    seen.list(cluster.CONFIG_MAP)
    fake.timeouts.add(("patch", "configmaps"))
    with pytest.raises(errors.UnreachableError):
        seen.apply(config_map())
    fake.requests.clear()
    seen.list(cluster.CONFIG_MAP)
    assert fake.requests == ["list configmaps"]


def test_other_versions_of_a_written_kind_are_read_anew(fake, seen):
    kinds = [
        cluster.kind(f"admissionregistration.k8s.io/{version}", "MutatingAdmissionPolicy")
        for version in ("v1", "v1beta1")
    ]
    for kind in kinds:
        seen.list(kind)
    metadata = {"name": "policy"}
    seen.apply({"apiVersion": kinds[0].api_version, "kind": kinds[0].name, "metadata": metadata})
    fake.requests.clear()
    for kind in kinds:
        seen.list(kind)
    assert len(fake.requests) == 2


def test_trial_changes_nothing_that_is_known(fake, seen):
    seen.list(cluster.POD, "kubeflow")
    metadata = {"generateName": "probe-", "namespace": "kubeflow"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}}
    seen.create(pod, dry_run=True)
    fake.requests.clear()
    seen.list(cluster.POD, "kubeflow")
    assert fake.requests == []


def test_everything_is_read_anew_when_somebody_wrote_in_between(fake, seen):
    fake.add(config_map())
    seen.list(cluster.SERVICE)
    with pytest.raises(errors.ConflictError):
        seen.merge_patch(config_map(), {"metadata": {"resourceVersion": "0"}})
    fake.requests.clear()
    seen.list(cluster.SERVICE)
    assert fake.requests == ["list services"]


def test_model_namespace_is_known_from_the_list_that_every_hook_needs(fake, seen):
    assert seen.get(cluster.NAMESPACE, "kubeflow")
    assert seen.get(cluster.NAMESPACE, "default")
    assert fake.requests == ["list namespaces"]


def test_namespace_is_read_by_name_where_they_may_not_be_listed(fake, seen):
    fake.forbidden.add(("list", "namespaces"))
    assert seen.get(cluster.NAMESPACE, "kubeflow")
    assert fake.requests[-1] == "get namespaces kubeflow"


def test_namespace_is_not_looked_for_again_where_they_may_not_be_listed(fake, seen):
    fake.forbidden.add(("list", "namespaces"))
    assert [seen.get(cluster.NAMESPACE, "kubeflow") for _ in "ab"]
    assert fake.requests == ["list namespaces", "get namespaces kubeflow"]

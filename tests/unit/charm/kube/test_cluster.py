"""A hook's cache of what it has read."""

import contextlib

import msgspec
import pytest

from istio_integrator.kube import cluster, errors, owners
from istio_integrator.situation import model
from tests.unit.cases import cases


@cases(
    "write",
    apply=lambda api, settings: api.apply(settings),
    patch=lambda api, settings: api.merge_patch(settings, {"data": {}}),
    delete=lambda api, settings: api.delete(settings),
)
@pytest.mark.parametrize("is_answered", [True, False])
def test_written_kind_is_read_anew_and_no_other(fake, write, is_answered):
    seen = cluster.Cluster(fake.client())
    settings, fake.may_change = fake.put("ConfigMap", "settings"), {"configmaps kf settings"}
    for kind in (cluster.CONFIG_MAP, cluster.SERVICE):
        seen.list(kind, "kf")
    if not is_answered:
        fake.timeouts = {("patch", "configmaps"), ("delete", "configmaps")}
    with contextlib.nullcontext() if is_answered else pytest.raises(errors.UnreachableError):
        write(seen, {key: settings[key] for key in ("apiVersion", "kind", "metadata")})
    fake.requests.clear()
    seen.get(cluster.CONFIG_MAP, "settings", "kf")
    for kind in (cluster.CONFIG_MAP, cluster.SERVICE):
        seen.list(kind, "kf")
    assert fake.requests == ["get configmaps kf settings", "list configmaps kf"]


@cases(
    "read",
    get=lambda api: api.get_if_allowed(cluster.CONFIG_MAP, "settings", "kf"),
    list=lambda api: [*api.list_if_allowed(cluster.CONFIG_MAP)],
)
def test_only_a_missing_right_reads_as_absence(fake, read):
    fake.put("ConfigMap", "settings")
    verbs = ("get", "list")
    for code in (429, 500, 504):
        fake.broken = {(verb, "configmaps"): code for verb in verbs}
        with pytest.raises(errors.ApiError):
            read(cluster.Cluster(fake.client()))
    fake.broken = {}
    assert read(cluster.Cluster(fake.client()))
    fake.forbidden |= {(verb, "configmaps") for verb in verbs}
    assert not read(cluster.Cluster(fake.client()))


def test_list_answers_for_the_narrower_ones_and_no_wider(fake):
    seen = cluster.Cluster(fake.client())
    for namespace, name, x in (("kf", "a", "1"), ("kf", "b", "2"), ("kf-2", "a", None)):
        fake.put("Service", name, namespace, labels={"y": name, **({"x": x} if x else {})})
    selected = ({"x": "1", "y": "a"}, {"x": "1"}, {"x": None}, {})
    asked = [*(("kf", each) for each in selected), (None, {})]

    def names():
        listed = [seen.list(cluster.SERVICE, *each) for each in asked]
        return [" ".join(map(cluster.namespaced_name, each)) for each in listed]

    want = ["kf/a", "kf/a", "kf/a kf/b", "kf/a kf/b", "kf/a kf/b kf-2/a"]
    assert names() == want
    assert len(fake.requests) == 5
    asked.reverse()
    seen = cluster.Cluster(fake.client())
    assert names() == want[::-1]
    assert seen.get(cluster.SERVICE, "a", "kf-2")["metadata"]["namespace"] == "kf-2"
    assert len(fake.requests) == 6


@pytest.mark.parametrize(
    "error", [ZeroDivisionError, AttributeError, KeyError, MemoryError, RecursionError, TypeError]
)
def test_object_that_breaks_its_reader_is_passed_over_alone(error):
    def read(obj):
        if obj["metadata"]["name"] == "broken":
            raise error
        return [obj["metadata"]["name"]]

    objects = [{"metadata": {"name": name}} for name in ("a", "broken", "b")]
    assert cluster.read_each(objects, read) == ["a", "b"]


@pytest.mark.parametrize(
    ("shown", "plain"), [(f"KFP_ui{'x' * 23}_y", f"kfp-ui{'x' * 23}"), ("_", "workload")]
)
def test_object_about_pods_is_named_alike_for_any_order_of_their_labels(shown, plain):
    labels = [("b", "1"), ("a", "2")]
    found = [owners.name_by_pods("mesh", shown, each) for each in (labels, labels[::-1])]
    assert found == [f"mesh-{plain}-a7240c99"] * 2


class Described(msgspec.Struct):
    metadata: dict[str, str]


@pytest.mark.parametrize("field", ["uid", "resourceVersion", "namespace", "name"])
def test_object_is_decoded_again_when_it_has_changed(fake, field):
    seen = cluster.Cluster(fake.client())
    first = dict.fromkeys(("uid", "resourceVersion", "namespace", "name"), "1")
    for metadata in (first, {**first, "unseen": "x"}, {**first, field: "2", "seen": "x"}):
        (found,) = seen.decode([{"kind": "Pod", "metadata": metadata}], Described)
        assert found.metadata == (first if "unseen" in metadata else metadata)


def test_pods_that_have_ended_and_those_of_other_namespaces_are_left_out(fake):
    for phase in ("Pending", "Running", "Succeeded", "Failed"):
        fake.put("Pod", phase.lower(), spec={}, status={"phase": phase})
    found = model.list_pods(cluster.Cluster(fake.client()), "kf")
    assert [each.metadata.name for each in found] == ["pending", "running"]


def test_everything_is_read_anew_when_another_client_wrote_in_between(fake):
    seen = cluster.Cluster(fake.client())
    settings, _ = fake.put("ConfigMap", "settings"), fake.put("Service", "a")
    seen.list(cluster.SERVICE)
    with pytest.raises(errors.ConflictError):
        seen.merge_patch(settings, {"metadata": {"resourceVersion": "0"}})
    fake.requests.clear()
    seen.get(cluster.SERVICE, "a", "kf")
    seen.list(cluster.SERVICE)
    assert fake.requests == ["get services kf a", "list services"]

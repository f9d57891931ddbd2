"""The table of cases and the properties of the whole mutation, against the pure function."""

import dataclasses
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sidecar_lifecycle.decide import mutate
from sidecar_lifecycle.decide.convergence import trial
from sidecar_lifecycle.model import types

from integrator_contract import names, pods
from tests.functional import admission_cases as table
from tests.unit.cases import cases


def load(name):
    values = {"application": table.APPLICATION, "model": "m", **table.SETTINGS[name]}
    return msgspec.convert(pods.to_fields(values), pods.Settings)


def images(pod):
    spec = pod["spec"]
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    return {container["name"]: container["image"] for container in containers}


def run(case):
    pod = case.pod("m")
    typed = msgspec.convert(pod, types.Pod)
    result = mutate.mutate(typed, load(case.settings), case.namespace)
    return pod, result, table.patched(pod, result.patch)


@pytest.mark.parametrize("case", table.CASES, ids=lambda case: case.id)
def test_a_pod_gets_what_the_table_says(case):
    pod, result, after = run(case)

    assert result.applied == case.want
    assert after["metadata"].get("labels", {}) == case.all_labels
    assert after["metadata"].get("annotations", {}) == case.all_annotations
    assert images(after) == {**images(pod), **case.want_images}
    ordered = case.in_order(pod["spec"]["containers"])
    assert [each["name"] for each in after["spec"]["containers"]] == [
        each["name"] for each in ordered
    ]
    assert tuple(f"{skip.change}:{skip.reason}" for skip in result.skipped) == case.skipped
    if "order" not in case.want:
        # The service tries the same patch on a workload's next pod, which has no proxy yet.
        assert trial.apply_patch(pod, result.patch) == after
    again = mutate.mutate(msgspec.convert(after, types.Pod), load(case.settings), case.namespace)
    assert (again.patch, again.applied) == ([], ())


def test_the_words_for_changes_are_those_that_pods_get():
    applied = [run(case)[1].applied for case in table.CASES]

    assert {word for words in applied for word in words} == set(mutate.CHANGES)
    assert all(list(words) == sorted(words, key=mutate.CHANGES.index) for words in applied)


# No trial finds an order forbidden.
CHANGED = [case for case in table.CASES if case.want and "order" not in case.want]


@pytest.mark.parametrize("case", CHANGED, ids=lambda case: case.id)
def test_change_that_a_policy_forbids_is_left_out(case):
    pod = msgspec.convert(case.pod("m"), types.Pod)
    for change in case.want:
        left_out = dataclasses.replace(load(case.settings), left_out=(change,))
        result = mutate.mutate(pod, left_out, case.namespace)
        assert change not in result.applied
        assert f"{change}:ForbiddenByPolicy" in {f"{s.change}:{s.reason}" for s in result.skipped}


def test_a_probe_gets_back_which_settings_are_in_effect():
    pod = table.Case(id="probe", labels={names.PROBE: "true"}).pod("m")
    known = pods.Settings(application="a", model="m", digest="r1")

    result = mutate.mutate(msgspec.convert(pod, types.Pod), known)

    after = table.patched(pod, result.patch)["metadata"]
    assert after["annotations"][names.SETTINGS] == "r1"
    assert after["labels"]["sidecar.istio.io/inject"] == "false"


@pytest.mark.parametrize("name", sorted(table.SETTINGS))
def test_the_mirror_of_a_static_pod_is_left_as_it_is(name):
    mirror = {"kubernetes.io/config.mirror": "0123"}
    pod = table.Case(id="mirror", annotations=mirror).pod("m")

    result = mutate.mutate(msgspec.convert(pod, types.Pod), load(name))

    assert result.patch == []
    assert [skip.reason for skip in result.skipped] == ["MirrorPod"]


def test_rules_select_a_pod_by_the_labels_that_it_was_sent_with():
    selected = {"pods": table.INJECT}
    known = {
        "application": "a",
        "model": "m",
        "excluded-pods": "app",
        "pod-labels": [{**selected, "add": {"tier": "x"}}],
        "pod-annotations": [{**selected, "add": {"note": "x"}}],
        "excluded-outbound-ports": [{**selected, "ports": [5432]}],
        "image-registries": [{**selected, "prefixes": {"registry.example": "mirror.example"}}],
    }
    pod = msgspec.convert(table.Case(id="sent", labels={"app": "x"}).pod("m"), types.Pod)
    result = mutate.mutate(pod, msgspec.convert(pods.to_fields(known), pods.Settings))

    assert result.applied == ("excluded",)
    assert [(skip.change, skip.reason) for skip in result.skipped] == [("hold", "NotInjected")]


def test_a_pod_of_a_profile_gets_its_hold_though_the_model_is_ambient_and_not_served():
    pod = types.Pod(spec=types.PodSpec(containers=[types.Container(name="main")]))
    known = dataclasses.replace(load("ambient"), lifecycle_in_model=False)
    assert mutate.mutate(pod, known, "profiles").applied == ("ports", "hold")


@cases(
    ("added", "reason"),
    native=({table.NATIVE: "false"}, "PodSaysItself"),
    templates=({table.TEMPLATES: "sidecar,ours"}, "OtherTemplate"),
)
def test_annotation_that_an_option_adds_counts_as_the_pods_own(added, reason):
    pod = msgspec.convert(table.Case(id="", spec=table.TO_COMPLETION).pod("m"), types.Pod)
    known = dataclasses.replace(load("native"), pod_annotations=(pods.Entries(add=added),))
    assert mutate.mutate(pod, known).skipped[0][:2] == ("native", reason)


KEYS = st.sampled_from(
    [table.INJECT, "istio.io/rev", "team", "tier", "db", "mirrored", "app", "outside", "a~b/c"]
)
VALUES = st.sampled_from(["true", "false", "", "ml", "outside", "web", "{}", "a: 1", "x,hold"])
NOTES = st.sampled_from([table.INJECT, table.NATIVE, table.CONFIG, table.PORTS, table.APPLIED])
PODS = st.builds(
    types.Pod,
    metadata=st.builds(
        types.ObjectMeta,
        labels=st.dictionaries(KEYS, VALUES),
        annotations=st.dictionaries(NOTES, VALUES),
    ),
    spec=st.builds(
        types.PodSpec,
        containers=st.lists(
            st.builds(
                types.Container,
                name=st.sampled_from(["a", "b", "charm", "istio-proxy"]),
                image=st.none() | st.sampled_from(["", "auto", "quay.io/a", "docker.io/b/c"]),
            ),
            min_size=1,
            max_size=3,
        ),
        initContainers=st.sampled_from([[], [types.Container(name="charm-init")]]),
        restartPolicy=st.sampled_from(["Always", "Never", "OnFailure"]),
        hostNetwork=st.booleans(),
    ),
)


@given(
    pod=PODS,
    name=st.sampled_from(sorted(table.SETTINGS)),
    kind=st.sampled_from(["model", "profiles", "labelled"]),
)
def test_any_pod_is_mutated_once_by_adding_only(pod, name, kind):
    known = load(name)
    before = json.loads(msgspec.json.encode(pod))

    result = mutate.mutate(pod, known, kind)
    after = table.patched(before, result.patch)

    changeable = {table.CONFIG, table.PORTS, table.APPLIED}
    for field, exempt in (("labels", set()), ("annotations", changeable)):
        old, new = before["metadata"].get(field) or {}, after["metadata"].get(field) or {}
        assert {k: v for k, v in old.items() if k not in exempt}.items() <= new.items()
    assert bool(result.patch) == bool(result.applied)
    containers = [before["spec"]["containers"], after["spec"]["containers"]]
    if "images" not in result.applied:
        assert sorted(containers[0], key=str) == sorted(containers[1], key=str)
    assert mutate.mutate(msgspec.convert(after, types.Pod), known, kind).patch == []
    assert set(result.applied) <= set(mutate.CHANGES)
    proxies = [each for each in pod.spec.containers if each.name == "istio-proxy"]
    if any(proxy.image != "auto" for proxy in proxies) or proxies == pod.spec.containers:
        assert result.applied in ((), ("order",))


@given(room=st.integers(-5, 400), name=st.sampled_from(sorted(table.SETTINGS)))
def test_a_pod_that_is_acceptable_stays_so_however_little_place_its_annotations_have(room, name):
    pod = table.Case(id="", annotations=table.filler(room)).pod("m")

    result = mutate.mutate(msgspec.convert(pod, types.Pod), load(name))

    after = table.patched(pod, result.patch)["metadata"]["annotations"]
    size = sum(len(text.encode()) for text in (*after, *after.values()))
    assert size <= table.MOST_BYTES - min(room, 0)
    assert after == pod["metadata"]["annotations"] or table.APPLIED in after

"""The table of cases and the properties of the whole mutation, against the pure function."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sidecar_lifecycle.admission import settings
from sidecar_lifecycle.rules import creation, mutate

from tests.functional import admission_cases as table


def load(name):
    values = {"application": table.APPLICATION, "model": "m", **table.SETTINGS[name]}
    return settings.load(json.dumps(values))


def images(pod):
    spec = pod["spec"]
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    return {container["name"]: container["image"] for container in containers}


def run(case):
    pod = case.pod("m")
    typed = msgspec.convert(pod, creation.Pod)
    result = mutate.mutate(typed, load(case.settings), case.namespace)
    return pod, result, table.patched(pod, result.patch)


def test_the_table_is_complete_and_its_names_are_unique():
    assert len({case.id for case in table.CASES}) == len(table.CASES) >= 60


@pytest.mark.parametrize("case", table.CASES, ids=lambda case: case.id)
def test_a_pod_gets_what_the_table_says(case):
    pod, result, after = run(case)

    assert result.applied == case.want
    assert after["metadata"].get("labels", {}) == case.all_labels
    assert after["metadata"].get("annotations", {}) == case.all_annotations
    assert images(after) == {**images(pod), **case.want_images}
    assert tuple(f"{skip.change}:{skip.reason}" for skip in result.skipped) == case.skipped


@pytest.mark.parametrize("case", table.CASES, ids=lambda case: case.id)
def test_doing_it_twice_is_the_same_as_once(case):
    _, _, after = run(case)
    typed = msgspec.convert(after, creation.Pod)

    again = mutate.mutate(typed, load(case.settings), case.namespace)

    assert again.patch == []
    assert again.applied == ()


def test_a_probe_gets_back_which_settings_are_in_effect():
    pod = table.Case(id="probe", labels={mutate.PROBE: "policy"}).pod("m")
    known = settings.load('{"application": "a", "model": "m", "revision": "r1"}')

    result = mutate.mutate(msgspec.convert(pod, creation.Pod), known)

    after = table.patched(pod, result.patch)["metadata"]
    assert after["annotations"][mutate.SETTINGS] == "r1"
    assert after["labels"]["sidecar.istio.io/inject"] == "false"


KEYS = st.sampled_from(
    [table.INJECT, "istio.io/rev", "team", "tier", "db", "mirrored", "app", "outside", "a~b/c"]
)
VALUES = st.sampled_from(["true", "false", "", "ml", "outside", "web", "{}", "a: 1", "x,hold"])
NOTES = st.sampled_from([table.INJECT, table.NATIVE, table.CONFIG, table.PORTS, table.APPLIED])
PODS = st.builds(
    creation.Pod,
    metadata=st.builds(
        creation.Metadata,
        labels=st.none() | st.dictionaries(KEYS, VALUES),
        annotations=st.none() | st.dictionaries(NOTES, VALUES),
    ),
    spec=st.builds(
        creation.Spec,
        containers=st.lists(
            st.builds(
                creation.Container,
                name=st.sampled_from(["a", "b", "istio-proxy"]),
                image=st.none() | st.sampled_from(["", "python", "quay.io/a", "docker.io/b/c"]),
            ),
            min_size=1,
            max_size=3,
        ),
        restartPolicy=st.none() | st.sampled_from(["Always", "Never", "OnFailure"]),
        hostNetwork=st.none() | st.booleans(),
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
    after = table.patched(
        {**before, "metadata": {k: v for k, v in before["metadata"].items() if v is not None}},
        result.patch,
    )

    changeable = {table.CONFIG, table.PORTS, table.APPLIED}
    for field, exempt in (("labels", set()), ("annotations", changeable)):
        old, new = before["metadata"].get(field) or {}, after["metadata"].get(field) or {}
        assert {k: v for k, v in old.items() if k not in exempt}.items() <= new.items()
    assert bool(result.patch) == bool(result.applied)
    assert mutate.mutate(msgspec.convert(after, creation.Pod), known, kind).patch == []
    if any(container.name == "istio-proxy" for container in pod.spec.containers):
        assert result.patch == []

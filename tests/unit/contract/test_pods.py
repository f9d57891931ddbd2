"""What new pods get: one table of settings, which both programs take or refuse alike."""

import contextlib
import dataclasses
import json
import re
import time

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from integrator_contract import names, pods

BY_PYDANTIC = pydantic.TypeAdapter(pods.Settings)


def by_pydantic(document):
    return BY_PYDANTIC.validate_python(pods.named(document))


def by_msgspec(document):
    return msgspec.convert(pods.named(document), pods.Settings)


PROGRAMS = pytest.mark.parametrize("read", [by_pydantic, by_msgspec])
MINIMAL = {"application": "a", "model": "m"}
LONG = "x" * pods.LONGEST_VALUE

TAKEN = [
    pytest.param({}, id="nothing"),
    pytest.param({"membership": "selected", "included-pods": "a in (b, c),!d"}, id="membership"),
    pytest.param({"inject-label": {"istio.io/rev": "canary"}}, id="inject-label"),
    pytest.param({"pod-labels": [{"add": {"team": "ml", "example.com/x": ""}}]}, id="labels"),
    pytest.param({"pod-annotations": [{"pods": "app=web", "add": {"a": LONG}}]}, id="annotation"),
    pytest.param(
        {"pod-annotations": [{"add": {"sidecar.istio.io/proxyCPU": "10m"}}]}, id="Istio's"
    ),
    pytest.param({"excluded-outbound-ports": [{"ports": [1, 65535]}]}, id="ports"),
    pytest.param(
        {"image-registries": [{"pods": "!x", "prefixes": {"a.io": "localhost/a"}}]}, id="registry"
    ),
]

REFUSED = [
    pytest.param({"hold": True}, "unknown field `hold`", id="unknown"),
    pytest.param({"hold_application": True}, "unknown field", id="name of Python"),
    pytest.param({"model": 1}, "", id="model"),
    pytest.param({"native": "certainly"}, "", id="no bool"),
    pytest.param({"membership": "all"}, "", id="membership"),
    pytest.param({"included-pods": "a in b"}, "included-pods: 'a in b' is not a", id="included"),
    pytest.param({"excluded-pods": "a,,b"}, "excluded-pods: '' is not a", id="excluded"),
    pytest.param({"inject-label": {}}, "inject-label: exactly one label", id="no label"),
    pytest.param({"inject-label": {"a": "", "b": ""}}, "exactly one label", id="two labels"),
    pytest.param({"pod-labels": {}}, "", id="no list"),
    pytest.param({"pod-labels": ["x"]}, "", id="no rule"),
    pytest.param({"pod-labels": [{"pods": "a"}]}, "", id="nothing to add"),
    pytest.param({"pod-labels": [{"add": {"a": 1}}]}, "", id="no text"),
    pytest.param({"pod-labels": [{"pods": "=", "add": {}}]}, "'=' is not a", id="selector"),
    pytest.param({"pod-labels": [{"add": {"a b": ""}}]}, "is not a key", id="key"),
    pytest.param({"pod-labels": [{"add": {"a": "x y"}}]}, "is not a label value", id="value"),
    pytest.param({"pod-labels": [{"add": {"a": "x" * 64}}]}, "is not a label value", id="64"),
    pytest.param({"pod-annotations": [{"add": {"a": f"{LONG}x"}}]}, "is longer than", id="long"),
    pytest.param({"excluded-outbound-ports": [{"ports": [0]}]}, "0 is not a port", id="port 0"),
    pytest.param({"excluded-outbound-ports": [{"ports": [65536]}]}, "is not a port", id="65536"),
    pytest.param({"excluded-outbound-ports": [{"ports": ["x"]}]}, "", id="port x"),
    pytest.param({"image-registries": [{"prefixes": {}}]}, "'' is not a label", id="no selector"),
    pytest.param(
        {"image-registries": [{"pods": "a", "prefixes": {"docker.io/": "a.io"}}]},
        "'docker.io/' is not a registry",
        id="registry",
    ),
    pytest.param(
        {"image-registries": [{"pods": "a", "prefixes": {"a.io": f"a.io/{'x/' * 200}x"}}]},
        "is not a registry",
        id="longer than an image's name may be",
    ),
    pytest.param(
        {
            "image-registries": [
                {"pods": "a", "prefixes": {"a.io": "b.io/x"}},
                {"pods": "b", "prefixes": {"b.io": "c.io"}},
            ]
        },
        "image-registries: 'b.io/x' would itself be moved by 'b.io'",
        id="moved twice",
    ),
    *(
        pytest.param({"pod-labels": [{"add": {key: "x"}}]}, "is reserved: ", id=key)
        for key in (
            "app.kubernetes.io/name",
            "kubernetes.io/x",
            "model.juju.is/name",
            "sidecar.istio.io/inject",
            "istio.io/rev",
            "pod-template-hash",
            names.PROBE,
        )
    ),
    *(
        pytest.param({"pod-annotations": [{"add": {key: "x"}}]}, "is reserved: ", id=key)
        for key in ("controller.juju.is/id", names.APPLIED, names.SETTINGS)
    ),
]


@PROGRAMS
@pytest.mark.parametrize("change", TAKEN)
def test_settings_come_back_as_they_were_written(read, change):
    settings = read({**MINIMAL, **change})

    written = json.loads(json.dumps(settings.document()))

    assert read(written) == settings
    assert {key: written[key] for key in change} == {
        key: [{"pods": "", **rule} for rule in value] if isinstance(value, list) else value
        for key, value in change.items()
    }


@pytest.mark.parametrize("change", TAKEN)
def test_both_programs_read_the_same_settings(change):
    assert by_pydantic({**MINIMAL, **change}) == by_msgspec({**MINIMAL, **change})


@PROGRAMS
@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_settings_that_cannot_be_meant_are_refused_with_what_is_wrong(read, change, message):
    with pytest.raises(ValueError, match=re.escape(message) or "."):
        read({**MINIMAL, **change})


@PROGRAMS
def test_thousands_of_registries_are_read_in_a_moment(read):
    prefixes = {f"{number}.io/{'x/' * 50}y": f"m.io/{'x/' * 50}{number}" for number in range(8000)}
    began = time.process_time()

    read({**MINIMAL, "image-registries": [{"pods": "a", "prefixes": prefixes}]})

    assert time.process_time() - began < 5


@PROGRAMS
@pytest.mark.parametrize("document", [None, [], "x", {}, {"application": "a"}])
def test_what_are_no_settings_is_refused(read, document):
    with pytest.raises(ValueError, match=r"no object|[Mm]issing|required"):
        read(document)


@pytest.mark.parametrize("value", [True, 80.0, "80", None])
def test_only_a_number_is_a_port(value):
    assert not pods.is_port(value)


def test_rule_without_a_selector_is_for_every_pod():
    assert pods.Entries(add={}).selects({})


def test_rule_with_a_selector_is_for_the_pods_that_it_selects():
    rule = pods.Ports(pods="app=web", ports=(80,))

    assert rule.selects({"app": "web"})
    assert not rule.selects({"app": "db"})


def test_ports_beside_those_that_the_mesh_excludes_are_named_once():
    assert pods.Ports(ports=(80, 443)).beside((443, 15)).ports == (80, 443, 15)


def test_registries_are_tried_from_the_longest():
    rule = pods.Registries(pods="a", prefixes={"a.io": "m.io/a", "a.io/library": "m.io/b"})

    assert [old for old, _ in rule.pairs] == ["a.io/library", "a.io"]


@given(st.text(max_size=300))
def test_any_key_is_refused_or_one_that_a_pod_may_have(key):
    with contextlib.suppress(ValueError):
        pods.check_labels([pods.Entries(add={key: ""})])
        assert re.fullmatch(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9_.-]{1,63}", key)


def test_every_setting_has_its_own_name_in_the_document():
    fields = {field.name.replace("_", "-") for field in dataclasses.fields(pods.Settings)}

    assert set(pods.Settings(**MINIMAL).document()) == fields

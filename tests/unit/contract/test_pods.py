"""The webhook's settings, which the charm writes and the webhook accepts or rejects."""

import contextlib
import dataclasses
import json
import re
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from integrator_contract import names, pods
from tests.unit.cases import cases


def read(document):
    """Read settings as the webhook does."""
    return msgspec.convert(pods.to_fields(document), pods.Settings)


MINIMAL: dict[str, Any] = {"application": "a", "model": "m"}
LONG = "x" * pods.LONGEST_VALUE

TAKEN = {
    "nothing": {},
    "membership": {"membership": "selected", "included-pods": "a in (b, c),!d"},
    "inject-label": {"inject-label": {"istio.io/rev": "canary"}},
    "labels": {"pod-labels": [{"add": {"team": "ml", "example.com/x": ""}}]},
    "annotation": {"pod-annotations": [{"pods": "app=web", "add": {"a": LONG}}]},
    "Istio's": {"pod-annotations": [{"add": {"sidecar.istio.io/proxyCPU": "10m"}}]},
    "autoscaler's": {
        "pod-annotations": [{"add": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}}]
    },
    "kubectl's": {"pod-annotations": [{"add": {"kubectl.kubernetes.io/default-container": "a"}}]},
    "queue's": {"pod-labels": [{"add": {"kueue.x-k8s.io/queue-name": "q"}}]},
    "recommended": {"pod-labels": [{"add": {"app.kubernetes.io/part-of": "kubeflow"}}]},
    "ports": {"excluded-outbound-ports": [{"ports": [1, 65535]}]},
    "registry": {"image-registries": [{"pods": "!x", "prefixes": {"a.io": "localhost/a"}}]},
}


def registries(**prefixes):
    return [{"pods": "a", "prefixes": prefixes}]


RESERVED = "is reserved: Juju, Kubernetes, Istio or this charm uses it"
# What has no words here is refused in msgspec's.
REFUSED = [
    ("hold", True, "unknown field `hold`"),
    ("hold_application", True, "unknown field"),
    ("model", 1, ""),
    ("native", "certainly", ""),
    ("membership", "all", ""),
    ("included-pods", "a in b", "included-pods: 'a in b' is not a"),
    ("excluded-pods", "a,,b", "excluded-pods: '' is not a"),
    ("inject-label", {}, "inject-label: exactly one label is needed"),
    ("inject-label", {"a": "", "b": ""}, "exactly one label"),
    ("excluded-outbound-ports", [{"pods": "=", "ports": [80]}], "'=' is not a"),
    ("pod-annotations", [{"add": {}}, {"pods": "=", "add": {}}], "'=' is not a"),
    ("image-registries", [{"pods": "=", "prefixes": {}}], "'=' is not a"),
    ("image-registries", [{"pods": " ", "prefixes": {}}], "'' is not a label selector"),
    ("image-registries", registries(**{"a.io": "b.io", "c.io": "b"}), "'b' is not a registry"),
    ("pod-labels", [{"add": {"a": "x"}}, {"add": {"b": "x", "c": "x y"}}], "'x y' of c is not"),
    ("pod-annotations", [{"add": {"a": "x"}}, {"add": {"b": "x", "c d": "x"}}], "'c d' is not"),
    ("excluded-outbound-ports", [{"ports": [1]}, {"ports": [80, 0]}], "0 is not a port"),
    ("pod-labels", {}, ""),
    ("pod-labels", ["x"], ""),
    ("pod-labels", [{"pods": "a"}], ""),
    ("pod-labels", [{"add": {"a": 1}}], ""),
    ("pod-labels", [{"add": {"a b": ""}}], "'a b' is not a key such as team or example.com/team"),
    ("pod-labels", [{"add": {"a": "x" * 64}}], "is not a label value"),
    ("pod-annotations", [{"add": {"a": f"{LONG}x"}}], "the value of a is longer than 65536"),
    ("excluded-outbound-ports", [{"ports": [65536]}], "is not a port"),
    ("excluded-outbound-ports", [{"ports": ["x"]}], ""),
    (
        "image-registries",
        registries(**{"docker.io/": "a.io"}),
        "registry such as docker.io/library",
    ),
    ("image-registries", registries(**{"a.io": f"a.io/{'x/' * 200}x"}), "is not a registry"),
    (
        "image-registries",
        [*registries(**{"a.io": "b.io/x"}), *registries(**{"b.io": "c.io"})],
        "image-registries: 'b.io/x' would itself be moved by 'b.io'",
    ),
    *(
        ("pod-labels", [{"add": {key: "x"}}], f"pod-labels: '{key}' {RESERVED}")
        for key in (
            *("app.kubernetes.io/name", "app.kubernetes.io/managed-by", "kubernetes.io/x"),
            *("k8s.io/x", "batch.kubernetes.io/job-name", "apps.kubernetes.io/pod-index"),
            *("controller-revision-hash", "pod-template-generation"),
            *("statefulset.kubernetes.io/pod-name", "controller-uid", "job-name"),
            *("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-completion-index"),
            *("juju.is/x", "model.juju.is/name", "sidecar.istio.io/inject", "istio.io/rev"),
            *("security.istio.io/tlsMode", "topology.istio.io/network"),
            *("gateway.istio.io/managed", "pod-template-hash", names.PROBE),
        )
    ),
    *(
        ("pod-annotations", [{"add": {key: "x"}}], f"pod-annotations: '{key}' {RESERVED}")
        for key in ("controller.juju.is/id", names.MIRROR, names.APPLIED, names.SETTINGS)
    ),
]


@cases("change", **TAKEN)
def test_settings_come_back_as_they_were_written(change):
    settings = read({**MINIMAL, **change})

    written = json.loads(json.dumps(settings.to_document()))

    assert read(written) == settings
    assert {key: written[key] for key in change} == {
        key: [{"pods": "", **rule} for rule in value] if isinstance(value, list) else value
        for key, value in change.items()
    }


@pytest.mark.parametrize(("option", "value", "message"), REFUSED)
def test_settings_that_cannot_be_meant_are_refused_with_what_is_wrong(option, value, message):
    with pytest.raises(ValueError, match=re.escape(message) or "."):
        read({**MINIMAL, option: value})


def test_thousands_of_registries_are_read_in_a_moment():
    prefixes = {f"{number}.io/{'x/' * 50}y": f"m.io/{'x/' * 50}{number}" for number in range(8000)}
    began = time.process_time()

    read({**MINIMAL, "image-registries": [{"pods": "a", "prefixes": prefixes}]})

    assert time.process_time() - began < 5


@pytest.mark.parametrize("document", [None, [], "x", {}, {"application": "a"}])
def test_what_are_no_settings_is_refused(document):
    with pytest.raises(ValueError, match=r"^the settings are no object$|[Mm]issing|required"):
        read(document)


@pytest.mark.parametrize("value", [True, 80.0, "80", None])
def test_only_a_number_is_a_port(value):
    assert not pods.is_port(value)


@pytest.mark.parametrize(
    ("selector", "is_selected"), [("", True), ("app=web", True), ("app=db", False)]
)
def test_rule_is_for_the_pods_that_it_selects_and_without_a_selector_for_all(
    selector, is_selected
):
    assert pods.Ports(pods=selector, ports=(80,)).selects({"app": "web"}) is is_selected


def test_ports_beside_those_that_the_mesh_excludes_are_named_once():
    assert pods.Ports(ports=(80, 443)).merge((443, 15)).ports == (80, 443, 15)


def test_registries_are_tried_from_the_longest():
    prefixes = {"a.io": "m.io/a", "b.io/z": "m.io/c", "a.io/x/y": "m.io/b"}
    rule = pods.Registries(pods="a", prefixes=prefixes)

    assert [old for old, _ in rule.pairs] == ["a.io/x/y", "b.io/z", "a.io"]


@cases(
    ("values", "changes"),
    nothing=({}, False),
    hold=({"hold_application": True}, True),
    hold_of_the_mesh=({"mesh_holds": True}, True),
    native=({"native": True}, True),
    training=({"pod_traffic": True}, True),
    labels=({"pod_labels": (pods.Entries(add={"a": ""}),)}, True),
    annotations=({"pod_annotations": (pods.Entries(add={"a": ""}),)}, True),
    ports=({"excluded_outbound_ports": (pods.Ports(ports=(1,)),)}, True),
    registries=({"image_registries": (pods.Registries(pods="a", prefixes={}),)}, True),
    membership=({"membership": "selected", "included_pods": "a", "excluded_pods": "b"}, False),
)
def test_settings_with_any_change_but_membership_change_pods(values, changes):
    settings = pods.Settings(**{**MINIMAL, "hold_application": False, **values})
    assert settings.changes_lifecycle is changes


@given(st.text(max_size=300))
def test_any_key_is_refused_or_one_that_a_pod_may_have(key):
    with contextlib.suppress(ValueError):
        pods.check_labels([pods.Entries(add={key: ""})])
        assert re.fullmatch(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9_.-]{1,63}", key)


def test_every_setting_has_its_own_name_in_the_document():
    fields = {field.name.replace("_", "-") for field in dataclasses.fields(pods.Settings)}

    assert set(pods.Settings(**MINIMAL).to_document()) == fields

"""The options that give pods labels, annotations, ports and images."""

import json

import pytest
from sidecar_lifecycle.shell import admission_settings as settings

from integrator_contract import pods
from istio_integrator.config import config
from istio_integrator.kube import errors


def load(**options):
    return config.Config.load({key.replace("_", "-"): value for key, value in options.items()})


def test_nothing_is_wanted_by_default():
    assert load().pod_rules == pods.PodRules()


def test_a_mapping_is_for_every_pod():
    rules = load(pod_labels="{team: ml, example.com/cost: '7'}").pod_labels

    assert rules == (pods.Entries(add={"team": "ml", "example.com/cost": "7"}),)


def test_rules_have_a_selector_each():
    text = "- {pods: app=web, add: {a: b}}\n- add: {c: d}\n"

    assert load(pod_annotations=text).pod_annotations == (
        pods.Entries(pods="app=web", add={"a": "b"}),
        pods.Entries(add={"c": "d"}),
    )


@pytest.mark.parametrize("text", ["5432,6379", " 5432 6379\n", "[{ports: [5432, 6379]}]"])
def test_ports_are_written_as_one_likes(text):
    rules = load(excluded_outbound_ports=text).excluded_outbound_ports

    assert rules == (pods.Ports(ports=(5432, 6379)),)


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("pod_labels", "{app.kubernetes.io/name: x}", "is reserved: "),
        ("pod_labels", "{a: true}", "0.add.a: Input should be a valid string"),
        ("pod_labels", "text", "Input should be a valid array"),
        ("pod_labels", "[{pods: a}]", "0.add: Field required"),
        ("pod_labels", "[{pods: a, add: {}, to: x}]", "0.to: Unexpected keyword"),
        ("pod_labels", "{", "this is no YAML"),
        ("pod_annotations", "{istio-integrator.charmhub.io/applied: x}", "is reserved: "),
        ("pod_annotations", r'{a: "\ud83d"}', "has half a character"),
        ("pod_annotations", "{a: " + "x" * 70_000 + "}", "is longer than"),
        ("excluded_outbound_ports", "0", "0 is not a port"),
        ("excluded_outbound_ports", "[{ports: [true]}]", "0.ports.0: Input should be a valid int"),
        ("excluded_outbound_ports", "[{ports: 80}]", "0.ports: Input should be a valid array"),
        ("image_registries", "[{pods: a, prefixes: {a.io: b}}]", "'b' is not a registry"),
        (
            "image_registries",
            "[{pods: a, prefixes: {a.io: b.io}}, {pods: b, prefixes: {b.io: c.io}}]",
            "'b.io' would itself be moved by 'b.io'",
        ),
    ],
)
def test_what_is_wrong_is_said_with_the_options_name(option, text, message):
    with pytest.raises(errors.ConfigError) as caught:
        load(**{option: text})

    assert message in str(caught.value)
    assert option.replace("_", "-") in str(caught.value)


@pytest.mark.parametrize("option", ["excluded_pods", "pod_annotations"])
def test_a_selector_that_looks_at_an_added_label_is_refused(option):
    text = "[{pods: team=ml, add: {a: b}}]" if option == "pod_annotations" else "team=ml"

    with pytest.raises(errors.ConfigError) as caught:
        load(pod_labels="{team: ml}", **{option: text})

    assert "looks at team, which pod-labels adds" in str(caught.value)


def test_a_rules_selector_does_not_look_at_a_pods_place():
    with pytest.raises(errors.ConfigError, match=r"looks at sidecar\.istio\.io/inject"):
        load(excluded_outbound_ports="[{pods: '!sidecar.istio.io/inject', ports: [80]}]")


def test_every_rule_is_understood_by_the_workload():
    rules = load(
        pod_labels="[{pods: 'a in (b, c)', add: {team: ml}}]",
        pod_annotations="{sidecar.istio.io/proxyCPU: 10m}",
        excluded_outbound_ports="5432",
        image_registries="[{pods: '!x', prefixes: {docker.io: localhost/x}}]",
    ).pod_rules
    wanted = pods.Settings(application="a", model="m", **vars(rules))

    assert settings.load(json.dumps(wanted.document())) == wanted

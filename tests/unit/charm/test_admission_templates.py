"""The rendered admission objects: valid whatever is configured, and safe from what is quoted."""

import dataclasses
import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from integrator_contract import namespaces, pods, selectors
from istio_integrator.admission import policy, settings, webhook
from istio_integrator.config import config
from istio_integrator.kube import manifests, owners

OPTIONS = {
    "included-pods": "team in (a, b)",
    "excluded-pods": "!x,y!=z",
    "mesh-membership": "selected",
    "pod-labels": "[{pods: a, add: {l: '1'}}, {add: {l: '2', m: '3'}}]",
    "pod-annotations": json.dumps({"a/b": "\"'}}){{%#\n</x>", "proxy.istio.io/config": "a: 1"}),
    "excluded-outbound-ports": "80",
    "image-registries": "[{pods: q, prefixes: {docker.io: m.io/x}}]",
}


def context(options, version="v1", *, native=True, groups=("profiles", "labelled")):
    known = config.Config.load(options)
    prepared = settings.Preparation(
        pods.Settings(
            model="m",
            application="app",
            membership=known.mesh_membership,
            included_pods=known.included_pods,
            excluded_pods=known.excluded_pods,
            hold_application=known.hold_application,
            native=native,
            **vars(known.pod_rules),
        ),
        settings.Seen(native=native),
    )
    return policy.context(prepared, selected(groups), owner="m.app", version=version)


def selected(kinds=("profiles", "labelled"), owner=""):
    served = namespaces.Served(
        model="m", mesh_namespace="istio-system", owner=owner, kinds=frozenset(kinds)
    )
    return policy.namespace_selectors(served)


@pytest.mark.parametrize("options", [{}, OPTIONS], ids=["plain", "everything"])
@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_the_policy_is_one_object_with_a_binding_per_kind_of_namespace(options, version):
    first, *bindings = manifests.render("admission-policy", context(options, version))

    assert first["apiVersion"] == f"admissionregistration.k8s.io/{version}"
    assert first["spec"]["failurePolicy"] == "Ignore"
    assert len(first["spec"]["mutations"]) == 1
    assert [binding["apiVersion"] for binding in bindings] == [first["apiVersion"]] * 3
    assert {binding["spec"]["policyName"] for binding in bindings} == {first["metadata"]["name"]}


def test_what_is_switched_off_is_not_in_the_policy():
    options = {"hold-application": False}
    text = json.dumps(manifests.render("admission-policy", context(options, native=False)))

    for word in ("proxy.istio.io/config", "nativeSidecar", "newLabels", "moves", "newPorts"):
        assert word not in text


@given(value=st.text(max_size=40))
def test_a_value_stays_one_string_of_cel(value):
    options = {"pod-annotations": json.dumps({"a": value})}
    rendered = manifests.render("admission-policy", context(options))[0]
    variables = {item["name"]: item["expression"] for item in rendered["spec"]["variables"]}
    written = variables["newAnnotations"].partition("optional.of(")[2].rpartition(") :")[0]

    # CEL's escapes are YAML's, as far as these strings have any.
    assert yaml.safe_load(written) == value


@pytest.mark.parametrize("application", ["a", "x" * 63, "a-" * 40 + "b"])
def test_names_of_the_webhooks_objects_are_dns_labels(application):
    name = owners.object_name(application, "admission")

    assert len(name) <= 63
    assert selectors.is_value(name)
    assert owners.object_name(application, "admission-tls") != name


def test_the_webhook_asks_at_creation_only_and_fails_open():
    hooked = selected(["labelled"])
    fields = {"name": "0-x", "service": "s", "model": "m", "ca_bundle": "Yg=="}
    rendered = manifests.render(
        "admission-webhook-configuration",
        webhook.ConfigurationContext(**fields, namespace_selectors=hooked),
    )

    hooks = rendered[0]["webhooks"]
    assert [hook["name"].split(".")[0] for hook in hooks] == ["model", "labelled"]
    for hook in hooks:
        assert hook["rules"][0]["operations"] == ["CREATE"]
        assert (hook["failurePolicy"], hook["timeoutSeconds"]) == ("Ignore", 3)


def test_every_template_renders_with_its_context_alone():
    for folder, kind in (
        ("admission-webhook", webhook.WorkloadContext),
        ("admission-certificates", webhook.SecretContext),
    ):
        texts = {field.name: "x" for field in dataclasses.fields(kind)}
        given_as = {"pod_labels": {"a": "b"}, "data": {"a": "Yg=="}, "image_pull_secrets": []}
        values = {key: given_as.get(key, text) for key, text in texts.items()}

        assert manifests.render(folder, kind(**values))

"""The rendered admission objects: valid whatever is configured, and safe from what is quoted."""

import dataclasses
import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import config
import labels
import manifests
import policy
import webhook
import wishes

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
    wanted = wishes.Wishes(
        model="m",
        application="app",
        membership=known.mesh_membership,
        lifecycle_in_model=True,
        included_pods=known.included_pods,
        excluded_pods=known.excluded_pods,
        hold_application=known.hold_application,
        seen=wishes.Seen(native=native),
        rules=known.pod_rules,
    )
    namespaces = policy.namespace_selectors("m", groups, istiod_namespace="istio-system")
    return policy.context(wanted, namespaces, owner="m.app", version=version)


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


@settings(deadline=None)
@given(value=st.text(max_size=40))
def test_a_value_stays_one_string_of_cel(value):
    options = {"pod-annotations": json.dumps({"a": value})}
    rendered = manifests.render("admission-policy", context(options))[0]
    variables = {item["name"]: item["expression"] for item in rendered["spec"]["variables"]}
    written = variables["newAnnotations"].partition("optional.of(")[2].rpartition(") :")[0]

    # CEL's escapes are YAML's, as far as these strings have any.
    assert yaml.safe_load(written) == value


SELECTORS = dict(policy.namespace_selectors("m", ("profiles", "labelled"), istiod_namespace="i"))
NAMESPACE_LABELS = st.fixed_dictionaries(
    {"kubernetes.io/metadata.name": st.sampled_from(["m", "i", "kube-system", "x"])},
    optional={
        "app.kubernetes.io/part-of": st.sampled_from(["kubeflow-profile", "other"]),
        policy.LIFECYCLE_LABEL: st.sampled_from(["enabled", "disabled", "odd"]),
        "controller.juju.is/id": st.just("x"),
    },
)


OWNED = dict(
    policy.namespace_selectors("m", ("profiles", "labelled"), istiod_namespace="i", owner="m.a")
)


def selects(expressions, found):
    def meets(expression):
        value, values = found.get(expression["key"]), expression.get("values", [])
        return {
            "In": value in values,
            "NotIn": value not in values,
            "DoesNotExist": value is None,
        }[expression["operator"]]

    return all(map(meets, expressions))


@given(NAMESPACE_LABELS)
def test_no_namespace_is_of_two_kinds(found):
    kinds = [kind for kind, expressions in SELECTORS.items() if selects(expressions, found)]

    assert len(kinds) <= 1
    name = found["kubernetes.io/metadata.name"]
    assert (name == "m") == (kinds == ["model"])
    if name in ("i", "kube-system") or ("controller.juju.is/id" in found and name != "m"):
        assert kinds == []
    if found.get(policy.LIFECYCLE_LABEL) == "disabled" and name != "m":
        assert kinds == []


@given(NAMESPACE_LABELS, st.sampled_from(["", "m.a", "n.a"]))
def test_a_namespace_is_served_unless_another_integrator_does(found, holder):
    marks = {**found, **({policy.SERVED_BY: holder} if holder else {})}
    kinds = [kind for kind, expressions in OWNED.items() if selects(expressions, marks)]
    alone = [kind for kind, expressions in SELECTORS.items() if selects(expressions, found)]

    if alone in ([], ["model"]):
        assert kinds == alone
    else:
        want = {"": alone, "m.a": [f"{alone[0]}-ours"], "n.a": []}
        assert kinds == want[holder]


@pytest.mark.parametrize("application", ["a", "x" * 63, "a-" * 40 + "b"])
def test_names_of_the_webhooks_objects_are_dns_labels(application):
    name = webhook.object_name(application, "admission")

    assert len(name) <= 63
    assert labels.is_value(name)
    assert webhook.object_name(application, "admission-tls") != name


def test_the_webhook_asks_at_creation_only_and_fails_open():
    namespaces = policy.namespace_selectors("m", ("labelled",))
    fields = {"name": "0-x", "service": "s", "model": "m", "ca_bundle": "Yg=="}
    rendered = manifests.render(
        "admission-webhook-configuration",
        webhook.ConfigurationContext(**fields, namespace_selectors=namespaces),
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

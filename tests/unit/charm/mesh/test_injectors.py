import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.kube import cluster
from istio_integrator.mesh import injectors
from tests.unit.charm import fake_cluster


def found(fake) -> list[injectors.Injector]:
    return injectors.find(fake.api().list(cluster.MUTATING_WEBHOOK))


def chosen(fake, namespace="", revision=""):
    return injectors.choose(
        found(fake), namespace=namespace, revision=revision, application="istio-integrator"
    )


def test_find_reads_the_default_injector(fake):
    fake_cluster.install_istio(fake)
    assert found(fake) == [
        injectors.Injector(
            namespace="istio-system",
            revision="default",
            istiod_revision="default",
            is_default=True,
            service="istiod",
            configuration="istio-sidecar-injector",
        )
    ]


def test_find_reads_revisions_and_tags(fake):
    fake_cluster.install_istio(fake, revision="1-31", tags=("prod",))
    names = [(one.revision, one.istiod_revision, one.is_default) for one in found(fake)]
    assert names == [("1-31", "1-31", False), ("prod", "1-31", False)]


def test_find_reads_an_injector_addressed_by_url(fake):
    fake_cluster.install_istio(fake)
    configuration = fake.find("MutatingWebhookConfiguration", "istio-sidecar-injector")
    for hook in configuration["webhooks"]:
        hook["clientConfig"] = {"url": "https://remote.example:15017/inject"}
    (one,) = found(fake)
    assert (one.namespace, one.url) == ("", "https://remote.example:15017/inject")


def test_find_leaves_out_other_webhooks_and_a_deactivated_injector(fake):
    fake_cluster.install_istio(fake)
    configuration = fake.find("MutatingWebhookConfiguration", "istio-sidecar-injector")
    for hook in configuration["webhooks"]:
        hook["namespaceSelector"] = {"matchLabels": {"istio.io/deactivated": "never-match"}}
    fake.add(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "juju-model-admission-kubeflow"},
            "webhooks": [{"name": "admission.juju.is", "namespaceSelector": {}}],
        }
    )
    assert found(fake) == []


def test_choose_without_any_injector_waits(fake):
    assert chosen(fake) == injectors.NoInjector(
        "waiting for istiod: the cluster has no sidecar injector"
    )


def test_choose_prefers_the_default_to_a_revision(fake):
    fake_cluster.install_istio(fake)
    fake_cluster.install_istio(fake, revision="canary")
    assert chosen(fake).is_default


def test_choose_among_revisions_names_them_and_the_command(fake):
    fake_cluster.install_istio(fake, revision="1-30")
    fake_cluster.install_istio(fake, revision="1-31", tags=("prod",))
    assert chosen(fake) == injectors.Refusal(
        "several Istios; run: juju config istio-integrator revision=1-30; or choose another of "
        "1-30 (istio-system), 1-31 (istio-system), prod (istio-system)"
    )


def test_choose_among_namespaces_names_the_other_option(fake):
    fake_cluster.install_istio(fake)
    fake_cluster.install_istio(fake, namespace="mesh-b")
    refusal = chosen(fake)
    assert "run: juju config istio-integrator istiod-namespace=istio-system" in refusal.message
    assert chosen(fake, namespace="mesh-b").namespace == "mesh-b"


def test_choose_of_a_tag_by_name(fake):
    fake_cluster.install_istio(fake, revision="1-31", tags=("prod",))
    assert chosen(fake, revision="prod").istiod_revision == "1-31"
    assert chosen(fake, revision="1-31").revision == "1-31"


def test_choose_of_an_unknown_revision_lists_those_that_exist(fake):
    fake_cluster.install_istio(fake)
    fake_cluster.install_istio(fake, revision="1-31")
    assert chosen(fake, revision="1-29") == injectors.Refusal(
        "revision 1-29 does not exist; there is 1-31, default"
    )


def test_choose_of_a_namespace_without_istiod_waits_and_says_where_one_is(fake):
    fake_cluster.install_istio(fake)
    assert chosen(fake, namespace="elsewhere") == injectors.NoInjector(
        "waiting for an istiod in elsewhere; there is one in istio-system"
    )


NAMES = st.sampled_from(["a", "b", "default"])
INJECTORS = st.lists(
    st.builds(
        injectors.Injector,
        namespace=st.sampled_from(["", "x", "y"]),
        remote_namespace=st.sampled_from(["", "x"]),
        revision=NAMES,
        istiod_revision=NAMES,
        is_default=st.booleans(),
    ),
    unique=True,
)


@given(INJECTORS, st.sampled_from(["", "x", "z"]), st.sampled_from(["", "a", "default", "none"]))
def test_choose_takes_one_that_was_asked_for_or_says_why_not(there, namespace, revision):
    choice = injectors.choose(there, namespace=namespace, revision=revision, application="app")
    if isinstance(choice, injectors.Injector):
        assert namespace in ("", choice.installed_in)
        told = choice.remote_namespace == namespace
        assert choice in there or (
            told and dataclasses.replace(choice, remote_namespace="") in there
        )
        assert revision in ("", choice.revision, choice.istiod_revision)
        return
    assert choice.message
    assert not choice.message.endswith("=")
    assert isinstance(choice, injectors.NoInjector) or there


@pytest.mark.parametrize("webhooks", [None, [], [{}]])
def test_find_survives_an_empty_configuration(webhooks):
    assert injectors.find([{"metadata": {"name": "x"}, "webhooks": webhooks}]) == []

"""Whether a namespace that others labelled is a member, by what the injectors make of it."""

import pytest
from ops import testing

from tests.unit.charm import fake_cluster
from tests.unit.charm.charm_world import joins, state

DEFAULT = {}
CANARY = {"revision": "1-30"}
WITH_DEFAULT_TAG = {"revision": "1-30", "tags": ("default",)}
TAGGED = {"revision": "1-31", "tags": ("prod",)}
ENABLED = {"istio-injection": "enabled"}


def rev(name):
    return {"istio.io/rev": name}


@pytest.mark.parametrize(
    ("installed", "labels", "revision"),
    [
        pytest.param([DEFAULT], rev("default"), "", id="default"),
        pytest.param([DEFAULT], rev("default"), "default", id="default-is-named"),
        pytest.param([WITH_DEFAULT_TAG], rev("1-30"), "", id="revision-of-the-default-tag"),
        pytest.param([WITH_DEFAULT_TAG], rev("default"), "1-30", id="default-tag"),
        pytest.param([WITH_DEFAULT_TAG], ENABLED, "1-30", id="enabled-by-the-default-tag"),
        pytest.param([TAGGED], rev("prod"), "1-31", id="tag"),
        pytest.param([TAGGED], rev("1-31"), "prod", id="revision-of-the-tag"),
        pytest.param([DEFAULT, CANARY], {**ENABLED, **rev("1-30")}, "", id="revision-is-ignored"),
    ],
)
def test_namespace_that_the_chosen_istio_injects_is_a_member(
    ctx, fake, installed, labels, revision
):
    for each in installed:
        fake_cluster.install_istio(fake, **each)
    fake.labels("kubeflow").update(labels)
    out = ctx.run(ctx.on.config_changed(), state(revision=revision))
    assert isinstance(out.unit_status, testing.ActiveStatus)
    assert joins(ctx, out)[0]
    assert {key: fake.labels("kubeflow").get(key) for key in labels} == labels
    assert len([key for key in fake.labels("kubeflow") if "istio" in key]) == len(labels)


@pytest.mark.parametrize(
    ("installed", "labels", "revision", "superfluous"),
    [
        pytest.param([DEFAULT], rev("gone"), "", "istio.io/rev", id="no-such-revision"),
        pytest.param([CANARY, TAGGED], rev("prod"), "1-30", "istio.io/rev", id="tag-of-another"),
        pytest.param(
            [CANARY], {**ENABLED, **rev("1-30")}, "", "istio-injection", id="no-default-istio"
        ),
        pytest.param(
            [DEFAULT, CANARY],
            {**ENABLED, **rev("1-30")},
            "1-30",
            "istio-injection",
            id="the-default-istio-injects",
        ),
    ],
)
def test_label_that_keeps_the_chosen_istio_from_injecting_is_named(  # noqa: PLR0917 - a table
    ctx, fake, installed, labels, revision, superfluous
):
    for each in installed:
        fake_cluster.install_istio(fake, **each)
    fake.labels("kubeflow").update(labels)
    out = ctx.run(ctx.on.config_changed(), state(revision=revision))
    assert out.unit_status.message.startswith(
        f"namespace kubeflow has {superfluous}={labels[superfluous]}; "
        f"run: kubectl label ns kubeflow {superfluous}-; "
    )
    assert not joins(ctx, out)[0]

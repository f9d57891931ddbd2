"""Membership of a namespace with another team's labels, as the injectors interpret them."""

from ops import testing

from tests.unit.cases import cases
from tests.unit.charm import fake_cluster
from tests.unit.charm.charm_world import joins, state

DEFAULT = {}
CANARY = {"revision": "stable"}
WITH_DEFAULT_TAG = {"revision": "stable", "tags": ("default",)}
TAGGED = {"revision": "1-31", "tags": ("prod",)}
ENABLED = {"istio-injection": "enabled"}


def rev(name):
    return {"istio.io/rev": name}


@cases(
    ("installed", "labels", "revision", "superfluous"),
    default=([DEFAULT], rev("default"), "", ""),
    default_is_named=([DEFAULT], rev("default"), "default", ""),
    revision_of_the_default_tag=([WITH_DEFAULT_TAG], rev("stable"), "", ""),
    default_tag=([WITH_DEFAULT_TAG], rev("default"), "stable", ""),
    enabled_by_the_default_tag=([DEFAULT, WITH_DEFAULT_TAG], ENABLED, "stable", ""),
    tag=([TAGGED], rev("prod"), "1-31", ""),
    revision_of_the_tag=([TAGGED], rev("1-31"), "prod", ""),
    revision_is_ignored=([DEFAULT, CANARY], {**ENABLED, **rev("stable")}, "", ""),
    no_such_revision=([DEFAULT], rev("gone"), "", "istio.io/rev"),
    tag_of_another=([CANARY, TAGGED], rev("prod"), "stable", "istio.io/rev"),
    no_default_istio=([CANARY], {**ENABLED, **rev("stable")}, "", "istio-injection"),
    default_istio_injects=(
        [DEFAULT, CANARY],
        {**ENABLED, **rev("stable")},
        "stable",
        "istio-injection",
    ),
)
def test_namespace_is_a_member_where_the_chosen_istio_injects(  # noqa: PLR0917 - a table
    ctx, fake, installed, labels, revision, superfluous
):
    for each in installed:
        fake_cluster.install_istio(fake, **each)
    fake.labels("kf").update(labels)
    out = ctx.run(ctx.on.config_changed(), state(revision=revision))
    assert joins(ctx, out)[0] is not bool(superfluous)
    assert {k: v for k, v in fake.labels("kf").items() if "istio" in k} == labels
    if superfluous:
        assert out.unit_status.message.startswith(
            f"namespace kf has {superfluous}={labels[superfluous]}; "
            f"run: kubectl label ns kf {superfluous}-; "
        )
    else:
        assert isinstance(out.unit_status, testing.ActiveStatus)

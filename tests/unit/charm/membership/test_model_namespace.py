"""How the model's namespace joins, and what is left of it afterwards."""

import dataclasses
import json

import ops
import pytest

from integrator_contract import names
from istio_integrator.config import config
from istio_integrator.istio import installation
from istio_integrator.kube import errors, manifests
from istio_integrator.membership import model_namespace
from istio_integrator.situation import situation
from tests import shown

DEFAULT = installation.Mesh(
    namespace="istio-system", revision="default", is_default=True, alive=True
)
CANARY = installation.Mesh(
    namespace="istio-system", revision="canary", is_default=False, alive=True
)
DEAD = installation.Mesh(
    namespace="istio-system", revision="default", is_default=True, problem="x"
)
ENABLED = {"istio-injection": "enabled"}


def place(fake, found, *, leader=True, application="istio-integrator", **options):
    own = manifests.Manifests(fake.api(), model="kubeflow", application=application)
    scope = situation.Situation(
        cluster=fake.api(),
        manifests=own,
        config=config.Config(**options),
        mesh=found,
        model="kubeflow",
        application=application,
        unit=f"{application}/0",
        leader=leader,
    )
    return model_namespace.Membership(scope)


def reconciled(fake, found, **options) -> model_namespace.Membership:
    made = place(fake, found, **options)
    made.said = made.reconcile()
    return made


def mesh_labels(fake) -> dict[str, str]:
    return {key: value for key, value in fake.labels("kubeflow").items() if "istio" in key}


def record(fake) -> dict | None:
    annotations = fake.find("Namespace", "kubeflow")["metadata"].get("annotations", {})
    return json.loads(annotations[names.MEMBERSHIP]) if names.MEMBERSHIP in annotations else None


def blocked(made) -> str:
    (status,) = shown.statuses(made.said)
    assert isinstance(status, ops.BlockedStatus)
    return status.message


def test_namespace_joins_a_living_mesh_and_remembers(fake):
    made = reconciled(fake, DEFAULT)
    assert made.joined
    assert made.said == []
    assert mesh_labels(fake) == ENABLED
    assert record(fake) == {
        "owner": "kubeflow.istio-integrator",
        "set": ENABLED,
        "before": {"istio-injection": None},
    }


@pytest.mark.parametrize("found", [DEAD, None], ids=["dead", "gone"])
def test_member_stays_a_member_when_istiod_goes(fake, found):
    reconciled(fake, DEFAULT)
    assert reconciled(fake, found).joined
    assert mesh_labels(fake) == ENABLED


def test_namespace_follows_a_change_of_revision(fake):
    reconciled(fake, DEFAULT)
    assert reconciled(fake, CANARY).joined
    assert mesh_labels(fake) == {"istio.io/rev": "canary"}


def test_label_that_somebody_removed_comes_back(fake, caplog):
    place(fake, DEFAULT).claim()
    reconciled(fake, DEFAULT)
    assert "had been removed" not in caplog.text
    del fake.labels("kubeflow")["istio-injection"]
    reconciled(fake, DEFAULT)
    assert mesh_labels(fake) == ENABLED
    assert "had been removed" in caplog.text


def test_label_of_somebody_else_is_used_and_not_taken_over(fake):
    fake.labels("kubeflow").update(ENABLED)
    made = reconciled(fake, DEFAULT)
    assert made.joined
    assert fake.writes == []
    made.remove()
    assert mesh_labels(fake) == ENABLED


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        pytest.param(
            {"istio.io/rev": "other"},
            "namespace kubeflow has istio.io/rev=other; "
            "run: kubectl label ns kubeflow istio.io/rev-; or set revision to match",
            id="another revision",
        ),
        pytest.param(
            {"istio-injection": "disabled"},
            "has istio-injection=disabled; run: kubectl label ns kubeflow istio-injection-; "
            "or set mesh-mode=none",
            id="disabled",
        ),
    ],
)
def test_namespace_with_an_obstacle_is_left_alone_and_said(fake, labels, words):
    fake.labels("kubeflow").update(labels)
    made = reconciled(fake, DEFAULT)
    assert words in blocked(made)
    assert not made.joined
    assert fake.writes == []


def test_disabled_after_joining_is_respected_also_at_removal(fake):
    reconciled(fake, DEFAULT)
    fake.labels("kubeflow")["istio-injection"] = "disabled"
    made = reconciled(fake, DEFAULT)
    assert "disabled" in blocked(made)
    made.remove()
    assert mesh_labels(fake) == {"istio-injection": "disabled"}
    assert record(fake) is None


def test_second_integrator_is_told_about_the_first(fake):
    fake.application()
    reconciled(fake, DEFAULT)
    second = reconciled(fake, DEFAULT, application="other")
    assert "kubeflow.istio-integrator" in blocked(second)
    assert not second.joined
    second.remove()
    assert mesh_labels(fake) == ENABLED


@pytest.mark.parametrize("found", [DEFAULT, CANARY, None], ids=["same", "other", "none"])
def test_what_an_application_left_that_is_no_more_is_inherited(fake, found):
    reconciled(fake, DEFAULT)
    second = reconciled(fake, found, application="other")
    assert second.claim() is None
    assert second.said == []
    assert record(fake)["owner"] == "kubeflow.other"
    fake.writes.clear()
    reconciled(fake, found, application="other")
    assert fake.writes == []
    second.remove()
    assert mesh_labels(fake) == {}
    assert record(fake) is None


def test_what_was_inherited_is_given_back_where_nobody_joins(fake):
    reconciled(fake, DEFAULT)
    reconciled(fake, DEFAULT, application="other", mesh_mode="none")
    assert mesh_labels(fake) == {}
    assert record(fake) == {"owner": "kubeflow.other", "set": {}, "before": {}}


def test_who_does_not_lead_inherits_nothing(fake):
    reconciled(fake, DEFAULT)
    fake.writes.clear()
    reconciled(fake, DEFAULT, application="other", leader=False)
    assert fake.writes == []


def test_removal_gives_the_namespace_back(fake):
    before = json.dumps(fake.find("Namespace", "kubeflow")["metadata"]["labels"])
    made = reconciled(fake, DEFAULT)
    made.remove()
    made.remove()
    after = fake.find("Namespace", "kubeflow")["metadata"]
    assert json.dumps(after["labels"]) == before
    assert not after["annotations"]


def test_removal_where_the_namespace_is_gone_is_done(fake):
    fake.delete("Namespace", "kubeflow")
    place(fake, None).remove()


WISHES = {"namespace": {}, "selected": {"included_pods": "a=b"}, "none": {"mesh_mode": "none"}}


@pytest.mark.parametrize("wish", ["none", "selected"])
def test_namespace_leaves_when_membership_changes(fake, wish):
    reconciled(fake, DEFAULT)
    made = reconciled(fake, DEFAULT, **WISHES[wish])
    assert made.joined == (wish == "selected")
    assert mesh_labels(fake) == {}


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        pytest.param(ENABLED, "or unset included-pods", id="enabled"),
        pytest.param({"istio.io/rev": "x"}, "kubectl label ns kubeflow istio.io/rev-", id="rev"),
        pytest.param({"istio-injection": "disabled"}, "istio-injection=disabled", id="disabled"),
        pytest.param(
            {"istio.io/dataplane-mode": "ambient"},
            "as every pod joins by this label",
            id="ambient",
        ),
    ],
)
def test_pods_join_one_by_one_only_where_the_namespace_says_nothing(fake, labels, words):
    fake.labels("kubeflow").update(labels)
    made = reconciled(fake, DEFAULT, included_pods="a=b")
    assert words in blocked(made)
    assert not made.joined
    assert fake.writes == []


def test_label_that_was_there_before_us_keeps_pods_from_joining_one_by_one(fake):
    fake.labels("kubeflow").update(ENABLED)
    place(fake, DEFAULT).claim()
    reconciled(fake, DEFAULT)
    made = reconciled(fake, DEFAULT, included_pods="a=b")
    assert "every pod joins" in blocked(made)
    assert mesh_labels(fake) == ENABLED


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("found", [DEFAULT, DEAD, None], ids=["alive", "dead", "none"])
@pytest.mark.parametrize("labels", [{}, ENABLED], ids=["", "labelled"])
def test_first_integrator_serves_the_model_whatever_it_does_there(fake, wish, found, labels):
    fake.application()
    fake.labels("kubeflow").update(labels)
    first = place(fake, found, **WISHES[wish])
    assert first.claim() is None
    first.reconcile()
    fake.writes.clear()
    assert first.claim() is None
    words = (
        "namespace kubeflow is managed by kubeflow.istio-integrator: remove one of the two "
        "integrators"
    )
    assert place(fake, found, application="other").claim().text == words
    assert fake.writes == []
    first.remove()
    assert mesh_labels(fake) == labels
    assert record(fake) is None


def test_model_is_served_without_the_right_to_say_so(fake, caplog):
    fake.forbidden.add(("patch", "namespaces"))
    caplog.set_level("INFO")
    assert place(fake, DEFAULT).claim() is None
    assert "served without a record" in caplog.text


def test_change_in_between_is_a_conflict(fake):
    fake.interference.append(lambda: fake.namespace("kubeflow", istio__injection="disabled"))
    with pytest.raises(errors.ConflictError):
        reconciled(fake, DEFAULT)
    assert mesh_labels(fake) == {"istio-injection": "disabled"}


def test_unreadable_record_counts_as_none(fake):
    fake.find("Namespace", "kubeflow")["metadata"]["annotations"] = {names.MEMBERSHIP: "["}
    assert reconciled(fake, DEFAULT).joined


TEAM = {"matchLabels": {"team": "ml"}}
BY_INJECTION = {"matchLabels": {"istio-injection": "enabled"}}


@pytest.mark.parametrize(
    ("selectors", "label"),
    [
        pytest.param([], "", id="none"),
        pytest.param([{}], "", id="all"),
        pytest.param([TEAM], "team=ml", id="another-label"),
        pytest.param([TEAM, BY_INJECTION], "", id="one-of-several"),
        pytest.param([BY_INJECTION], "", id="the-label-that-joins"),
    ],
)
def test_model_that_istiod_does_not_serve_is_not_labelled(fake, selectors, label):
    found = dataclasses.replace(DEFAULT, discovery_selectors=tuple(selectors))
    made = reconciled(fake, found)

    assert made.joined is not bool(label)
    assert mesh_labels(fake) == ({} if label else ENABLED)
    if label:
        assert blocked(made).endswith(f"; run: kubectl label namespace kubeflow {label}")
        assert "istio-system/istiod" in blocked(made)
        namespace = fake.find("Namespace", "kubeflow")
        assert namespace is not None
        namespace["metadata"]["labels"]["team"] = "ml"
        fake.add(namespace)
        assert reconciled(fake, found).joined


def test_model_that_does_not_join_needs_not_be_served(fake):
    found = dataclasses.replace(DEFAULT, discovery_selectors=(TEAM,))
    made = reconciled(fake, found, mesh_mode="none")
    assert made.said == []

"""Names that the programs share, and the pages that explain reasons."""

import dataclasses
import pathlib
import re

from integrator_contract import answers, names, reasons
from tests.unit.cases import cases

ROOT = pathlib.Path(__file__).parents[3]


@cases(
    ("model", "application", "want"),
    short=("kf", "mesh-2", "kf.mesh-2"),
    cut_at_a_hyphen=("m" * 40, f"{'a' * 10}-b{'c' * 20}", f"{'m' * 40}.{'a' * 10}-"),
    longest=("m" * 40, "a" * 22, f"{'m' * 40}.{'a' * 22}"),
    too_long=("m" * 40, "a" * 23, f"{'m' * 40}.{'a' * 11}-"),
    cut_at_the_dot=("m" * 51, "a" * 23, f"{'m' * 51}-"),
)
def test_owner_fits_a_label_and_differs_by_application(model, application, want):
    owner = names.name_owner(model, application)

    assert re.fullmatch(rf"{re.escape(want)}([0-9a-f]{{10}})?", owner)
    assert len(owner) <= 63
    assert names.name_owner(model, f"{application}x") != owner
    assert names.name_owner("m" * 60, application) != names.name_owner("m" * 61, application)


@cases(
    ("application", "want"),
    short=("mesh-2", "mesh-2-admission"),
    longest=("a" * 53, f"{'a' * 53}-admission"),
    cut_at_a_hyphen=(f"{'a' * 43}-{'b' * 10}", f"{'a' * 43}-bc1f407e-admission"),
    too_long=("a" * 54, f"{'a' * 44}-a3f01b69-admission"),
)
def test_object_of_a_long_name_fits_a_dns_label(application, want):
    assert names.name_object(application, "admission") == want


@cases(
    ("labels", "is_machinery"),
    unit=({names.NAME: "mesh-2"}, True),
    of_a_longer_name=({names.NAME: "mesh-2-db"}, False),
    webhook=({names.COMPONENT: "admission-webhook"}, True),
    gateway=({names.COMPONENT: "gateway"}, False),
    modeloperator=({"operator.juju.is/name": "modeloperator"}, True),
    another_operator=({"operator.juju.is/name": "mesh-2"}, False),
    old_modeloperator=({"juju-modeloperator": "modeloperator"}, True),
)
def test_machinery_is_modeloperator_the_application_and_its_webhook(labels, is_machinery):
    assert names.is_machinery(labels, "mesh-2") is is_machinery


def test_object_of_the_application_is_labelled_with_manager_owner_and_component():
    assert names.make_labels("kf", "mesh-2", "gateway") == {
        "app.kubernetes.io/managed-by": "istio-integrator",
        "istio-integrator.charmhub.io/owner": "kf.mesh-2",
        "istio-integrator.charmhub.io/component": "gateway",
    }


def test_summary_has_another_word_when_any_field_but_old_proxies_changes():
    counts = dict.fromkeys(("eligible", "in_mesh", "converging", "proposed", "reported"), 0)
    summary = answers.Summary(**counts, troubles=())
    names_of_fields = [field.name for field in dataclasses.fields(summary)]
    changed = {name: dataclasses.replace(summary, **{name: 7}) for name in names_of_fields}

    same = {name for name, each in changed.items() if each.digest() == summary.digest()}
    assert same == {"stale", "word"}


def rows(page: str) -> dict[str, str]:
    """Return the meanings of words that a page of the reference has."""
    text = (ROOT / "docs/reference" / page).read_text()
    return dict(re.findall(r"^- `(\w+)`: (.*)$", text, re.MULTILINE))


def test_pages_explain_each_reason_and_no_other_word():
    explained = rows("reasons.md") | rows("events.md")

    assert set(explained) == set(reasons.Reason)
    assert all(explained[reason] == text for reason, text in reasons.ADMISSION.items())
    assert all(re.fullmatch(r"([A-Z][a-z]+)+", reason) for reason in reasons.Reason)

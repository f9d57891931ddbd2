"""Names that the programs share, and the pages that explain reasons."""

import pathlib
import re

import pytest

from integrator_contract import names, reasons

ROOT = pathlib.Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("model", "application", "want"),
    [
        ("kf", "mesh-2", "kf.mesh-2"),
        ("m" * 40, "a" * 22, f"{'m' * 40}.{'a' * 22}"),
        ("m" * 40, "a" * 23, f"{'m' * 40}.{'a' * 11}-"),
        ("m" * 51, "a" * 23, f"{'m' * 51}-"),
    ],
)
def test_owner_fits_a_label_and_differs_by_application(model, application, want):
    owner = names.name_owner(model, application)

    assert owner.startswith(want)
    assert len(owner) <= 63
    assert names.name_owner(model, f"{application}x") != owner


def rows(page: str) -> dict[str, str]:
    """Return the meanings of words that a page of the reference has."""
    text = (ROOT / "docs/reference" / page).read_text()
    return dict(re.findall(r"^- `(\w+)`: (.*)$", text, re.MULTILINE))


def test_pages_explain_each_reason_and_no_other_word():
    explained = rows("reasons.md") | rows("events.md")

    assert set(explained) == set(reasons.Reason)
    assert all(explained[reason] == text for reason, text in reasons.ADMISSION.items())
    assert all(re.fullmatch(r"([A-Z][a-z]+)+", reason) for reason in reasons.Reason)

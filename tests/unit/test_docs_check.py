"""The rules about words that docs/check.py has for pages and messages."""

import pathlib
import runpy

import pytest

from tests.unit.cases import cases

ROOT = pathlib.Path(__file__).parents[2]
GUIDE = "If you need to, you can do this, for example now. You can also wait. "


@pytest.fixture
def checked(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    return runpy.run_path(str(ROOT / "docs/check.py"))


@cases(
    ("page", "found"),
    guides=(GUIDE * 10, 0),
    facts_alone=("The charm restarts the pods of the model. " * 10, 5),
    negative_subjects=(f"{GUIDE}Nothing restarts. " * 10, 1),
    semicolons=(f"{GUIDE}One restarts; one waits. " * 10, 1),
    in_code=(
        f"{GUIDE}`a; nothing`\n```console\nnobody; none\n```\n<!-- nothing; none -->\n" * 10,
        0,
    ),
)
def test_pages_have_the_words_of_a_guide(checked, page, found):
    assert len(list(checked["unlike_the_field"]([page]))) == found


def test_texts_of_every_kind_are_read(checked):
    kinds = {where.split()[0].split("/")[0].rstrip(":") for where, _ in checked["_texts"](ROOT)}
    assert {"alert", "dashboard", "make", "demo", "actions.yaml", "config.yaml"} <= kinds

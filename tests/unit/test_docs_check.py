"""`make lint` finds a test that is gone, a promise without one, and words not to be used."""

import pathlib
import runpy
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def check() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")
        return runpy.run_path(str(ROOT / "docs/check.py"))


@pytest.fixture(scope="module")
def messages() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs/messages.py"))


def test_nothing_is_wrong_with_what_is_written(check):
    assert list(check["all_of"](ROOT)) == []


@pytest.mark.parametrize(
    ("page", "wrong"),
    [
        ("`test_here`", 0),
        ("`tests/test_a.py::test_here`, case `x` of `tests/test_a.py`", 0),
        ("`test_gone`", 1),
        ("`tests/test_a.py::test_gone`", 1),
        ("`tests/test_gone.py::test_here`", 1),
        ("`tests/test_gone.py`", 1),
    ],
)
def test_test_that_is_gone_is_found(check, tmp_path, page, wrong):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text("async def test_here():\n    pass\n")
    found = list(check["absent"]("page.md", page, {"test_here"}, tmp_path))
    assert len(found) == wrong


@pytest.mark.parametrize(
    ("page", "wrong"),
    [
        ("juju deploy . --trust", 1),
        ("juju deploy ./istio-integrator", 1),
        ("Run `juju deploy testbed/charms/webapp`.", 1),
        ("juju wait-for application a", 1),
        ("juju deploy ./build/a.charm --trust", 0),
        ("juju deploy ./bundle.yaml", 0),
        ("juju deploy istio-k8s --resource a=b/c", 0),
    ],
)
def test_command_that_juju_refuses_is_found(check, page, wrong):
    assert len(list(check["refused"]("page.md", page))) == wrong


@pytest.mark.parametrize(
    ("page", "wrong"),
    [
        ("It never does.", 1),
        ("Some words.\n\n- it never does;\n- it does", 1),
        ("It never does (`test_it`).", 0),
        ("It never does.[^a]\n\n[^a]: Held by `test_it`.", 0),
        ("It never does.[^a]", 1),
        ("It never does.[^a]\n\n[^a]: I say so.", 1),
        ("It never does.[^a]\n\n[^a]: `ValidatePod` of `k8s.io/kubernetes`.", 0),
        ("```text\nnever\n```", 0),
        ("# It never does", 0),
        ("| a | b |\n| --- | --- |\n| It never does. | `test_it` |\n| It always does. | |", 1),
    ],
)
def test_promise_that_names_no_test_is_found(check, page, wrong):
    assert len(list(check["unheld"]("page.md", page))) == wrong


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("the pod waits for «our_gateway»", True),
        ("the pod waits for our gateway", False),
        ("please wait", False),
        ("options are not looked at", False),
        ("missing permission: list pods", True),
        ("may not list pods", False),
        ("run: juju config app --reset cpu", False),
        ("the house of Ours", True),
    ],
)
def test_words_that_nobody_should_read_are_found(check, text, plain):
    assert (list(check["unplain"]([("file:1", text)])) == []) is plain


@pytest.mark.parametrize(
    ("where", "text", "right"),
    [
        (
            "src/a.py:1",
            "the label is wrong; run: kubectl label ns «namespace» a-; or leave it",
            True,
        ),
        ("src/a.py:1", "the label is wrong: kubectl label ns «namespace» a-", False),
        ("src/a.py:1", "run what helps, or juju trust «application»", False),
        ("src/istio_integrator/diagnosis/a.py:1", "kubectl get pods", True),
        ("workload/a.py:1", "kubectl get pods", True),
    ],
)
def test_command_of_a_status_that_nothing_could_move_is_found(check, where, text, right):
    assert (list(check["misplaced"]([(where, "status", text)])) == []) is right


SOURCE = '''
"""A module that says this."""

class Told:
    """A docstring that says that."""

    kept: "list[str] of things"

def told(name):
    logger.warning("The %s is away: %s", name, "with more words")
    yield ops.BlockedStatus(f"{name.first} does not answer")
    yield findings.broken("it is not there", f"kubectl get {name}")
    re.compile("one of those patterns")
    raise ValueError(f"no such thing as {_known(name)}")
    return "said by somebody else" if name else "short"
'''


def test_messages_are_what_is_said_and_nothing_else(messages):
    found = {(each.kind, each.text) for each in messages["read"](SOURCE, "room", "file")}
    assert found == {
        ("log", "The «…» is away: «…»"),
        ("status", "«first» does not answer"),
        ("finding", "it is not there"),
        ("refusal", "no such thing as «name»"),
        ("part", "said by somebody else"),
    }


@pytest.mark.parametrize(
    ("page", "wrong"),
    [
        ("# Page\n\n## `403`\n\n<!-- produced by: test_a -->\n\nWords.", 0),
        ("## `403`\n\n<!-- produced by: test_a,\ntest_b -->\n\nWords.", 0),
        ("## `403`\n\nWords.\n\n## `404`\n\n<!-- produced by: test_a -->", 1),
        ("## `403`\n\n<!-- produced by: test_gone, test_a -->", 1),
        ("Words.", 0),
    ],
)
def test_heading_of_the_page_of_symptoms_that_nothing_produces_is_found(check, page, wrong):
    assert len(list(check["unproduced"]("page.md", page, {"test_a", "test_b"}))) == wrong

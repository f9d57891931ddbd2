"""The contract itself: what it rests on, its names, its reasons and its answers."""

import ast
import json
import pathlib
import re
import sys

import msgspec
import pydantic
import pytest

import integrator_contract
from integrator_contract import answers, names, reasons

ROOT = pathlib.Path(__file__).parents[3]
MODULES = sorted(pathlib.Path(integrator_contract.__file__).parent.glob("*.py"))


def imported(module):
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module)


@pytest.mark.parametrize("module", [pytest.param(each, id=each.name) for each in MODULES])
def test_contract_imports_the_standard_library_and_pyyaml_alone(module):
    roots = {name.partition(".")[0] for name in imported(module)}

    assert roots <= {*sys.stdlib_module_names, "yaml"}


@pytest.mark.parametrize(
    ("model", "application", "want"),
    [
        ("kubeflow", "istio-integrator", "kubeflow.istio-integrator"),
        ("m" * 40, "a" * 22, f"{'m' * 40}.{'a' * 22}"),
        ("m" * 40, "a" * 23, f"{'m' * 40}.{'a' * 11}-"),
        ("m" * 51, "a" * 23, f"{'m' * 51}-"),
    ],
)
def test_owner_fits_a_label_and_differs_by_application(model, application, want):
    owner = names.owner(model, application)

    assert owner.startswith(want)
    assert len(owner) <= 63
    assert names.owner(model, f"{application}x") != owner


def rows(page: str) -> dict[str, str]:
    """Return the meanings of words that a page of the reference has."""
    text = (ROOT / "docs/reference" / page).read_text()
    return dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE))


def test_pages_explain_each_reason_and_no_other_word():
    explained = rows("reasons.md") | rows("events.md")

    assert set(explained) == set(reasons.Reason)
    assert all(explained[reason] == text for reason, text in reasons.ADMISSION.items())
    assert all(re.fullmatch(r"([A-Z][a-z]+)+", reason) for reason in reasons.Reason)


PROXY = answers.ProxyAnswer(
    namespace="m",
    name="p",
    decision=answers.Action.STOP,
    reason=reasons.Reason.PAYLOAD_FINISHED,
    message="main ended with 0",
    containers=("main",),
)
POD = answers.PodAnswer(
    namespace="m",
    name="p",
    workload="",
    fixable=False,
    reason=reasons.Reason.BARE_POD,
    message="none",
)
SUMMARY = answers.Summary(
    eligible=3,
    in_mesh=1,
    converging=1,
    proposed=0,
    troubles=(answers.Trouble("StatefulSet/a", "StillNoSidecar", "so", "a-0"),),
    reported=1,
)


def by_pydantic(text, kind):
    return pydantic.TypeAdapter(kind).validate_python(json.loads(text))


def by_msgspec(text, kind):
    return msgspec.json.decode(text, type=kind)


@pytest.mark.parametrize("read", [by_pydantic, by_msgspec])
@pytest.mark.parametrize("answer", [PROXY, POD, SUMMARY])
def test_answer_is_read_as_it_was_written(read, answer):
    text = msgspec.json.encode(answer)

    assert read(text, type(answer)) == answer


@pytest.mark.parametrize("read", [by_pydantic, by_msgspec])
def test_answer_of_a_newer_workload_may_say_more_and_of_an_older_one_less(read):
    line = {**msgspec.to_builtins(PROXY), "since": 1}
    del line["result"]
    assert read(json.dumps(line), answers.ProxyAnswer) == PROXY

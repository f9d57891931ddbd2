"""Functional tests are asked about what no unit test noticed."""

import json
import pathlib
import types

import pytest

from tests.mutants import __main__ as program
from tests.mutants import changes, chosen, results, running, seen

FILE = "templates/a/b.yaml.j2"
CHANGE = changes.Change(
    room="templates",
    file=FILE,
    line="a: 1",
    rank="r",
    operator="ForgetField",
    occurrence=0,
    start=(1, 0),
    end=(1, 0),
)
ROOM = results.ROOMS["templates"]


def test_time_of_a_test_is_without_that_of_its_fixtures(tmp_path):
    noted = seen.Seen(tmp_path / "seen.json", is_worker=False)
    for when, seconds in (("setup", 30.0), ("call", 2.0), ("teardown", 0.5)):
        noted.pytest_runtest_logreport(
            types.SimpleNamespace(
                nodeid="a.py::one", when=when, duration=seconds, failed=False, rendered=[]
            )
        )
    noted.pytest_unconfigure()
    (one,) = json.loads((tmp_path / "seen.json").read_text()).values()
    assert (one["seconds"], one["around"]) == (2.0, 30.5)


def test_functional_tests_of_the_workload_are_in_the_modules_that_name_it():
    named = chosen.FUNCTIONAL[chosen.WORKLOAD].modules(changes.ROOT)
    every = chosen.FUNCTIONAL[chosen.CHARM].modules(changes.ROOT)
    assert "tests/functional/test_convergence.py" in named
    assert "tests/functional/test_tenants.py" in {*every} - {*named}
    assert {*named} < {*every}


@pytest.fixture
def world(tmp_path, monkeypatch) -> tuple[program.Trial, list[str]]:
    """A trial that knows a template and a test in each suite that renders it; what happens in it.

    That is `u` or `f` for a run of tests of a tier, `+` and `-` for a control plane.
    """
    told: list[str] = []
    one = {
        "seconds": 1.0,
        "around": 20.0,
        "failed": False,
        "set_up": [],
        "templates": ["a/b.yaml.j2"],
    }

    def collect(suite: chosen.Suite, copy: pathlib.Path, folder: pathlib.Path) -> object:
        name = f"{suite.tests[0]}/test_a.py::test_one"
        (tmp_path / f"{suite.name}.json").write_text(json.dumps({name: one}))
        return chosen.Collected(suite, copy, tmp_path)

    class Plane:
        def __init__(self, name: str) -> None:
            pass

        def up(self, _: object) -> None:
            told.append("+")

        def down(self) -> None:
            told.append("-")

        name = "shared"

    (tmp_path / FILE).parent.mkdir(parents=True)
    (tmp_path / FILE).write_text("a: 1\n")
    monkeypatch.setattr(chosen, "collect", collect)
    monkeypatch.setattr(program, "ROOT", tmp_path)
    monkeypatch.setattr(program, "COPY", tmp_path)
    monkeypatch.setattr(program, "FOLDER", tmp_path)
    monkeypatch.setattr(running.cluster, "Testbed", Plane)
    return program.Trial(results.Results(tmp_path / "results.jsonl"), tmp_path), told


@pytest.mark.parametrize(
    ("ends", "verdict", "happened"),
    [
        pytest.param(["failed"] * 2, "unit", "uu", id="unit-tests"),
        pytest.param(["passed"] * 4, "survived", "u+fuf-", id="nobody"),
        pytest.param(["passed", "failed"] * 2, "functional", "u+f-u+f-", id="functional-tests"),
    ],
)
def test_changes_share_a_control_plane_until_one_is_noticed_in_it(
    world, monkeypatch, ends, verdict, happened
):
    trial, told = world
    left = [*ends]

    def run(copy: pathlib.Path, tests: list[str], **_: object) -> running.Ended:
        told.append(tests[0].removeprefix("tests/")[0])
        return running.Ended(left.pop(0), "", 1.0)

    monkeypatch.setattr(running, "run", run)
    with trial:
        records = [trial.try_change(CHANGE, "a: 2\n", ROOM, functional=True) for _ in range(2)]
    assert [record.verdict for record in records] == [verdict] * 2
    assert "".join(told) == happened


@pytest.mark.parametrize(
    ("ends", "void"),
    [
        pytest.param([("passed", "")], [], id="none"),
        pytest.param([("failed", "b"), ("passed", "")], ["b"], id="one"),
        pytest.param([("failed", "b"), ("failed", "a")], ["b", "a"], id="both"),
        pytest.param([("broken", "")], ["a", "b"], id="not-known"),
    ],
)
def test_who_fails_without_any_change_has_noticed_nothing(world, monkeypatch, ends, void):
    trial, _ = world
    left = [running.Ended(how, by, 1.0) for how, by in ends]
    monkeypatch.setattr(running, "run", lambda *_, **__: left.pop(0))
    about = {"room": "templates", "rank": "", "file": FILE, "line": 1, "text": ""}
    about |= {"difference": "", "source": "", "tests": "", "verdict": "unit"}
    records = [results.Record(**about, by=name) for name in ("a", "b", "")]
    assert trial.verify(records) == void


def test_functional_tests_are_left_out_when_they_are_not_wanted(world, monkeypatch):
    trial, told = world
    monkeypatch.setattr(running, "run", lambda *_, **__: running.Ended("passed", "", 1.0))
    with trial:
        record = trial.try_change(CHANGE, "a: 2\n", ROOM, functional=False)
    assert (record.verdict, record.functional, told) == ("survived", False, [])

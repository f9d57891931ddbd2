"""Small faults are found and drawn, meet the tests that run them, and are told."""

import dataclasses
import pathlib
import textwrap

import pytest
import yaml

from tests.mutants import changes, chosen, results, running

pytest_plugins = ["pytester"]

SOURCE = """\
import logging

logger = logging.getLogger(__name__)
LIMIT = 3
LARGEST = 4096; PAUSE = 0.5

@functools.lru_cache(maxsize=5)
def allowed(pods: list[int] | None = None) -> bool | None:
    logger.info("%d pods", 1)
    count = len(pods or ()) + 2
    return count < LIMIT
"""
TEMPLATE = """\
spec:
  ports:
  - {name: a, port: 1}
{% for port in more %}
  - {name: b, port: {{ port }}}
{% endfor %}
  selector: {{ labels | tojson }}
  minimum:
    version: {% if strict %}"1.3"{% else %}"1.2"{% endif %}

    ciphers: [x]
"""


def place(line: int, column: int, operator: str, occurrence: int = 0) -> dict[str, object]:
    return {
        "file": "room/a.py",
        "operator": operator,
        "occurrence": occurrence,
        "start": [line, column],
        "end": [line, column + 1],
        "line": SOURCE.splitlines()[line - 1].strip(),
    }


def test_what_means_nothing_is_left_as_it_is():
    told = {
        "cache": place(7, 29, "NumberReplacer"),
        "parameter": place(8, 28, "ReplaceBinaryOperator_BitOr_BitAnd"),
        "result": place(8, 50, "ReplaceBinaryOperator_BitOr_BitAnd"),
        "log": place(9, 27, "NumberReplacer"),
        "bound": {**place(5, 10, "NumberReplacer"), "end": [5, 14]},
        "time": {**place(5, 24, "NumberReplacer"), "end": [5, 27]},
        "sum": place(10, 28, "ReplaceBinaryOperator_Add_Sub"),
        "limit": place(4, 8, "NumberReplacer"),
        "no sum": place(11, 17, "ReplaceBinaryOperator_Mul_Div"),
    }
    left = [*changes.meaningful(SOURCE, told.values())]
    assert [name for name, each in told.items() if each in left] == ["sum", "limit"]


def test_sample_is_the_same_for_a_seed_and_of_another_one_for_another():
    places = [place(10, column, "NumberReplacer") for column in range(40)]
    first = [each.start for each in changes.ranked("room", places, 1)]
    assert first == [each.start for each in changes.ranked("room", places, 1)]
    assert sorted(first) == sorted(tuple(each["start"]) for each in places)
    assert first != [each.start for each in changes.ranked("room", places, 2)]


def test_sample_stays_when_lines_above_it_move():
    places = [place(line, 4, "AddNot") for line in (9, 10, 11)]
    moved = [{**each, "start": [each["start"][0] + 7, 4]} for each in places]
    ranks = [each.rank for each in changes.ranked("room", places, 1)]
    assert ranks == [each.rank for each in changes.ranked("room", moved, 1)]


def test_each_place_has_one_change():
    places = [place(11, 17, name) for name in ("Lt_LtE", "Lt_GtE")]
    (one,) = changes.ranked("room", places, 1)
    assert one.operator in ("Lt_LtE", "Lt_GtE")


def test_field_of_a_template_goes_with_what_is_below_it_unless_a_block_would_be_torn():
    taken = {
        changes.difference(TEMPLATE, text).partition(" ->")[0]: span
        for span, text in changes.removals(TEMPLATE)
    }
    assert taken == {
        "selector: {{ labels | tojson }}": ((7, 0), (7, 0)),
        'version: {% if strict %}"1.3"{% else %}"1.2"{% endif %}': ((9, 0), (9, 0)),
        "ciphers: [x]": ((11, 0), (11, 0)),
    }


def test_every_room_has_its_files_and_none_twice():
    files = [file for room in results.ROOMS.values() for file in changes.sources(room.files)]
    assert len(files) == len({*files})
    assert all(changes.sources(room.files) for room in results.ROOMS.values())
    assert "src/istio_integrator/ingress/guards.py" in changes.sources(
        results.ROOMS["authentication"].files
    )


def test_room_whose_files_have_moved_is_an_error():
    with pytest.raises(FileNotFoundError, match="no file is called src/gone"):
        changes.sources(["src/gone/*.py"])


@pytest.mark.parametrize(
    ("line", "lines", "names"),
    [
        pytest.param(4, [4], {"LIMIT"}, id="what-import-runs"),
        pytest.param(8, range(8, 12), set(), id="head-of-a-function"),
        pytest.param(10, [10], set(), id="inside-of-it"),
    ],
)
def test_change_is_of_the_lines_of_its_statement_or_of_who_uses_the_name(line, lines, names):
    found, used = chosen.affected(SOURCE, line)
    assert used == names
    assert {*found} >= {*lines}


def test_names_may_get_their_values_together():
    assert chosen.affected("a, b = 1, 2\n", 1)[1] == {"a", "b"}


def test_statement_over_several_lines_is_one():
    source = (
        "def f(a, b):\n    if (\n        a\n        and b\n    ):\n        a = 1\n    return a\n"
    )
    assert [*chosen.affected(source, 4)[0]] == [2, 3, 4, 5]
    assert [*chosen.affected(source, 7)[0]] == [7]


def test_quickest_tests_are_chosen_and_then_one_of_each_module_in_turn():
    seconds = {
        "a.py::one": 1.0,
        "a.py::two": 2.0,
        "a.py::three": 3.0,
        "a.py::four": 3.5,
        "b.py::slow": 5.0,
        "b.py::fuzz": 99.0,
        "c.py::too-much": 9.0,
    }
    assert chosen.choose(seconds, 9.0) == ["a.py::one", "a.py::two", "b.py::slow"]
    assert chosen.choose({}, 9.0) == []


def test_tests_of_the_module_that_bears_the_name_of_the_file_come_before_others():
    seconds = {
        "a.py::one": 1.0,
        "b/test_x.py::one": 1.5,
        "b/test_x.py::two": 1.5,
        "c.py::one": 3.0,
    }
    assert chosen.choose(seconds, 6.0) == ["a.py::one", "b/test_x.py::one", "c.py::one"]
    assert chosen.choose(seconds, 6.0, "test_x.py") == [
        "a.py::one",
        "b/test_x.py::one",
        "b/test_x.py::two",
    ]


@pytest.fixture
def copy(tmp_path: pathlib.Path) -> pathlib.Path:
    """A small project, beside a folder for what its tests leave."""
    folder = tmp_path / "copy"
    (folder / "tests").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(
        "[tool.pytest.ini_options]\naddopts = '--import-mode=importlib'\npythonpath = ['.']\n"
    )
    (folder / "thing.py").write_text("def double(x):\n    return x * 2\n")
    (folder / "tests/test_thing.py").write_text(
        textwrap.dedent("""
            import thing

            def test_zero():
                assert thing.double(0) == 0

            def test_three():
                assert thing.double(3) == 6

            def test_loop():
                while thing.double(1) != 2:
                    pass
        """)
    )
    (tmp_path / "work").mkdir()
    return folder


@pytest.mark.parametrize(
    ("text", "tests", "how", "by"),
    [
        pytest.param("return x * 2", ["zero", "three"], "passed", "", id="none"),
        pytest.param("return x + 2", ["three", "zero"], "failed", "three", id="noticed"),
        pytest.param("return x ** 2", ["zero"], "passed", "", id="unnoticed"),
        pytest.param("return x ** 2", ["loop"], "too long", "", id="endless"),
        pytest.param("return x *", ["zero"], "broken", "", id="no-python"),
    ],
)
def test_change_is_tried_in_a_copy_that_is_as_before_afterwards(copy, text, tests, how, by):
    path = copy / "thing.py"
    before = path.read_bytes(), path.stat().st_mtime
    names = [f"tests/test_thing.py::test_{name}" for name in tests]
    with running.changed(path, f"def double(x):\n    {text}\n"):
        ended = running.run(
            copy, names, seconds=1 if how == "too long" else 60, work=copy.parent / "work"
        )
    assert ended.how == how
    assert ended.by == (f"tests/test_thing.py::test_{by}" if by else ended.by)
    assert (path.read_bytes(), path.stat().st_mtime) == before


def record(**said: object) -> results.Record:
    known = {
        "room": "rules",
        "rank": "r",
        "file": "src/a.py",
        "line": 3,
        "text": "if a < b:",
        "difference": "if a < b: -> if a <= b:",
        "source": "s",
        "tests": "t",
    }
    return results.Record(**{**known, **said})


def test_table_counts_who_noticed_and_what_is_explained():
    records = [
        *(record(verdict="unit"), record(verdict="unit"), record(verdict="functional")),
        record(verdict="survived"),
        record(room="kube", verdict="not run"),
    ]
    explained = {"src/a.py": [{"line": "if a < b:", "becomes": "<=", "why": "never equal"}]}
    assert [line.split() for line in results.table(records, explained)[1:]] == [
        ["rules", "4", "2", "1", "1", "1", "75", "%", "95", "%"],
        ["kube", "1", "0", "0", "1", "1", "0", "%", "85", "%"],
    ]
    told = results.survivors(records, explained)
    assert told[:2] == ["src/a.py:3: if a < b: -> if a <= b:", "    never equal"]


def test_explanation_of_another_change_of_a_line_explains_nothing():
    explained = {"src/a.py": [{"line": "if a < b:", "becomes": ">=", "why": "never"}]}
    assert results.explanation(record(), explained) == ""


def test_explanations_are_of_lines_that_are_there():
    explained = yaml.safe_load(results.EXPLAINED.read_text())
    assert results.without_line(explained) == []
    assert results.without_line({"src/gone.py": [{"line": "x", "why": "y"}]}) == ["src/gone.py: x"]


def test_run_goes_on_where_the_last_ended_except_for_what_changed(tmp_path):
    file = "src/istio_integrator/texts.py"
    kept = results.Results(tmp_path / "kept.jsonl")
    now = {"file": file, "source": kept.source(file), "tests": kept.tests}
    kept.add(record(**now, rank="noticed", verdict="unit"))
    kept.add(record(**now, rank="survived", verdict="survived"))
    kept.add(record(**{**now, "tests": "others"}, rank="noticed-then", verdict="unit"))
    kept.add(record(**{**now, "tests": "others"}, rank="survived-then", verdict="survived"))
    kept.add(record(**{**now, "source": "other"}, rank="of-another-text", verdict="unit"))
    again = results.Results(tmp_path / "kept.jsonl")
    ranks = ("noticed", "survived", "noticed-then", "survived-then", "of-another-text")
    (change,) = changes.ranked("rules", [{**place(4, 8, "AddNot"), "file": file}], 1)
    known = [rank for rank in ranks if again.known(dataclasses.replace(change, rank=rank))]
    assert known == ["noticed", "survived", "noticed-then"]
    survived = dataclasses.replace(change, rank="survived")
    assert again.known(survived, functional=True) is None
    kept.add(record(**now, rank="survived", verdict="survived", functional=True))
    assert kept.known(survived, functional=True)
    again.forget({"noticed"})
    assert {each.rank for each in results.Results(tmp_path / "kept.jsonl").records} == {
        "survived",
        "noticed-then",
        "survived-then",
    }


def test_changes_meet_the_tests_that_run_them(pytester, monkeypatch):
    pytester.makepyprojecttoml("[tool.coverage.run]\nsource = ['.']\n")
    pytester.makepyfile(
        thing="""
            LIMIT = 3

            def small(x):
                return x < LIMIT

            def other(x):
                return -x

            def shared(x):
                return x
        """,
        test_shared="""
            import jinja2, pytest, thing

            @pytest.fixture(scope="module")
            def seven():
                loader = jinja2.DictLoader({"a/c.yaml.j2": "a: 1"})
                jinja2.Environment(loader=loader).get_template("a/c.yaml.j2").render()
                return thing.shared(7)

            def test_first(seven):
                assert seven

            def test_second(seven):
                assert seven == 7
        """,
        test_thing="""
            import jinja2, thing

            def test_small():
                assert thing.small(1)

            def test_other():
                assert thing.other(1) == -1

            def test_rendered():
                loader = jinja2.DictLoader({"a/b.yaml.j2": "a: 1"})
                assert jinja2.Environment(loader=loader).get_template("a/b.yaml.j2").render()

            def test_that_fails():
                assert not thing.small(1)
        """,
    )
    monkeypatch.setenv("PYTHONPATH", f"{changes.ROOT}:.")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.runpytest_subprocess(
        *("--cov", "--cov-context=test", "--cov-report=", "--numprocesses=1"),
        *("-p", "pytest_cov", "-p", "xdist", "-p", "tests.mutants.seen", "--seen=unit.json"),
    )
    (pytester.path / ".coverage").rename(pytester.path / "unit.coverage")
    suite = chosen.Suite("unit", (".",), (), 1, 30)
    collected = chosen.Collected(suite, pytester.path, pytester.path)
    assert collected.failed == ["test_thing.py::test_that_fails"]

    def choice(file: str, line: int) -> list[str]:
        at = {**place(line, 0, "AddNot"), "file": file}
        (change,) = changes.ranked("room", [at], 1)
        return [name.partition("::")[2] for name in collected.choice(change)]

    assert choice("thing.py", 4) == ["test_small"]
    assert choice("thing.py", 7) == ["test_other"]
    assert choice("thing.py", 1) == ["test_small"]
    assert choice("templates/a/b.yaml.j2", 1) == ["test_rendered"]
    # What a module has once is all of its tests'.
    assert {*choice("thing.py", 10)} == {"test_first", "test_second"}
    assert {*choice("templates/a/c.yaml.j2", 1)} == {"test_first", "test_second"}


@pytest.mark.long
def test_changes_of_a_module_are_found_and_made(tmp_path):
    """By cosmic-ray, whose environment is made for it."""
    path = tmp_path / "thing.py"
    path.write_text(
        textwrap.dedent("""\
            def stop(self, pods, uid):
                for pod in pods:
                    self.evict(pod, uid=uid)
                try:
                    return uid in pods and not self.seen
                except (KeyError, self.Lost):
                    return len(pods) < 3
        """)
    )
    found = changes.all_of("room", [str(path)], 1)
    differences = {changes.difference(path.read_text(), text) for _, text in changes.made(found)}
    assert differences >= {
        "for pod in pods: -> for pod in []:",
        "self.evict(pod, uid=uid) -> pass",
        "self.evict(pod, uid=uid) -> self.evict(pod, uid=None)",
        "return uid in pods and not self.seen -> return uid not in pods and not self.seen",
        "return uid in pods and not self.seen -> return uid in pods or not self.seen",
        "except (KeyError, self.Lost): -> except ():",
    }
    assert len(found) == len({each.start for each in found}) == len(differences)

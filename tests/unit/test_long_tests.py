"""What became of the long tests is kept, told, and its parts have names."""

import pytest

from tests import long_tests

RACE, MATRIX = "tests/e2e/test_race.py::test_order", "tests/e2e/test_shutdown_matrix.py::test_kind"
TESTS = [RACE, f"{MATRIX}[Job]", f"{MATRIX}[Pod]"]
MODULE = """
import pytest

@pytest.fixture
def broken():
    yield
    assert False

@pytest.mark.long
@pytest.mark.parametrize("number", [1, 2])
def test_that_is_long(number):
    assert number == 1

@pytest.mark.long
def test_that_leaves_a_mess(broken): ...

def test_that_is_short(): ...
"""
pytest_plugins = ["pytester"]


def test_long_tests_alone_are_kept_with_how_they_ended(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(long_tests.ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    path = pytester.path / "build/ledger.json"
    pytester.makepyprojecttoml("[tool.pytest.ini_options]\nmarkers = ['long: x']")
    pytester.makeconftest(
        "import pathlib\nfrom tests import long_tests\n"
        "def pytest_configure(config):\n"
        f"    long_tests.keep(config, pathlib.Path({str(path)!r}))\n"
    )
    module = pytester.makepyfile(MODULE).name
    # Reports come from another process then, and may have lost what is not a part of them.
    pytester.runpytest_subprocess("-p", "xdist", "--numprocesses=1")
    records = long_tests.read(path)
    assert {name: record["result"] for name, record in records.items()} == {
        f"{module}::test_that_is_long[1]": "passed",
        f"{module}::test_that_is_long[2]": "failed",
        f"{module}::test_that_leaves_a_mess": "failed",
    }
    assert all(record["seconds"] < 30 for record in records.values())


def test_nothing_is_kept_on_a_fresh_clone(tmp_path):
    assert long_tests.read(tmp_path / "none") == {}


def test_part_is_a_word_of_the_name_of_a_module():
    assert long_tests.of_part(TESTS, "race") == [RACE]
    assert (
        long_tests.of_part(TESTS, "matrix") == long_tests.of_part(TESTS, "shutdown") == TESTS[1:]
    )


def test_unknown_part_is_refused_with_those_that_there_are():
    with pytest.raises(KeyError, match=r"no part 'test' .* there are matrix, race, shutdown"):
        long_tests.of_part(TESTS, "test")


def test_table_has_each_family_once_with_its_last_time_and_results():
    records = {
        RACE: {"on": "2026-11-01", "seconds": 60.0, "result": "passed"},
        f"{MATRIX}[Job]": {"on": "2026-11-02", "seconds": 2.5, "result": "failed"},
        "tests/e2e/test_gone.py::test_x": {"on": "2026-11-02", "seconds": 9.0, "result": "passed"},
    }
    assert [line.split() for line in long_tests.table(TESTS, records)[1:]] == [
        ["2026-11-01", "60.0", "1", "passed", RACE],
        ["2026-11-02", "2.5", "1", "failed,", "1", "never", "run", MATRIX],
    ]


def test_test_that_never_ran_has_no_time():
    assert long_tests.table([RACE], {})[1].split() == ["-", "0.0", "1", "never", "run", RACE]

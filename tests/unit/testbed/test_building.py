import json
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import building, errors, node, paths, programs
from testbed.images import recipes
from testbed.kit import clusters

PARTS = st.lists(st.sampled_from(sorted(building.SECONDS)), min_size=1, unique=True)
SOME = st.floats(min_value=0, max_value=5000)
PACES = st.builds(building.Pace, SOME, SOME)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return paths.cache()


@pytest.fixture
def clock(monkeypatch):
    """A clock that building turns on, by the part's cost times the machine's slowness."""
    now = {"time": 100.0, "slowness": 1.0}
    monkeypatch.setattr(building.time, "monotonic", lambda: now["time"])

    def build(part, progress):
        now["time"] += building.SECONDS[part] * now["slowness"] / 2
        progress(f"{part}: half")
        now["time"] += building.SECONDS[part] * now["slowness"] / 2
        programs.directory(part).mkdir(parents=True)

    monkeypatch.setattr(building, "_build", build)
    monkeypatch.setattr(building.os, "cpu_count", lambda: 2)
    return now


def asked_for(monkeypatch, names):
    """The products of which images are made, as their recipes ask for them."""
    asked = set()
    where = programs.directory

    def directory(product):
        asked.add(product)
        return where(product)

    monkeypatch.setattr(programs, "directory", directory)
    for name in names:
        recipes.recipe(name)
    return asked


def test_every_part_of_a_setup_has_a_cost():
    parts = building.everything()
    assert set(building.SECONDS) == {*parts.products, *(f"image {name}" for name in parts.images)}


def test_demo_builds_what_its_clusters_run_and_nothing_else(monkeypatch):
    parts = building.demo()
    wanted = {"app", "workload", "charm"}
    products = set()
    for kind in clusters.KINDS.values():
        wanted.update(node.wanted_images(kind.options))
        products.update(node.products(kind.options))
    assert set(parts.images) == wanted
    assert set(parts.products) == products | asked_for(monkeypatch, parts.images)
    assert "cni" not in parts.images


def test_demo_is_set_up_for_itself_alone():
    command = ["make", "--dry-run", "--directory", paths.SOURCE, "demo"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "testbed/setup.sh demo\n" in said
    assert "setup.sh all" not in said


def test_what_is_built_is_not_built_again(clock):
    said = []
    parts = building.Parts(("etcd", "pause"), ())
    programs.directory("etcd").mkdir(parents=True)
    building.ensure(parts, said.append)
    assert said[0].startswith("building pause: ")
    said.clear()
    building.ensure(parts, said.append)
    assert said == []


def test_lines_say_what_is_left_at_the_pace_that_the_machine_shows(clock, cache, monkeypatch):
    costs = {"kubernetes": 300, "coredns": 120, "istio": 240, "training-operator": 60}
    monkeypatch.setattr(building, "SECONDS", costs)
    clock["slowness"] = 3.0
    said = []
    building.ensure(building.Parts(("kubernetes", "coredns", "istio"), ()), said.append)
    assert said == [
        "building kubernetes, coredns, istio: about 11 min",
        # It is late already, and nobody knows yet how much.
        "kubernetes: half; about 8 min left in all",
        "coredns: half; about 13 min left in all",
        "istio: half; about 5 min left in all",
    ]
    assert json.loads((cache / "pace.json").read_text()) == {"expected": 660, "took": 3 * 660}
    building.ensure(building.Parts(("training-operator",), ()), said.append)
    assert said[-2:] == [
        "building training-operator: about 3 min",
        "training-operator: half; about a minute left in all",
    ]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"expected": "a", "took": 1}', '{"expected": -1, "took": 1}', "{"]
)
def test_pace_that_can_not_be_read_is_none(cache, text):
    cache.mkdir()
    (cache / "pace.json").write_text(text)
    assert building._remembered() == building.Pace()


def test_part_that_fails_ends_the_building_and_says_nothing_of_its_pace(clock, monkeypatch, cache):
    def fail(part, progress):
        raise programs.ProgramError(f"{part}: go build failed")

    monkeypatch.setattr(building, "_build", fail)
    with pytest.raises(errors.TestbedError, match="etcd"):
        building.ensure(building.Parts(("etcd", "pause"), ()), print)
    assert not (cache / "pace.json").exists()


@given(pace=PACES, parts=PARTS, elapsed=SOME)
def test_time_left_shrinks_while_a_part_is_in_time_and_not_when_it_is_late(pace, parts, elapsed):
    first = building.SECONDS[parts[0]] * pace.factor
    left = pace.left(parts, min(elapsed, first))
    assert 0 <= left <= pace.left(parts, 0) + 1e-6
    # A little, where what was seen long ago begins to count less.
    assert pace.left(parts, first + elapsed) >= 0.95 * pace.left(parts, first)


@given(pace=PACES, parts=st.lists(st.sampled_from(sorted(building.SECONDS)), max_size=200))
def test_pace_comes_to_what_is_seen(pace, parts):
    for part in [*parts, *["kubernetes"] * 20]:
        pace = pace.after(building.SECONDS[part], 2.5 * building.SECONDS[part])
    assert pace.factor == pytest.approx(2.5, rel=0.1)


@pytest.mark.parametrize(
    ("seconds", "want"),
    [(0, "about a minute"), (89, "about a minute"), (90, "about 2 min"), (1234, "about 21 min")],
)
def test_words(seconds, want):
    assert building.words(seconds) == want

"""The pictures name each panel of the dashboard and its last values, and what a program did."""

import json
import math
import re
import runpy
import xml.etree.ElementTree as ET

import pytest

from tests import prometheus

DRAWING = prometheus.paths.SOURCE / "docs" / "dashboard_picture.py"
NS = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def traced(monkeypatch):
    monkeypatch.syspath_prepend(DRAWING.parent)
    return runpy.run_path(str(DRAWING.with_name("trace_picture.py")))


@pytest.fixture
def profiled(monkeypatch):
    monkeypatch.syspath_prepend(DRAWING.parent)
    return runpy.run_path(str(DRAWING.with_name("profile_spans.py")))


def test_profile_is_a_span_for_each_function_the_longest_first_and_none_for_what_imports(profiled):
    stacks = """\
<module> (src/charm.py:3);_find_and_load (<frozen importlib._bootstrap>:1);<module> (ops/__init__.py:2) 30
<module> (src/charm.py:9);main (ops/_main.py:5) 50
<module> (src/charm.py:9);merely (ops/_main.py:7);Kilo: a b (src/parts.py) 5
<module> (src/charm.py:3) 2
"""  # noqa: E501 - a stack is a line
    told = [
        (one["name"], one["parent"], one["begin"] // 10**6, one["end"] // 10**6)
        for one in profiled["spans"](stacks)
    ]
    assert told == [
        ("all of it", None, 0, 174),
        ("import src.charm", 0, 0, 174),
        ("_main.main", 1, 0, 100),
        ("import ops", 1, 100, 160),
        ("parts.Kilo: a b", 1, 160, 170),
    ]


def span(name, parent, begin, end):
    return {"name": name, "parent": parent, "begin": begin * 10**6, "end": end * 10**6}


def test_trace_is_drawn_in_the_order_of_time_each_span_below_that_which_it_is_of(traced):
    spans = [span("b", 2, 5, 6), span("a", 2, 0, 4), span("whole", None, 0, 1500)]
    spans.append(span("within a", 1, 1, 2))
    told = words(traced["draw"](spans, "a trace"))
    assert told == ["whole", "1.50 s", "a", "4 ms", "within a", "1 ms", "b", "1 ms"]


def test_of_very_many_spans_the_longest_are_drawn_and_the_others_counted(traced):
    spans = [span("whole", None, 0, 9000)]
    spans += [span(f"of {number}", 0, number, 2 * number + 1) for number in range(100)]
    told = words(traced["draw"](spans, "a trace"))
    assert "of 99" in told
    assert "of 0" not in told
    assert told[-1] == f"and {101 - traced['MOST']} shorter ones"


@pytest.fixture(scope="module")
def drawing():
    return runpy.run_path(str(DRAWING))


def panel(**fields):
    place = {"x": 0, "y": 0, "w": 8, "h": 8}
    return {
        "title": "A",
        "type": "timeseries",
        "place": place,
        "unit": "s",
        "series": [],
        **fields,
    }


def words(svg):
    return [each.text for each in ET.fromstring(svg).iter(f"{NS}text")]


def test_picture_has_each_panel_of_the_dashboard(drawing):
    panels = [
        panel(title=each["title"], type=each["type"], place=each["gridPos"])
        for each in prometheus.dashboard_panels()
    ]
    told = words(drawing["draw"](panels, "dashboard"))
    assert [each["title"] for each in panels] == [word for word in told if word != "no data"]
    assert told.count("no data") == sum(each["type"] != "row" for each in panels)


@pytest.mark.parametrize(
    ("number", "unit", "want"),
    [
        (3.0, "short", "3"),
        (0.25, "short", "0.25"),
        (0.0123, "s", "12 ms"),
        (0.00025, "s", "0.25 ms"),
        (61.5, "s", "61.50 s"),
        (90 * 86400, "s", "90 days"),
        (150 * 2**20, "bytes", "150 MiB"),
        (2.0, "reqps", "2 /s"),
        (math.nan, "s", "no value"),
    ],
)
def test_number_has_its_unit(drawing, number, unit, want):
    assert drawing["value"](number, unit) == want


def test_line_has_a_gap_where_there_is_no_number(drawing):
    values = [(0.0, 1.0), (1.0, 2.0), (2.0, math.nan), (3.0, 0.0)]
    svg = drawing["draw"]([panel(series=[{"name": "median", "values": values}])], "dashboard")
    (path,) = [
        each.get("d") for each in ET.fromstring(svg).iter(f"{NS}path") if each.get("stroke")
    ]
    assert len(re.findall("M", path)) == 2
    assert "median: 0 ms" in words(svg)


def test_panel_shows_first_what_was_not_always_0(drawing):
    series = [
        {"name": f"{number}", "values": [(0.0, 0.0), (1.0, float(number == 6))]}
        for number in range(7)
    ]
    told = words(drawing["draw"]([panel(unit="short", series=series)], "dashboard"))
    assert told[2:] == ["6: 1", "0: 0", "1: 0", "2: 0"]


def test_figure_shows_the_last_value_and_its_name(drawing):
    series = [{"name": "webhook <1>", "values": [(0.0, 0.0), (1.0, 1.0)]}]
    told = words(drawing["draw"]([panel(type="stat", unit="short", series=series)], "dashboard"))
    assert told == ["A", "1", "webhook <1>"]


@pytest.mark.parametrize(
    ("text", "want"), [("{{juju_unit}}{{pod}}", "app/0"), ("median", "median"), ("", "")]
)
def test_legend_is_filled_in_as_grafana_does(text, want):
    assert prometheus.legend(text, {"juju_unit": "app/0"}) == want


def test_figures_are_kept_as_json(tmp_path):
    class Server(prometheus.Prometheus):
        def get(self, path, **query):
            return {"result": [{"metric": {"reason": "r"}, "values": [[1.0, "NaN"]]}]}

    shown = prometheus.shown(Server("nowhere"), "30s", 60)
    assert json.loads(json.dumps(shown))[1]["type"] == "stat"

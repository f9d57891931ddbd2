from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo import chart, report
from testbed.kit import timeline


def line(*containers):
    pod = timeline.PodLine("ns", "pod <1>", "1", 0.0)
    for name, role, states in containers:
        container = timeline.ContainerLine(name, role)
        for at, state in enumerate(states):
            container.add(at, timeline.Seen(state))
        pod.containers[name] = container
    return pod


STORY = line(
    ("main", timeline.Role.PAYLOAD, [timeline.State.WAITING, timeline.State.RUNNING]),
    ("istio-proxy", timeline.Role.PROXY, [timeline.State.RUNNING, timeline.State.FAILED]),
)


def test_a_chart_has_a_row_for_each_container_and_a_bar_for_each_state():
    drawing = chart.draw("it", [STORY], 0.0, 4.0, [(2.0, "now"), (9.0, "later")])
    assert [(row.pod, row.container) for row in drawing.rows] == [
        ("pod <1>", "main"),
        ("", "istio-proxy"),
    ]
    assert [bar.style for row in drawing.rows for bar in row.bars] == [
        "waiting",
        "running-payload",
        "running-proxy",
        "failed",
    ]
    assert [mark.text for mark in drawing.marks] == ["now"]


def test_the_drawn_chart_is_well_formed():
    root = ElementTree.fromstring(report.svg(chart.draw("it", [STORY], 0.0, 4.0)))
    assert root.tag.endswith("svg")


@given(st.floats(min_value=0.5, max_value=1e5))
def test_an_axis_has_few_ticks(span):
    assert 1 <= span / chart.step_for(span) + 1 <= 12 or span < 1


@pytest.mark.parametrize(
    ("steps", "observed"),
    [
        ([], False),
        ([["seen"]], False),
        ([["seen"], ["note", "seen"]], True),
        ([["seen"], ["note"]], False),
        ([["seen"], ["seen", "missed"]], False),
    ],
)
def test_a_demo_is_observed_only_when_each_step_was(steps, observed):
    record = report.Report("today", "", planned=2)
    for kinds in steps:
        step = report.Step("step", [report.Line(0.0, kind, "text") for kind in kinds])
        record.steps.append(step)
    assert record.is_observed is observed


def test_the_report_is_written_with_charts_and_escaped_text(tmp_path):
    record = report.Report("today", "", planned=1)
    step = report.Step("one & only", [report.Line(1.0, "seen", "<text>")])
    step.charts.append(report.svg(chart.draw("it", [STORY], 0.0, 4.0)))
    record.steps.append(step)
    record.figures.append(report.Figure("speed", "3 s"))
    text = record.write(tmp_path).read_text()
    assert "one &amp; only" in text
    assert "&lt;text&gt;" in text
    assert "<svg" in text
    assert '"speed": "3 s"' in (tmp_path / "figures.json").read_text()

"""The demo's report: its charts, and the picture of it that README.md shows."""

import ast
import html
import pathlib
import re

from demo import chart, report
from testbed.kit import timeline

ROOT = pathlib.Path(__file__).parents[3]
SOURCES = ("demo", "testbed/kit", "testbed/payload")


def pod(name: str, *containers: str, end: float = 30.0) -> timeline.PodLine:
    seen = timeline.Seen(timeline.State.RUNNING)
    lines = {
        each: timeline.ContainerLine(
            each, timeline.Role.PAYLOAD, [timeline.Interval(seen, 0.0, end)]
        )
        for each in containers
    }
    return timeline.PodLine("kf", name, name, 0.0, lines)


def test_names_of_a_pod_and_its_container_do_not_overlap():
    name, container = "istio-integrator-admission-6d4cf56db6-x7k2p", "metrics-logger-and-collector"
    drawn = chart.draw("", [pod("a", "b"), pod(name, container)], 0, 30)
    assert drawn.labels > chart.LETTER * len(container)
    assert drawn.width > chart.LETTER * len(name)
    assert [(row.name, row.is_pod) for row in drawn.rows[2:]] == [(name, True), (container, False)]
    assert drawn.rows[1].bars[0].x == drawn.labels
    assert len({row.y for row in drawn.rows}) == len(drawn.rows)


def test_texts_of_moments_do_not_overlap_and_are_inside():
    moments = [(1.0, "istiod serves"), (28.0, "training is over"), (29.5, "Succeeded")]
    drawn = chart.draw("", [pod("a", "b")], 0, 30, moments)
    halves = [len(mark.text) * chart.LETTER / 2 for mark in drawn.marks]
    for mark, half in zip(drawn.marks, halves, strict=True):
        assert half <= mark.middle <= drawn.width - half
    assert [mark.y < drawn.top for mark in drawn.marks] == [True] * 3
    (_, over, done) = drawn.marks
    assert over.y != done.y


def test_seconds_of_a_chart_are_those_of_the_report():
    drawn = chart.draw("", [pod("a", "b", end=130.0)], 95.0, 130.0)
    assert [tick.text for tick in drawn.ticks] == ["100 s", "110 s", "120 s", "130 s"]
    assert drawn.rows[1].bars[0].hint == "b: running, 0.0 to 130.0 s"


def test_second_has_one_width_in_charts_of_any_length():
    for end in (3.0, 30.0, 300.0):
        drawn = chart.draw("", [pod("a", "b", end=end)], 0, end)
        assert drawn.rows[1].bars[0].width == chart.SECOND * end
        assert drawn.width >= drawn.labels + chart.SECOND * end


def test_failure_of_a_job_has_no_tick_and_is_observed():
    step = report.Step("Without the charm: a training job in a profile")
    step.lines.append(report.Line(1.0, "failed", "the download failed"))
    drawn = report.Report("today", "", 1, [step]).picture("a training job")
    assert step.is_observed
    assert "✗&#160;the&#160;download&#160;failed" in drawn
    assert "✓" not in drawn


def said() -> list[re.Pattern[str]]:
    """What the demo's programs can say: each text of their code, with anything for its values."""
    found: list[re.Pattern[str]] = []
    for file in (path for folder in SOURCES for path in (ROOT / folder).glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [
                    re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".*"
                    for part in node.values
                ]
                found.append(re.compile("".join(parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(re.compile(re.escape(node.value)))
    return [each for each in found if len(re.sub(r"\W|\.\*", "", each.pattern)) > 10]


def test_picture_of_the_readme_has_what_the_demo_says():
    """`make demo` draws it: build/demo-today/demo.svg."""
    drawn = (ROOT / "docs/pictures/demo.svg").read_text()
    text = "".join(html.unescape(each) for each in re.findall(r"<text[^>]*>([^<]*)</text>", drawn))
    text = text.replace("\N{NO-BREAK SPACE}", " ")
    lines = re.findall(r"\d s  [·✓✗!] ([^\n]*)", text)
    known = said()
    assert len(lines) > 10
    assert [line for line in lines if not any(each.search(line) for each in known)] == []

import io

import rich.console

from demo import report, view
from testbed.kit import timeline


def pod(name, *states, proxy=None):
    line = timeline.PodLine("ns", name, name, 0.0)
    for index, seen in enumerate(states):
        container = timeline.ContainerLine(f"c{index}", timeline.Role.PAYLOAD)
        container.add(0.0, seen)
        line.containers[container.name] = container
    if proxy:
        container = timeline.ContainerLine(timeline.PROXY, timeline.Role.PROXY)
        container.add(0.0, timeline.Seen(proxy))
        line.containers[timeline.PROXY] = container
    return line


def drawn(renderable):
    output = io.StringIO()
    rich.console.Console(file=output, width=100).print(renderable)
    return output.getvalue()


def test_the_table_shows_what_each_container_does():
    text = drawn(
        view.pod_table(
            [
                pod("one", timeline.Seen(timeline.State.RUNNING, 2), proxy=timeline.State.WAITING),
                pod("two", timeline.Seen(timeline.State.FAILED)),
            ]
        )
    )
    assert "c0 (run 3) running" in text
    assert "waiting" in text
    assert "c0 failed" in text
    assert "none" in text


def test_the_table_keeps_to_the_newest_pods():
    pods = [pod(f"pod-{i:03}", timeline.Seen(timeline.State.RUNNING)) for i in range(30)]
    text = drawn(view.pod_table(pods))
    assert "pod-000" not in text
    assert "pod-029" in text
    assert "and 6 more" in text


def test_without_a_terminal_lines_are_printed(capsys):
    with view.showing(list, plain=False) as shown:
        step = report.Step("a step")
        shown.step(1, step)
        shown.line(report.Line(1.25, "seen", "[it] is so"))
    assert capsys.readouterr().out == "\n1. a step\n    1.2 s  ✓ [it] is so\n"


def test_the_live_view_prints_the_same_lines():
    output = io.StringIO()
    live = view.LiveView(rich.console.Console(file=output, width=100), list)
    live.step(1, report.Step("a step"))
    live.line(report.Line(1.25, "missed", "[it] is so"))
    assert "1. a step" in output.getvalue()
    assert "✗ [it] is so" in output.getvalue()

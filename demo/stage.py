"""A stage whose steps, lines, figures and charts go into a report and a view."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator

from demo import chart, report, view
from testbed import kubernetes
from testbed.kit import juju, observer, stage, timeline

ERRORS = (observer.NotObserved, juju.JujuError, kubernetes.ApiError)
"""What ends a demo as not observed."""


@dataclasses.dataclass(kw_only=True)
class Stage(stage.Stage):
    """A stage with an audience."""

    report: report.Report
    view: view.View

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Record what happens inside as one step; what was not observed ends the demo."""
        step = report.Step(title)
        self.report.steps.append(step)
        self.view.step(len(self.report.steps), step)
        try:
            yield
        except ERRORS as error:
            self.say("missed", str(error))
            raise

    def say(self, kind: str, text: str) -> None:
        """Record and show one line of the current step."""
        line = report.Line(self.observer.now, kind, text)
        self.report.steps[-1].lines.append(line)
        self.view.line(line)

    def figure(self, name: str, value: str) -> None:
        """Record a measured value, and say it."""
        self.report.figures.append(report.Figure(name, value))
        super().figure(name, value)

    def chart(
        self,
        title: str,
        pods: Iterable[timeline.PodLine],
        start: float,
        marks: Iterable[tuple[float, str]] = (),
    ) -> None:
        """Add a chart from the start until now to the current step."""
        drawing = chart.draw(title, list(pods), start, self.observer.now, marks)
        self.report.steps[-1].charts.append(report.svg(drawing))

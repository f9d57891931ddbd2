"""What a step of the demo works with, and how it says what it saw."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from typing import TypeVar

from demo import chart, istiod, juju, kubernetes, objects, observer, report, timeline, view

T = TypeVar("T")

ERRORS = (observer.NotObserved, juju.JujuError, kubernetes.ApiError)
"""What ends a demo as not observed."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """Which of the two clusters that matter."""

    name: str
    description: str
    # Whether istiod injects native sidecars unless a pod says otherwise.
    native: bool
    # What the charm is expected to choose for its admission.
    backend: str
    # Options that the charm is deployed with.
    config: Mapping[str, str]


KINDS = {
    "today": Kind(
        "today",
        "A cluster as most are today: classic sidecars, no MutatingAdmissionPolicy.",
        native=False,
        backend="webhook",
        # The testbed's kubelet could run native sidecars, as most clusters' kubelets can't yet.
        config={"sidecar-mode": "classic"},
    ),
    "tomorrow": Kind(
        "tomorrow",
        "A cluster of tomorrow: native sidecars, MutatingAdmissionPolicy served.",
        native=True,
        backend="policy",
        config={},
    ),
}


@dataclasses.dataclass
class Stage:
    """The cluster, the charm's Juju, and the record of what was observed."""

    kind: Kind
    api: kubernetes.Api
    juju: juju.Juju
    istiod: istiod.Istiod
    observer: observer.Observer
    report: report.Report
    view: view.View
    # Reference of the application image on the node.
    image: str
    # Objects of the cluster before the charm, for the comparison at the end.
    before: objects.Snapshot = dataclasses.field(default_factory=dict)

    @property
    def model(self) -> str:
        """The model's namespace."""
        return self.juju.model

    @contextlib.asynccontextmanager
    async def step(self, title: str) -> AsyncIterator[None]:
        """Record what happens inside as one step; what was not observed ends the demo."""
        step = report.Step(title)
        self.report.steps.append(step)
        self.view.step(len(self.report.steps), step)
        try:
            yield
        except ERRORS as error:
            self._say("missed", str(error))
            raise

    def note(self, text: str) -> None:
        """Say what is being done."""
        self._say("note", text)

    def seen(self, text: str) -> None:
        """Say what was observed."""
        self._say("seen", text)

    async def expect(self, text: str, waiting: Awaitable[T]) -> T:
        """Wait for something, and say that it was observed."""
        result = await waiting
        self.seen(text)
        return result

    def require(self, text: str, condition: object) -> None:
        """Observe what must be true right now."""
        if not condition:
            raise observer.NotObserved(f"not so: {text}")
        self.seen(text)

    def figure(self, name: str, value: str) -> None:
        """Record a measured value, and say it."""
        self.report.figures.append(report.Figure(name, value))
        self._say("note", f"{name}: {value}")

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

    def _say(self, kind: str, text: str) -> None:
        line = report.Line(self.observer.now, kind, text)
        self.report.steps[-1].lines.append(line)
        self.view.line(line)

"""The record of a demo: what was done, what was seen, figures and charts; written as HTML."""

import dataclasses
import io
import json
import pathlib
import re

import jinja2
import markupsafe
import rich.console
import rich.text

from demo import chart
from testbed.kit import stage

COLOURS = {"note": "", "seen": "green", "failed": "red", "missed": "bold red"}
WIDTH = 110
"""Of the picture, in letters."""

TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
)


@dataclasses.dataclass(frozen=True)
class Line:
    """Something that was said during a step."""

    # Seconds since the demo's start.
    at: float
    # A key of stage.MARKS: note, seen, failed or missed.
    kind: str
    text: str


@dataclasses.dataclass(frozen=True)
class Figure:
    """One measured value, with its unit."""

    name: str
    value: str


@dataclasses.dataclass
class Step:
    """What happened in one step."""

    title: str
    lines: list[Line] = dataclasses.field(default_factory=list)
    charts: list[markupsafe.Markup] = dataclasses.field(default_factory=list)

    @property
    def is_observed(self) -> bool:
        """Whether everything in it was observed, and anything at all."""
        kinds = {line.kind for line in self.lines}
        return bool(kinds & {"seen", "failed"}) and "missed" not in kinds


@dataclasses.dataclass
class Report:
    """The whole demo."""

    cluster: str
    description: str
    # How many steps there are to see.
    planned: int
    steps: list[Step] = dataclasses.field(default_factory=list)
    figures: list[Figure] = dataclasses.field(default_factory=list)
    # What is known about the cluster when something was not observed.
    evidence: str = ""

    @property
    def is_observed(self) -> bool:
        """Whether every planned step was seen."""
        return len(self.steps) == self.planned and all(step.is_observed for step in self.steps)

    @property
    def verdict(self) -> str:
        """One sentence on how it went."""
        if self.is_observed:
            return "Each step was observed."
        seen = sum(step.is_observed for step in self.steps)
        return f"Only {seen} of {self.planned} steps were observed."

    def write(self, folder: pathlib.Path) -> pathlib.Path:
        """Write index.html, figures.json and any evidence; return the page's path."""
        folder.mkdir(parents=True, exist_ok=True)
        figures = {figure.name: figure.value for figure in self.figures}
        (folder / "figures.json").write_text(json.dumps(figures, indent=2) + "\n")
        if self.evidence:
            (folder / "evidence.txt").write_text(self.evidence)
        (folder / "demo.svg").write_text(self.picture("a training job in a profile"))
        page = folder / "index.html"
        page.write_text(TEMPLATES.get_template("report.html.j2").render(report=self))
        return page

    def picture(self, about: str) -> str:
        """Draw the lines of the steps about something as a terminal shows them."""
        text = rich.text.Text()
        for step in self.steps:
            if about in step.title:
                text.append(f"{step.title}\n", style="bold")
                for line in step.lines:
                    mark = stage.MARKS[line.kind]
                    text.append(
                        f"{line.at:7.1f} s  {mark} {line.text}\n", style=COLOURS[line.kind]
                    )
        console = rich.console.Console(record=True, width=WIDTH, file=io.StringIO())
        console.print(text)
        # Without the fonts that a viewer would have to fetch.
        return re.sub(
            r"@font-face \{.*?\}\s*", "", console.export_svg(title="make demo"), flags=re.DOTALL
        )


def svg(drawing: chart.Chart) -> markupsafe.Markup:
    """Render a chart and its title."""
    return markupsafe.Markup(TEMPLATES.get_template("timeline.svg.j2").render(chart=drawing))

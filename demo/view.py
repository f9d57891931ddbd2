"""Show the demo while it runs: live on a terminal, as plain lines elsewhere."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Protocol

import rich.console
import rich.live
import rich.table
import rich.text

from demo import report
from testbed.kit import stage, timeline

MOST_PODS = 24


class View(Protocol):
    """Where the demo tells what happens."""

    def step(self, number: int, step: report.Step) -> None:
        """Begin a step."""
        ...

    def line(self, line: report.Line) -> None:
        """Say one line of the current step."""
        ...


class PlainView:
    """Lines on standard output, each with its time."""

    def step(self, number: int, step: report.Step) -> None:
        """Begin a step."""
        print(f"\n{number}. {step.title}", flush=True)

    def line(self, line: report.Line) -> None:
        """Say one line of the current step."""
        print(f"{line.at:7.1f} s  {stage.MARKS[line.kind]} {line.text}", flush=True)


class LiveView:
    """The same lines, and below them what each container is doing now."""

    def __init__(
        self, console: rich.console.Console, pods: Callable[[], list[timeline.PodLine]]
    ) -> None:
        self._console = console
        self._pods = pods

    def step(self, number: int, step: report.Step) -> None:
        """Begin a step."""
        self._console.print(f"\n[bold]{number}. {step.title}[/bold]")

    def line(self, line: report.Line) -> None:
        """Say one line of the current step."""
        text = rich.text.Text(f"{line.at:7.1f} s  {stage.MARKS[line.kind]} ")
        self._console.print(text.append(line.text, style=report.COLOURS[line.kind]))

    def __rich__(self) -> rich.table.Table:
        return pod_table(self._pods())


@contextlib.contextmanager
def showing(pods: Callable[[], list[timeline.PodLine]], *, plain: bool) -> Iterator[View]:
    """Choose the view for where the output goes."""
    if plain or not sys.stdout.isatty():
        yield PlainView()
        return
    console = rich.console.Console(highlight=False)
    view = LiveView(console, pods)
    with rich.live.Live(view, console=console, refresh_per_second=4, transient=True):
        yield view


def pod_table(pods: list[timeline.PodLine]) -> rich.table.Table:
    """Draw the newest pods with each container's state."""
    table = rich.table.Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("namespace", "pod", "containers", "sidecar"):
        table.add_column(heading, no_wrap=True)
    for pod in pods[-MOST_PODS:]:
        table.add_row(pod.namespace, pod.name, container_texts(pod), sidecar_text(pod))
    if len(pods) > MOST_PODS:
        table.caption = f"and {len(pods) - MOST_PODS} more"
    return table


def container_texts(pod: timeline.PodLine) -> rich.text.Text:
    """Write the names of a pod's containers in the colours of their states."""
    colours = {
        timeline.State.WAITING: "dim",
        timeline.State.RUNNING: "blue",
        timeline.State.FINISHED: "green",
        timeline.State.FAILED: "bold red",
    }
    text = rich.text.Text()
    for line in pod.containers.values():
        if line.role is timeline.Role.PAYLOAD:
            again = f" (run {line.now.restarts + 1})" if line.now.restarts else ""
            text.append(f"{line.name}{again} {line.now.state}  ", style=colours[line.now.state])
    return text


def sidecar_text(pod: timeline.PodLine) -> rich.text.Text:
    """Say what the pod's proxy is doing."""
    if pod.proxy is None:
        return rich.text.Text("none", style="dim")
    return rich.text.Text(str(pod.proxy.now.state), style="yellow")

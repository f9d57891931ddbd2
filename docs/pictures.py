"""Draw docs/pictures from a running testbed, a demo's report, figures, traces, profiles.

The testbed is as after `make testbed-up` and the tutorial up to its third step; for `diagnose`
istiod is then scaled to none. The report is that of `make demo`. The dashboard's panels hold what
its queries return on a testbed, and the traces are those that a collector got there, as
tests/e2e/test_observability.py has kept them; bench/bench_pods.py keeps its figures as panels.
A profile is what `--profile` of a benchmark has written.
"""

from __future__ import annotations

import html
import io
import json
import pathlib
import re
import subprocess
import sys

import dashboard_picture
import profile_spans
import rich.console
import rich.text
import trace_picture

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from testbed import command_line  # noqa: E402
from testbed.kit import stage  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
COMMANDS = {
    "status": ("status",),
    "diagnose": ("run", "istio-integrator/leader", "diagnose"),
}
"""Of `juju`, by the picture's name."""
WIDTH = 110
_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_DRAWING = re.compile(r"<svg .*?</svg>", re.DOTALL)
_STEP = re.compile(r"<h2>([^<]*)</h2>(.*?)</table>", re.DOTALL)
_LINE = re.compile(r'<td class="number">([^<]*)</td><td class="(\w+)">([^<]*)</td>')


def terminal(title: str, shown: str) -> str:
    """Draw what a command prints."""
    console = rich.console.Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(rich.text.Text.from_ansi(shown))
    # Without the fonts that a viewer would have to fetch.
    return _FONT.sub("", console.export_svg(title=title))


def drawings(page: str) -> list[str]:
    """Take the charts out of a demo's report."""
    return _DRAWING.findall(page)


def told(page: str, about: str) -> str:
    """Take the lines of the steps about something out of a demo's report."""
    lines: list[str] = []
    for title, body in _STEP.findall(page):
        if about in title:
            lines += ["", title]
            for at, kind, text in _LINE.findall(body):
                lines.append(f"{at:>9}  {stage.MARKS[kind]} {text}")
    return html.unescape("\n".join(lines[1:]))


def commands(name: str, model: str) -> bool:
    """Draw what Juju's commands show; False when one has nothing to show."""
    juju = [sys.executable, "-m", "juju_standin", "--testbed", name]
    for picture, words in COMMANDS.items():
        argv = [*juju, words[0], "--model", model, *words[1:]]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if not done.stdout.strip():
            print(f"pictures: juju {' '.join(words)}: {done.stderr.strip()}", file=sys.stderr)
            return False
        write(picture, terminal(f"juju {' '.join(words)}", done.stdout))
    return True


def write(picture: str, drawing: str) -> None:
    """Write a picture."""
    (PICTURES / f"{picture}.svg").write_text(drawing)
    print(f"docs/pictures/{picture}.svg written")


def main() -> int:
    """Write what is asked for; the exit code is 1 when a command has nothing to show."""
    parser = command_line.parser(
        "docs/pictures.py",
        __doc__,
        "python docs/pictures.py --name default --report build/demo-today/index.html",
        "python docs/pictures.py --panels build/e2e/dashboard.json build/bench/pods.json",
        "python docs/pictures.py --trace build/e2e/trace-hook.json",
        "python docs/pictures.py --profile build/bench/shutdown.txt",
    )
    parser.add_argument("--name", help="a running testbed; `default` if nothing is given")
    parser.add_argument("--model", default="kubeflow")
    parser.add_argument("--report", type=pathlib.Path, help="index.html of a demo")
    parser.add_argument(
        "--panels", type=pathlib.Path, nargs="+", default=[], help="of a dashboard"
    )
    parser.add_argument("--trace", type=pathlib.Path, nargs="+", default=[], help="traces")
    parser.add_argument("--profile", type=pathlib.Path, nargs="+", default=[], help="stacks")
    arguments = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    if arguments.report:
        page = arguments.report.read_text()
        write("demo", terminal("make demo", told(page, "a training job in a profile")))
        write("demo-4", drawings(page)[3])
    for path in arguments.panels:
        write(path.stem, dashboard_picture.draw(json.loads(path.read_text()), path.stem))
    for path in arguments.trace:
        write(path.stem, trace_picture.draw(json.loads(path.read_text()), path.stem))
    for path in arguments.profile:
        spans = profile_spans.spans(path.read_text())
        write(path.stem, trace_picture.draw(spans, path.stem))
    files = (arguments.report, arguments.panels, arguments.trace, arguments.profile)
    if arguments.name or not any(files):
        return 0 if commands(arguments.name or "default", arguments.model) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

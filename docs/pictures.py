"""Draw docs/pictures from what a running testbed shows and from the report of a demo.

Usage: python docs/pictures.py [--name TESTBED] [--model MODEL] [--report PAGE]

example: make demo && make testbed-up, the tutorial up to its third step, and then
  python docs/pictures.py --report build/demo-today/index.html
"""

from __future__ import annotations

import argparse
import io
import pathlib
import re
import subprocess
import sys

import rich.console
import rich.text

PICTURES = pathlib.Path(__file__).resolve().parent / "pictures"
COMMANDS = {
    "status": ("status",),
    "diagnose": ("run", "istio-integrator/leader", "diagnose"),
}
"""Of `juju`, by the picture's name."""
WIDTH = 110
_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_DRAWING = re.compile(r"<svg .*?</svg>", re.DOTALL)


def terminal(title: str, shown: str) -> str:
    """Draw what a command prints."""
    console = rich.console.Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(rich.text.Text.from_ansi(shown))
    # Without the fonts that a viewer would have to fetch.
    return _FONT.sub("", console.export_svg(title=title))


def drawings(page: str) -> list[str]:
    """Take the charts out of a demo's report."""
    return _DRAWING.findall(page)


def main() -> int:
    """Write what can be had; the exit code is 1 when a command has nothing to show."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--name", default="default", help="the running testbed")
    parser.add_argument("--model", default="kubeflow")
    parser.add_argument("--report", type=pathlib.Path, help="index.html of a demo")
    arguments = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    juju = [sys.executable, "-m", "testbed", "--name", arguments.name, "juju"]
    for name, words in COMMANDS.items():
        argv = [*juju, words[0], "--model", arguments.model, *words[1:]]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if not done.stdout.strip():
            print(f"pictures: juju {' '.join(words)}: {done.stderr.strip()}", file=sys.stderr)
            return 1
        (PICTURES / f"{name}.svg").write_text(terminal(f"juju {' '.join(words)}", done.stdout))
        print(f"docs/pictures/{name}.svg written")
    if arguments.report:
        for number, drawing in enumerate(drawings(arguments.report.read_text()), start=1):
            (PICTURES / f"demo-{number}.svg").write_text(drawing)
            print(f"docs/pictures/demo-{number}.svg written")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The tutorial's commands, taken from its page and run as they stand, and how long they take."""

import itertools
import os
import pathlib
import re
import shlex
import subprocess

import pytest

from testbed import cluster

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs/tutorial/training-job-in-the-mesh.md"
SECTION = re.compile(r"^## (.*)$", re.MULTILINE)
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
AT = re.compile(r"^at (\d+\.\d+) (.*)$", re.MULTILINE)

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def testbed(root):
    """A testbed of the tutorial's own, so that a reader's is left alone."""
    found = cluster.Testbed(f"e2e-tutorial-{os.getpid()}")
    yield found
    found.down()


def script(page: str) -> str:
    """The page's commands, each section's after a line that says when it began."""
    _, *parts = SECTION.split(page)
    lines = [
        f"echo at $EPOCHREALTIME {shlex.quote(title)}\n{''.join(BLOCK.findall(text))}"
        for title, text in zip(parts[::2], parts[1::2], strict=True)
    ]
    return "".join([*lines, "echo at $EPOCHREALTIME end\n"])


def sections(output: str) -> dict[str, tuple[float, str]]:
    """What each section took, in seconds, and what it printed."""
    _, *parts = AT.split(output)
    marks = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return {
        title: (float(end) - float(begin), text)
        for (begin, title, text), (end, _, _) in itertools.pairwise(marks)
    }


def test_the_tutorial_leads_from_an_empty_machine_to_a_finished_training_job(testbed, capsys):
    commands = script(PAGE.read_text())
    commands = re.sub(
        r'python -m testbed(?=[ "])', f"python -m testbed --name {testbed.name}", commands
    )
    assert commands.count(testbed.name) == 2, "the page's aliases are not as expected"

    done = subprocess.run(
        ["bash", "-O", "expand_aliases", "-euxo", "pipefail", "-c", commands],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    print(done.stdout)
    told = sections(done.stdout)
    with capsys.disabled():
        print(f"\n{PAGE.relative_to(ROOT)}: {sum(took for took, _ in told.values()):.0f} s")
        print(*(f"{took:7.1f} s  {title}" for title, (took, _) in told.items()), sep="\n")
    assert done.returncode == 0
    left = [line for line in done.stdout.splitlines() if re.match(r"training-\S+ +1/2", line)]
    assert len(left) == 3, "without the charm's help each pod of the job hangs"
    (found,) = (text for title, (_, text) in told.items() if "Break it" in title)
    broken, mended = re.split(r"^something is broken$", found, flags=re.MULTILINE)
    first = next(line for line in broken.splitlines() if "✗" in line)
    assert "✗ istiod" in first
    assert "→ kubectl -n istio-system get pods" in broken
    assert "✗" not in mended
    assert "✓ istiod" in mended

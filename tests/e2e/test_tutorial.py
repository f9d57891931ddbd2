"""The tutorial's commands, taken from its page and run as they stand, and how long they take."""

import itertools
import os
import re
import shlex
import subprocess

import pytest

from testbed import cluster
from tests.e2e import pages

PAGE = pages.ROOT / "docs/tutorial/training-job-in-the-mesh.md"
AT = re.compile(r"^at (\d+\.\d+) (.*)$", re.MULTILINE)
VARYING = re.compile(r"\b\d+(\.\d+){3}\b|\b(\d+m)?\d+s\b|\((port-forward|exec)\)")
"""Addresses, ages, and the way to a proxy."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def testbed(root):
    """A testbed of the tutorial's own, so that a reader's is left alone."""
    found = cluster.Testbed(f"e2e-tutorial-{os.getpid()}")
    yield found
    found.down()


def described(language: str) -> list:
    """The page's blocks of one language."""
    found = pages.READER["of_page"](str(PAGE.relative_to(pages.ROOT)), PAGE.read_text())
    return [each for each in found if each.language == language]


def constant(text: str) -> str:
    """A line without what differs in each run, and with single blanks."""
    # The testbed's istiod may have an image without a version.
    return " ".join(re.sub(r"istiod 1\.\d+", "istiod", VARYING.sub("…", text)).split())


def script() -> str:
    """The page's commands, each section's after a line that says when it began."""
    blocks = described("console")
    lines = [
        f"echo at $EPOCHREALTIME {shlex.quote(title)}\n{''.join(each.text for each in its)}"
        for title, its in itertools.groupby(blocks, lambda each: each.section)
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
    commands = script()
    for alias, option in (("testbed", "--name"), ("juju_standin", "--testbed")):
        program = f'python -m {alias}"'
        assert commands.count(program) == 1, "the page's aliases are not as expected"
        commands = commands.replace(program, f'python -m {alias} {option} {testbed.name}"')

    done = subprocess.run(
        ["bash", "-O", "expand_aliases", "-euxo", "pipefail", "-c", commands],
        cwd=pages.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    print(done.stdout)
    told = sections(done.stdout)
    with capsys.disabled():
        print(f"\n{PAGE.relative_to(pages.ROOT)}: {sum(took for took, _ in told.values()):.0f} s")
        print(*(f"{took:7.1f} s  {title}" for title, (took, _) in told.items()), sep="\n")
    assert done.returncode == 0
    printed = {
        title: [constant(line) for line in text.splitlines()] for title, (_, text) in told.items()
    }
    for block in described("text"):
        for line in map(constant, block.text.splitlines()):
            assert any(line in each for each in printed[block.section]), (block.section, line)
    (found,) = (text for title, (_, text) in told.items() if "Break it" in title)
    broken, mended = re.split(r"^something is broken$", found, flags=re.MULTILINE)
    first = next(line for line in broken.splitlines() if "✗" in line)
    assert "✗ istiod" in first
    assert "✗" not in mended
    assert "✓ istiod" in mended

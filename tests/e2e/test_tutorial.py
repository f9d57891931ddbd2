"""The tutorial's commands, taken from its page and run as they stand."""

import os
import pathlib
import re
import subprocess

import pytest

from testbed import cluster

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs/tutorial/training-job-in-the-mesh.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def testbed(root):
    """A testbed of the tutorial's own, so that a reader's is left alone."""
    found = cluster.Testbed(f"e2e-tutorial-{os.getpid()}")
    yield found
    found.down()


def test_the_tutorial_leads_from_an_empty_machine_to_a_finished_training_job(testbed):
    commands = "".join(BLOCK.findall(PAGE.read_text()))
    script = commands.replace("python -m testbed", f"python -m testbed --name {testbed.name}")
    assert script.count(testbed.name) == 2, "the page's aliases are not as expected"

    done = subprocess.run(
        ["bash", "-O", "expand_aliases", "-euxo", "pipefail", "-c", script],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    print(done.stdout)
    assert done.returncode == 0
    left = [line for line in done.stdout.splitlines() if re.match(r"training-\S+ +1/2", line)]
    assert len(left) == 3, "without the charm's help each pod of the job hangs"

"""What the service imports: it stays in memory for as long as the pod lives."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[3]
NEEDLESS = ("lightkube", "httpx2", "sidecar_lifecycle.shell.admission.server")
"""For a kubeconfig file, which no pod has, and for the webhook, which is another program."""
PROGRAM = """
import json, sys
from sidecar_lifecycle.shell import cli
cli.parser("run").parse_args(["run", "--model=m", "--application=a", "--unit=a/0"])
print(json.dumps(sorted(sys.modules)))
"""


@pytest.fixture(scope="module")
def imported() -> list[str]:
    """Return the names of the modules of a service that is about to run."""
    path = os.pathsep.join(str(ROOT / each) for each in ("lib", "workload"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", NEEDLESS)
def test_service_does_not_import_what_a_pod_does_not_need(imported: list[str], name: str):
    assert not [each for each in imported if each == name or each.startswith(f"{name}.")]

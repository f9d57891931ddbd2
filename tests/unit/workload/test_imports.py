"""What the service imports: it stays in memory for as long as the pod lives."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[3]
NEEDLESS = ("lightkube", "httpx2", "sidecar_lifecycle.shell.admission.server")
"""Of the charm, of the tests' kubeconfig, and of the webhook, which is another program."""
PROGRAM = """
import json, sys
from sidecar_lifecycle.shell import cli
try:
    cli.main(["run", "--settings", "/missing"])
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)))
"""


@pytest.fixture(scope="module")
def modules() -> list[str]:
    """Return what a service that is about to run has imported."""
    path = os.pathsep.join(str(ROOT / each) for each in ("lib", "workload"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", NEEDLESS)
def test_service_does_not_import_what_a_pod_does_not_need(modules: list[str], name: str):
    assert "sidecar_lifecycle.shell.run" in modules
    assert not [each for each in modules if each == name or each.startswith(f"{name}.")]

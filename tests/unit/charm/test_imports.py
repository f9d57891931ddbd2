"""What a hook imports: Juju starts a process for each, and pays for every module anew."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from istio_integrator import later

ROOT = pathlib.Path(__file__).parents[3]
NEEDLESS = (
    "cryptography.hazmat",
    "httpx2.websockets",
    "wsproto",
)
"""For certificates, streams into pods, the action diagnose and the preview of options."""
PROGRAM = """
import json, sys
from tests.unit.charm import charm_world, fake_cluster
import charm
from istio_integrator.kube import cluster
from ops import testing
before = sorted(sys.modules)
fake = fake_cluster.FakeCluster()
fake.namespace("kubeflow")
fake.node()
fake_cluster.install_istio(fake)
cluster.connect = fake.api
ctx = testing.Context(charm.IstioIntegrator)
ctx.run(ctx.on.config_changed(), charm_world.state())
print(json.dumps([before, sorted(sys.modules)]))
"""


@pytest.fixture(scope="module")
def imported():
    """Return the names of all modules, of the charm alone and of one that ran a hook."""
    places = (".", "src", "lib", "workload")
    path = os.pathsep.join(str(ROOT / each) for each in places)
    given = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, env=given, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", NEEDLESS)
def test_plain_hook_does_not_import_what_it_does_not_need(imported, name):
    for modules in imported:
        assert not [each for each in modules if each == name or each.startswith(f"{name}.")]


def test_module_is_executed_when_it_is_first_used(tmp_path, monkeypatch):
    (tmp_path / "executed_later.py").write_text("import sys\nsys.is_executed = True\nVALUE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = later.module("executed_later")
    assert not hasattr(sys, "is_executed")
    assert found.VALUE == 1
    assert sys.is_executed
    monkeypatch.delattr(sys, "is_executed")
    assert later.module("executed_later") is found is sys.modules.pop("executed_later")


def test_module_that_is_not_there_is_told_at_once():
    with pytest.raises(ModuleNotFoundError, match=r"istio_integrator\.nowhere"):
        later.module("istio_integrator.nowhere")

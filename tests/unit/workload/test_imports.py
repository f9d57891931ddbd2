"""What the service imports: it stays in memory for as long as the pod lives."""

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from testbed import certificates

ROOT = pathlib.Path(__file__).parents[3]
NEEDLESS = ("lightkube", "httpx2", "sidecar_lifecycle.shell.admission.server")
"""Of the charm, of the tests' kubeconfig, and of the webhook, which is another program."""
PROGRAM = """
import gc, json, ssl, sys
from sidecar_lifecycle.shell import cli
cli.load("run")
modules = sorted(sys.modules)
held = [each for each in gc.get_objects() if isinstance(each, ssl.SSLContext)]
trusted = [each.cert_store_stats()["x509_ca"] for each in (*held, ssl.create_default_context())]
print(json.dumps({"modules": modules, "trusted": trusted}))
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what a service that is about to run has imported, and the authorities it has read."""
    folder = tmp_path_factory.mktemp("authorities")
    authority = certificates.Authority(folder).pair.certificate
    path = os.pathsep.join(str(ROOT / each) for each in ("lib", "workload"))
    env = {"PYTHONPATH": path, "SSL_CERT_FILE": str(authority), "SSL_CERT_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", NEEDLESS)
def test_service_does_not_import_what_a_pod_does_not_need(service: dict[str, Any], name: str):
    modules = service["modules"]
    assert not [each for each in modules if each == name or each.startswith(f"{name}.")]


def test_authorities_of_the_system_are_read_when_somebody_asks_for_them(service: dict[str, Any]):
    *imported, asked = service["trusted"]
    # aiohttp has its contexts, with nobody in them.
    assert imported
    assert set(imported) == {0}
    assert asked == 1

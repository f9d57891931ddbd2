"""What the service imports: it stays in memory for as long as the pod lives."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from testbed import certificates

ROOT = pathlib.Path(__file__).parents[3]
NEEDLESS = ("lightkube", "httpx2", "sidecar_lifecycle.shell.admission.server")
"""Of the charm, of the tests' kubeconfig, and of the webhook, which is another program."""
PROGRAM = """
import json, sys
from sidecar_lifecycle.shell import cli
cli.load("run")
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


READS = """
import gc, os, ssl
from sidecar_lifecycle.shell import cli
cli.load("run")
held = [each for each in gc.get_objects() if isinstance(each, ssl.SSLContext)]
print(sum(each.cert_store_stats()["x509_ca"] for each in held), len(held))
print(ssl.create_default_context().cert_store_stats()["x509_ca"])
"""


def test_authorities_of_the_system_are_read_when_somebody_asks_for_them(tmp_path: pathlib.Path):
    authority = certificates.Authority(tmp_path).pair.certificate
    path = os.pathsep.join(str(ROOT / each) for each in ("lib", "workload"))
    env = {"PYTHONPATH": path, "SSL_CERT_FILE": str(authority), "SSL_CERT_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", READS], env=env, capture_output=True, text=True, check=True
    )
    imported, asked = done.stdout.splitlines()
    # aiohttp has its contexts, with nobody in them.
    assert imported.startswith("0 ")
    assert imported != "0 0"
    assert asked == "1"

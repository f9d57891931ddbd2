"""The workload's programs as processes on loopback; API servers ask the webhook's by URL."""

import contextlib
import dataclasses
import datetime
import functools
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import lightkube
import pytest

from integrator_contract import service
from istio_integrator.admission import certificates
from testbed import kubernetes, loopback
from tests import charm_access, waiting
from tests.api import Api
from tests.functional import admission_cases as table
from tests.functional import admission_world, charm_runs
from tests.kubernetes_objects import namespace_of

ROOT = Path(__file__).parents[2]
WORKLOAD = f"{ROOT / 'workload'}:{ROOT / 'lib'}"
NAME = "localhost"


def now():
    return datetime.datetime.now(datetime.UTC)


@dataclasses.dataclass
class Server:
    """A process of `sidecar-lifecycle admission` on loopback."""

    directory: Path
    port: int
    health: int
    material: certificates.KeyPair
    process: subprocess.Popen

    def get(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health}{path}") as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metric(self, line):
        _, text = self.get("/metrics")
        values = [row.split()[-1] for row in text.splitlines() if row.startswith(line)]
        return sum(map(float, values))

    def show(self, material):
        """Put certificates where the server looks, as the kubelet does: all at once."""
        for name, text in (("tls.crt", material.certificate), ("tls.key", material.key)):
            partial = self.directory / f".{name}"
            partial.write_text(text)
            partial.rename(self.directory / name)

    def settle(self, values):
        text = json.dumps(values)
        partial = self.directory / ".settings.json"
        partial.write_text(text)
        partial.rename(self.directory / "settings.json")


@contextlib.contextmanager
def serving(directory, values):
    directory.mkdir()
    material = certificates.renew_if_due(None, [NAME], now())
    server = Server(directory, loopback.free_port(), loopback.free_port(), material, None)
    server.show(material)
    server.settle(values)
    command = [
        *(sys.executable, "-m", "sidecar_lifecycle.shell.cli", "admission"),
        *("--settings", directory / "settings.json", "--tls-dir", directory),
        *("--listen", f"127.0.0.1:{server.port}", "--health", f"127.0.0.1:{server.health}"),
    ]
    log = (directory / "log").open("w")
    with log:
        env = {**os.environ, "PYTHONPATH": WORKLOAD}
        server.process = subprocess.Popen(command, env=env, stderr=log, cwd=directory)
    try:
        is_ready = waiting.eventually(lambda: server.get("/readyz")[0] == 200)
        assert is_ready, (directory / "log").read_text()
        yield server
    finally:
        server.process.kill()
        server.process.wait()


@contextlib.contextmanager
def reconciler(
    folder: Path,
    kubeconfig: Path,
    settings: service.Options,
    results: service.Results | None = None,
) -> Iterator[int]:
    """Run `sidecar-lifecycle run` as a process; yields its port for health and metrics."""
    port = loopback.free_port()
    (folder / "settings.json").write_text(settings.encode())
    if results:
        service.name_results_file(folder / "settings.json").write_text(results.encode())
    command = [
        *(sys.executable, "-m", "tests.workload_access", kubeconfig, "run"),
        *("--settings", folder / "settings.json", "--listen", f"127.0.0.1:{port}", "--port", "0"),
    ]
    env = {**os.environ, "PYTHONPATH": WORKLOAD}
    with (folder / "run.log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stderr=log)
    try:
        yield port
    finally:
        process.terminate()
        process.wait()


def review(pod):
    """Write the AdmissionReview of a new pod, as an API server does."""
    request = {
        "uid": "u-1",
        "operation": "CREATE",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": pod,
    }
    whole = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(whole, separators=(",", ":")).encode()


MODEL = "written-for"


@functools.cache
def written(api: Api) -> str:
    """The configuration that the charm writes for its model and the namespaces of users."""
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        lightkube.Client(config=api.config) as client,
    ):
        charm_access.connect(monkeypatch, client)
        api.create(namespace_of(MODEL))
        charm_runs.deploy(api, MODEL)
        charm_runs.serve(api, "start", MODEL, **{"excluded-pods": "a=b"})
        owned = charm_runs.owned(api, MODEL)
        charm_runs.run("remove", MODEL, units=0)
        charm_runs.delete(api, MODEL)
        api.delete(namespace_of(MODEL))
    (found,) = (each for each in owned if each["kind"] == "MutatingWebhookConfiguration")
    found["metadata"] = {"name": found["metadata"]["name"]}
    return json.dumps(found)


def configure(world, name, server, bundle) -> kubernetes.Object:
    """Apply the charm's configuration for a model, pointing to the process."""
    found = json.loads(written(world.api).replace(MODEL, world.model(name)))
    if name != "hold":
        # The first one is about the model, and the others about namespaces of users.
        del found["webhooks"][1:]
    for hook in found["webhooks"]:
        path = hook["clientConfig"]["service"]["path"]
        url = f"https://{NAME}:{server.port}{path}"
        hook["clientConfig"] = {"url": url, "caBundle": certificates.encode(bundle)}
    return world.api.apply(found)


@contextlib.contextmanager
def worlds(
    api: Api, prefix: str, root: Path, names: Iterable[str] = table.SETTINGS, **switches: Any
) -> Iterator[tuple[admission_world.World, dict[str, Server]]]:
    """Serve settings of the table, each by a webhook of its own, while the block runs."""
    world = admission_world.World(api, prefix, **switches)
    servers: dict[str, Server] = {}
    with contextlib.ExitStack() as stack:
        stack.callback(world.delete_namespaces)
        world.create_namespaces()
        for name in names:
            values = admission_world.wanted(name, world.model(name)).to_document()
            server = servers[name] = stack.enter_context(serving(root / name, values))
            stack.callback(api.delete, configure(world, name, server, server.material.bundle))
        for name in names:
            world.wait_until_mutated(world.model(name))
        yield world, servers

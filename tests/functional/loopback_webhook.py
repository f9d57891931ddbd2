"""The webhook's server as a process on loopback, asked by an API server by URL."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from istio_integrator.admission import certificates, webhook
from istio_integrator.kube import cluster, manifests
from testbed import loopback
from tests.functional import admission_cases as table
from tests.functional import admission_world

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
    material: certificates.Material
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
    material = certificates.decide(None, [NAME], now())
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
        for _ in range(200):
            with contextlib.suppress(OSError):
                if server.get("/readyz")[0] == 200:
                    break
            time.sleep(0.05)
        else:
            raise AssertionError((directory / "log").read_text())
        yield server
    finally:
        server.process.kill()
        server.process.wait()


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


def by_url(objects, server):
    """Point a configuration to loopback instead of to a Service."""
    for obj in objects:
        for hook in obj["webhooks"]:
            path = hook["clientConfig"].pop("service")["path"]
            hook["clientConfig"]["url"] = f"https://{NAME}:{server.port}{path}"
    return objects


def configure(world, name, server, bundle):
    """Apply the charm's configuration, pointing to the process."""
    owner = manifests.Manifests(world.api, model=world.model(name), application=table.APPLICATION)
    context = {
        "name": webhook.configuration_name(owner.owner),
        "service": "unused",
        "model": world.model(name),
        "ca_bundle": certificates.encoded(bundle),
        "served": world.served_with(name),
    }
    rendered = manifests.render(webhook.CONFIGURATION_FOLDER, context)
    for obj in by_url(rendered, server):
        world.api.apply(owner.prepared(webhook.CONFIGURATION_FOLDER, obj))
    return owner


@contextlib.contextmanager
def worlds(
    api: cluster.Cluster,
    prefix: str,
    root: Path,
    names: Iterable[str] = table.SETTINGS,
    **switches: Any,
) -> Iterator[tuple[admission_world.World, dict[str, Server]]]:
    """Serve settings of the table, each by a webhook of its own, while the block runs."""
    world = admission_world.World(api, prefix, **switches)
    servers: dict[str, Server] = {}
    with contextlib.ExitStack() as stack:
        stack.callback(world.delete_namespaces)
        world.create_namespaces()
        for name in names:
            values = admission_world.wanted(name, world.model(name)).document()
            server = servers[name] = stack.enter_context(serving(root / name, values))
            owner = configure(world, name, server, server.material.bundle)
            stack.callback(owner.remove, webhook.CONFIGURATION_FOLDER)
        for name in names:
            world.wait_until_mutated(world.model(name))
        yield world, servers

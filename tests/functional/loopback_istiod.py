"""The real istiod as a process on loopback: its injector, asked by the API server by URL.

There is no node, so no proxy ever runs; what istiod makes of a new pod is all there is to see.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cluster
from testbed import certificates, istio, prepare, programs

REVISIONS = ("default", "canary")
"""Served alike, as by tags of one istiod."""
CONFIGURATION = "istio-sidecar-injector"
_NAME = "localhost"


@dataclasses.dataclass(frozen=True)
class Istiod:
    """A serving istiod."""

    process: subprocess.Popen[bytes]
    log: Path


@contextlib.contextmanager
def serving(api: cluster.Cluster, kubeconfig: Path, directory: Path) -> Iterator[Istiod]:
    """Run istiod, with its injector configured, while the block runs."""
    programs.ensure(["istio"])
    manifests = _settings()
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": istio.SYSTEM}}
    if api.get(cluster.NAMESPACE, istio.SYSTEM) is None:
        api.create(namespace)
    ports = prepare.free_ports(6)
    authority = certificates.Authority(directory / "pki")
    server = authority.server("istiod", [_NAME], ["127.0.0.1"])
    _write_files(directory, manifests)
    log = directory / "istiod.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            _command(kubeconfig, ports, authority, server),
            cwd=directory,
            env=_environment(),
            stdout=output,
            stderr=output,
        )
    try:
        _wait_until_ready(ports[0], process, log)
        bundle = base64.b64encode(authority.pair.certificate.read_bytes()).decode()
        applied = api.apply(_configuration(manifests, f"https://{_NAME}:{ports[1]}", bundle))
        try:
            yield Istiod(process, log)
        finally:
            api.delete(applied)
    finally:
        process.kill()
        process.wait()


def _settings() -> dict[tuple[str, str], dict[str, Any]]:
    wanted = istio.Installation(
        proxy_image="registry.example/proxyv2:1.31.1", pilot_image="registry.example/pilot:1.31.1"
    )
    items = json.loads(istio.render(wanted).settings.read_text())["items"]
    return {(item["kind"], item["metadata"]["name"]): item for item in items}


def _write_files(directory: Path, manifests: dict[tuple[str, str], dict[str, Any]]) -> None:
    places = {"istio": Path("etc/istio/config"), CONFIGURATION: Path("var/lib/istio/inject")}
    for name, place in places.items():
        (directory / place).mkdir(parents=True)
        for key, text in manifests["ConfigMap", name]["data"].items():
            (directory / place / key).write_text(text)


def _command(
    kubeconfig: Path,
    ports: list[int],
    authority: certificates.Authority,
    server: certificates.Pair,
) -> list[str | Path]:
    plain, https, grpc, secure, monitoring, introspection = ports
    return [
        programs.binary("pilot-discovery"),
        "discovery",
        f"--kubeconfig={kubeconfig}",
        f"--httpAddr=127.0.0.1:{plain}",
        f"--httpsAddr=127.0.0.1:{https}",
        f"--grpcAddr=127.0.0.1:{grpc}",
        f"--secureGRPCAddr=127.0.0.1:{secure}",
        f"--monitoringAddr=127.0.0.1:{monitoring}",
        f"--ctrlz_port={introspection}",
        f"--caCertFile={authority.pair.certificate}",
        f"--tlsCertFile={server.certificate}",
        f"--tlsKeyFile={server.key}",
    ]


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "POD_NAMESPACE": istio.SYSTEM,
        "POD_NAME": "istiod-on-loopback",
        "REVISION": "default",
        # The configurations are ours: they name a URL, and the authority of this process.
        "INJECTION_WEBHOOK_CONFIG_NAME": "",
        "VALIDATION_WEBHOOK_CONFIG_NAME": "",
        # So that only a pod's own annotation makes its sidecar a native one.
        "ENABLE_NATIVE_SIDECARS": "false",
    }


def _configuration(
    manifests: dict[tuple[str, str], dict[str, Any]], url: str, bundle: str
) -> dict[str, Any]:
    configuration = manifests["MutatingWebhookConfiguration", CONFIGURATION]
    for hook in configuration["webhooks"]:
        path = hook["clientConfig"]["service"]["path"]
        hook["clientConfig"] = {"url": url + path, "caBundle": bundle}
        for selector in (hook["namespaceSelector"], hook["objectSelector"]):
            for one in selector["matchExpressions"]:
                if one["key"] == "istio.io/rev" and one["operator"] == "In":
                    one["values"] = list(REVISIONS)
    return configuration


def _wait_until_ready(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        # Not ready is 503, which is an OSError too.
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=1).close()
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise AssertionError(f"istiod is not ready:\n{log.read_text()[-4000:]}")

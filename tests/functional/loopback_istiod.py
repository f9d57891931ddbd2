"""The real istiod as a process on loopback, whose injector the API server asks.

There is no node, so no proxy ever runs; what istiod makes of a new pod is all there is to see.
"""

import base64
import contextlib
import dataclasses
import functools
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from testbed import certificates, istio, kubernetes, loopback, programs
from tests.api import Api
from tests.kubernetes_objects import namespace_of

Manifests = dict[tuple[str, str], kubernetes.Object]
"""Objects by kind and name."""

CONFIGURATION = "istio-sidecar-injector"
_NAME = "localhost"
_KEPT = ("ConfigMap", "DaemonSet", "Deployment", "MutatingWebhookConfiguration", "Service")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
CLASSIC = (
    "hub=registry.example",
    "values.revisionTags[0]=canary",
    "values.pilot.env.ENABLE_NATIVE_SIDECARS=false",
)
"""The settings of an Istio with a tag, whose sidecars are native ones if a pod asks for it."""


@contextlib.contextmanager
def running(
    api: Api,
    kubeconfig: Path,
    directory: Path,
    manifests: Manifests,
    *,
    revision: str = "",
    place: str = istio.SYSTEM,
    **environment: str,
) -> Iterator[tuple[str, str]]:
    """Run istiod on its files; the injector's URL and authority come back."""
    programs.ensure(["istio"])
    create_namespace(api, place)
    ports = loopback.free_ports(6)
    authority = certificates.Authority(directory / "pki")
    names = [_NAME, *(f"{name}.{place}.svc" for kind, name in manifests if kind == "Service")]
    server = authority.server("istiod", names, ["127.0.0.1"])
    write_files(directory, manifests, revision)
    argv = _command(kubeconfig, ports, authority, server)
    settings = {**_environment(revision, place), **environment}
    log = directory / "istiod.log"
    with process(argv, log, settings, directory) as started:
        _wait_until_ready(ports[0], started, log)
        bundle = base64.b64encode(authority.pair.certificate.read_bytes()).decode()
        yield f"https://{_NAME}:{ports[1]}", bundle


@contextlib.contextmanager
def process(
    argv: Sequence[str | Path],
    log: Path,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that ends with the block, as a node ends it.

    An istiod that is killed leaves its Leases behind, and the next one waits half a minute for
    them before it deploys gateways.
    """
    with log.open("wb") as out:
        started = subprocess.Popen(
            argv,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            cwd=directory,
        )
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def create_namespace(api: Api, place: str = istio.SYSTEM) -> None:
    """Create the namespace of istiod."""
    api.apply(namespace_of(place))


def render(*settings: str, place: str = istio.SYSTEM) -> Manifests:
    """Have istioctl render an installation; keep what tells which Istio it is."""
    if place != istio.SYSTEM:
        settings = (*settings, f"values.global.istioNamespace={place}")
    documents = yaml.load_all(_rendered(settings), Loader=_LOADER)
    return {
        (one["kind"], one["metadata"]["name"]): one
        for one in documents
        if one
        and one["kind"] in _KEPT
        # Of a gateway nothing is wanted.
        and one["metadata"].get("namespace", place) == place
        and "gateway" not in one["metadata"]["name"]
    }


@functools.cache
def _rendered(settings: tuple[str, ...]) -> str:
    programs.ensure(["istio"])
    share = programs.directory("istio") / "share"
    run = subprocess.run(
        [
            programs.binary("istioctl"),
            "manifest",
            "generate",
            f"--manifests={share / 'manifests'}",
            "--set=tag=1.31.1",
            *(f"--set={setting}" for setting in settings),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@dataclasses.dataclass(frozen=True)
class Installed:
    """An installation whose istiod serves."""

    url: str
    """Of the injector, without a path."""
    api: Api
    directory: Path
    revision: str

    def configure(self, *settings: str) -> None:
        """Change its settings, which istiod reads again by itself."""
        manifests = render(*settings, f"revision={self.revision}")
        write_files(self.directory, manifests, self.revision)
        for (kind, _), item in manifests.items():
            if kind in ("ConfigMap", "Deployment"):
                self.api.apply(item)


@contextlib.contextmanager
def installed(
    api: Api,
    kubeconfig: Path,
    directory: Path,
    *settings: str,
    revision: str = "",
    place: str = istio.SYSTEM,
) -> Iterator[Installed]:
    """Install Istio as its own installer renders it, with istiod on loopback.

    Its Service has no pod behind it without a node: it is an alias of localhost, and the rendered
    configurations only differ by the Service's port.
    """
    manifests = render(*settings, f"revision={revision}", place=place)
    about = {"revision": revision, "place": place, **_switches(manifests)}
    with running(api, kubeconfig, directory, manifests, **about) as (url, bundle):
        port = int(url.rpartition(":")[2])
        for (kind, _), item in manifests.items():
            if kind == "Service":
                item["spec"] = {"type": "ExternalName", "externalName": _NAME}
            for hook in item.get("webhooks", ()):
                hook["clientConfig"]["service"]["port"] = port
                hook["clientConfig"]["caBundle"] = bundle
        applied = [api.apply(item) for item in manifests.values()]
        try:
            yield Installed(url, api, directory, revision)
        finally:
            for item in applied:
                api.delete(item)


@contextlib.contextmanager
def unanswered(api: Api, namespace: str, policy: str) -> Iterator[None]:
    """An injector for a namespace and that of its user, as charts render it, without an istiod.

    It is of an Istio in the namespace istio-NAMESPACE.
    """
    spaces = [namespace, f"{namespace}-user"]
    marker = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": spaces}
    kind = "MutatingWebhookConfiguration", CONFIGURATION
    configuration = render()[kind]
    configuration["metadata"]["name"] += f"-{namespace}"
    for hook in configuration["webhooks"]:
        hook["clientConfig"]["service"]["namespace"] = f"istio-{namespace}"
        hook["namespaceSelector"]["matchExpressions"].append(marker)
        hook["failurePolicy"] = policy
    created = api.create(configuration)
    yield
    api.delete(created)


def _switches(manifests: Manifests) -> dict[str, str]:
    """Read the switches of features that an installation has in its istiod's environment."""
    (spec,) = (
        item["spec"]["template"]["spec"]
        for (kind, _), item in manifests.items()
        if kind == "Deployment"
    )
    return {
        each["name"]: each["value"]
        for each in spec["containers"][0]["env"]
        if "value" in each and each["name"].startswith(("ENABLE_", "PILOT_", "SHARED_"))
    }


def write_files(directory: Path, manifests: Manifests, revision: str = "") -> None:
    """Write what istiod mounts of its ConfigMaps."""
    places = {"istio": Path("etc/istio/config"), CONFIGURATION: Path("var/lib/istio/inject")}
    for name, place in places.items():
        (directory / place).mkdir(parents=True, exist_ok=True)
        full = f"{name}-{revision}" if revision else name
        for key, text in manifests["ConfigMap", full]["data"].items():
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


def _environment(revision: str, place: str) -> dict[str, str]:
    return {
        "POD_NAMESPACE": place,
        "POD_NAME": "istiod-on-loopback",
        "REVISION": revision or "default",
        # The configurations are ours: they name a URL, and the authority of this process.
        "INJECTION_WEBHOOK_CONFIG_NAME": "",
        "VALIDATION_WEBHOOK_CONFIG_NAME": "",
    }


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

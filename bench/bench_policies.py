"""What policies about callers cost: objects, time to write them, and what istiod makes of them.

So many applications are related to `service-mesh`, in two shapes: each says who may call it, which
is a policy for each; and all of them may call one, which is one policy that names them all. The
charm's part writes to a real API server; a real istiod sends the sidecar of one of the callees
what it is to do. istiod's own metrics say how long a push took, from the change to the proxy's
word that it has it.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any

import world

from istio_integrator.config import config
from istio_integrator.ingress.ingress import Ingress
from istio_integrator.istio import installation
from istio_integrator.kube import cluster, manifests
from istio_integrator.policies.policies import Authorization
from istio_integrator.relations import endpoints, service_mesh
from istio_integrator.situation import situation
from testbed import command_line, loopback
from tests import waiting
from tests.functional import istiod_world, sidecar_world
from tests.kubernetes_objects import namespace_of
from tests.unit.charm.security.callers import NAME, policy

CALLEE = "app-1"
"""Whose sidecar is looked at."""
PORT = 8888
CALLERS = 2
"""Applications that may call each one, as with Kubeflow's charms."""
METRICS = ("pilot_proxy_convergence_time", "pilot_xds_push_time", "pilot_pushcontext_init_seconds")
"""Of istiod: from a change to the proxy, the sending, and the work before it."""

FILTER = "filters.http.rbac.v3"
"""In the listeners of a proxy that holds its callers to something."""

Shape = Callable[[int, str], list[endpoints.Bag]]


def each_is_called(count: int, model: str) -> list[endpoints.Bag]:
    """Return what so many applications say who are each called by others."""
    return [
        _bag(number, model, [f"app-{(number + step) % count + 1}" for step in range(CALLERS)])
        for number in range(1, count + 1)
    ]


def one_is_called(count: int, model: str) -> list[endpoints.Bag]:
    """Return what one application says that is called by so many."""
    return [_bag(1, model, [f"caller-{number}" for number in range(count)])]


SHAPES: dict[str, Shape] = {
    "each says who calls it": each_is_called,
    "all call one": one_is_called,
}


def _bag(number: int, model: str, callers: Iterable[str]) -> endpoints.Bag:
    name = f"app-{number}"
    place = {"source_namespace": model, "target_namespace": model}
    stated = [policy(each, name, {"ports": [PORT]}) | place for each in callers]
    return endpoints.Bag(number, name, {service_mesh.POLICIES: json.dumps(stated)})


class Related:
    """Applications on `service-mesh`, which may change between hooks."""

    def __init__(self) -> None:
        self.said: list[endpoints.Bag] = []

    def bags(self, endpoint: str) -> list[endpoints.Bag]:
        """Return what they say."""
        return self.said if endpoint == service_mesh.ENDPOINT else []

    def is_related(self, *names: str) -> bool:
        """Tell whether an application is related."""
        return any(self.bags(endpoint) for endpoint in names)

    def write(self, *_: Any) -> None:
        """Keep nothing of what they are told."""


def policies(api: cluster.Cluster, model: str, related: Any) -> Authorization:
    """Return the part of the charm that writes policies, as a hook makes it."""
    place = {"model": model, "application": "istio-integrator"}
    mesh = installation.Mesh(
        namespace="istio-system",
        installed_in="istio-system",
        revision="default",
        is_default=True,
        environment={},
    )
    scope = situation.Situation(
        cluster=api,
        manifests=manifests.Manifests(api, **place),
        config=config.Config.model_validate({"authorization": "related"}),
        mesh=mesh,
        unit="istio-integrator/0",
        leader=True,
        related=related,
        **place,
    )
    ingress = Ingress(scope)
    return Authorization(scope, lambda: ingress.exposure)


class Metrics:
    """istiod's own figures, as far as they have changed since it was last looked."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/metrics"
        self._before = self._read()

    def _read(self) -> dict[str, float]:
        with urllib.request.urlopen(self._url, timeout=10) as answer:
            text = answer.read().decode()
        sums: dict[str, float] = {}
        for name, value in re.findall(
            r"^(\w+_(?:sum|count))(?:\{.*\})? (\S+)$", text, re.MULTILINE
        ):
            sums[name] = sums.get(name, 0.0) + float(value)
        return sums

    def changed(self) -> str:
        """Say how often each thing happened since, and how long it took in the middle."""
        now, before = self._read(), self._before
        self._before = now
        found: list[str] = []
        for name in METRICS:
            count, total = (
                now.get(f"{name}_{each}", 0.0) - before.get(f"{name}_{each}", 0.0)
                for each in ("count", "sum")
            )
            if count:
                found.append(f"{name} {1000 * total / count:.1f} ms ({count:.0f})")
        return ", ".join(found)


def dumped(admin: int) -> str:
    """Return the listeners that a proxy has been told, as JSON; policies are in them."""
    url = f"http://127.0.0.1:{admin}/config_dump?resource=dynamic_listeners"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def told(admin: int, is_so: Callable[[str], bool]) -> tuple[int, float]:
    """Wait until a proxy has been told something.

    Returns:
        The bytes of its listeners, and the seconds.
    """
    began = time.monotonic()
    assert waiting.eventually(lambda: is_so(dumped(admin)), 120), "the proxy was not told"
    return len(dumped(admin)), time.monotonic() - began


def measure(api: cluster.Cluster, model: str, shape: str, count: int, ports: Any) -> None:
    """Measure one number of relations, and print what they cost."""
    admin, metrics = ports
    related = Related()
    empty, _ = told(admin, lambda text: str(PORT) in text and FILTER not in text)
    metrics.changed()
    related.said = SHAPES[shape](count, model)
    last = SHAPES[shape](count, model)[0].content[service_mesh.POLICIES]
    caller = json.loads(last)[-1]["source_app_name"]
    seconds: list[float] = []
    for _ in range(2):
        # Each hook looks at the cluster anew.
        part = policies(api, model, related)
        began = time.monotonic()
        part.reconcile()
        seconds.append(time.monotonic() - began)
    found = api.list(cluster.AUTHORIZATION_POLICY, model)
    largest = max(len(json.dumps(each["spec"])) for each in found)
    full, waited = told(admin, lambda text: f"/sa/{caller}" in text)
    print(
        f"{shape}, {count}: {len(found)} policies, the largest {largest} bytes; written in "
        f"{seconds[0]:.2f} s, as it should be {seconds[1]:.2f} s"
    )
    print(
        f"  the listeners of the callee: {empty} bytes before, {full} after, {waited:.1f} s later"
    )
    print(f"  istiod: {metrics.changed()}", flush=True)
    policies(api, model, related).remove()


def main() -> None:
    """Print what relations cost, for some numbers of them."""
    parser = command_line.parser(
        "bench/bench_policies.py", __doc__, "python bench/bench_policies.py --relations 10,100"
    )
    parser.add_argument("--relations", default="10,100,500", help="with commas between them")
    counts = [int(each) for each in parser.parse_args().relations.split(",")]
    with contextlib.ExitStack() as stack:
        kubeconfig, client = stack.enter_context(world.served("bench-policies"))
        api = cluster.Cluster(client)
        api.create(namespace_of("istio-system"))
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        (monitoring,) = loopback.free_ports(1)
        options = [f"--monitoringAddr=127.0.0.1:{monitoring}"]
        xds = stack.enter_context(istiod_world.istiod(folder, kubeconfig, options=options))
        for count in counts:
            _of(api, client, folder, (xds, monitoring), count)


def _of(api: cluster.Cluster, client: Any, folder: pathlib.Path, ports: Any, count: int) -> None:
    xds, monitoring = ports
    model = f"bench-{count}"
    api.create(namespace_of(model))
    for number in range(1, count + 1):
        name = f"app-{number}"
        spec = {"selector": {NAME: name}, "ports": [{"name": "http", "port": PORT}]}
        metadata = {"name": name, "namespace": model}
        api.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    api.create(sidecar_world.sidecar(model, CALLEE, {NAME: CALLEE}, PORT, PORT))
    token = istiod_world.gateway_token(client, model)
    admin, nobody = loopback.free_ports(2)
    node = istiod_world.proxy(
        "sidecar", f"{CALLEE}-0", model, {NAME: CALLEE}, INTERCEPTION_MODE="NONE"
    )
    secrets = istiod_world.static_cluster("sds-grpc", nobody)
    with istiod_world.envoy_of(folder, xds, admin, node, token, more=[secrets]):
        metrics = Metrics(monitoring)
        for shape in SHAPES:
            measure(api, model, shape, count, (admin, metrics))
    api.delete(namespace_of(model))


if __name__ == "__main__":
    main()

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
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import lightkube
import pytest
import world
from ops import testing

from testbed import command_line, loopback
from tests import charm_access, waiting
from tests.api import Api
from tests.functional import charm_runs, istiod_world, loopback_istiod, sidecar_world
from tests.kubernetes_objects import made, namespace_of
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

Shape = Callable[[int, str], list[testing.Relation]]


def each_is_called(count: int, model: str) -> list[testing.Relation]:
    """Return the relations of so many applications who are each called by others."""
    return [
        _related(number, model, [f"app-{(number + step) % count + 1}" for step in range(CALLERS)])
        for number in range(1, count + 1)
    ]


def one_is_called(count: int, model: str) -> list[testing.Relation]:
    """Return the relation of one application that is called by so many."""
    return [_related(1, model, [f"caller-{number}" for number in range(count)])]


SHAPES: dict[str, Shape] = {
    "each says who calls it": each_is_called,
    "all call one": one_is_called,
}


def _related(number: int, model: str, callers: Iterable[str]) -> testing.Relation:
    name = f"app-{number}"
    place = {"source_namespace": model, "target_namespace": model}
    stated = [policy(each, name, {"ports": [PORT]}) | place for each in callers]
    bag = {"policies": json.dumps(stated)}
    return testing.Relation("service-mesh", id=number, remote_app_name=name, remote_app_data=bag)


def hook(model: str, related: Sequence[testing.Relation]) -> float:
    """Run a hook of the charm, which finds the model's Istio by its injector; its seconds."""
    options = {"istiod-namespace": f"istio-{model}", "authorization": "related"}
    began = time.monotonic()
    charm_runs.run("config_changed", model, relations=related, **options)
    return time.monotonic() - began


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


def measure(api: Api, model: str, shape: str, count: int, ports: Any) -> None:
    """Measure one number of relations, and print what they cost."""
    admin, metrics = ports
    alone = hook(model, [])
    empty, _ = told(admin, lambda text: str(PORT) in text and FILTER not in text)
    metrics.changed()
    related = SHAPES[shape](count, model)
    caller = json.loads(related[0].remote_app_data["policies"])[-1]["source_app_name"]
    written, unchanged = hook(model, related), hook(model, related)
    found = api.list("AuthorizationPolicy", model)
    largest = max(len(json.dumps(each["spec"])) for each in found)
    full, waited = told(admin, lambda text: f"/sa/{caller}" in text)
    print(
        f"{shape}, {count}: {len(found)} policies, the largest {largest} bytes; written in "
        f"{written:.2f} s, as it should be {unchanged:.2f} s, without relations {alone:.2f} s"
    )
    print(
        f"  the listeners of the callee: {empty} bytes before, {full} after, {waited:.1f} s later"
    )
    print(f"  istiod: {metrics.changed()}", flush=True)
    hook(model, [])


def main() -> None:
    """Print what relations cost, for some numbers of them."""
    parser = command_line.parser(
        "bench/bench_policies.py", __doc__, "python bench/bench_policies.py --relations 10,100"
    )
    parser.add_argument("--relations", default="10,100,500", help="with commas between them")
    counts = [int(each) for each in parser.parse_args().relations.split(",")]
    with contextlib.ExitStack() as stack:
        kubeconfig, client = stack.enter_context(world.served("bench-policies"))
        charm_access.connect(stack.enter_context(pytest.MonkeyPatch.context()), client)
        api = stack.enter_context(Api(client.config))
        loopback_istiod.create_namespace(api)
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        monitoring = loopback.free_port()
        options = [f"--monitoringAddr=127.0.0.1:{monitoring}"]
        xds = stack.enter_context(istiod_world.istiod(folder, kubeconfig, options=options))
        for count in counts:
            _of(api, client, folder, (xds, monitoring), count)


def _of(api: Api, client: lightkube.Client, folder: pathlib.Path, ports: Any, count: int) -> None:
    xds, monitoring = ports
    model = f"bench-{count}"
    api.create(namespace_of(model))
    charm_runs.deploy(api, model)
    for number in range(1, count + 1):
        name = f"app-{number}"
        spec = {"selector": {NAME: name}, "ports": [{"name": "http", "port": PORT}]}
        api.create(made("v1", "Service", name, model, spec))
    api.create(sidecar_world.sidecar(model, CALLEE, {NAME: CALLEE}, PORT, PORT))
    token = istiod_world.gateway_token(client, model)
    about = (f"{CALLEE}-0", model, {NAME: CALLEE})
    with (
        loopback_istiod.unanswered(api, model, "Ignore"),
        sidecar_world.configured(folder, xds, *about, token=token) as admin,
    ):
        metrics = Metrics(monitoring)
        for shape in SHAPES:
            measure(api, model, shape, count, (admin, metrics))
    charm_runs.run("remove", model, units=0)
    charm_runs.delete(api, model)
    api.delete(namespace_of(model))


if __name__ == "__main__":
    main()

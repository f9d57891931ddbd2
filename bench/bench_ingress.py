"""What routes cost: objects, requests to the API server and time of a hook, of both generations.

Twenty applications ask for a path each, in the older way (`ingress`, `ingress-auth`) and in the
newer one (`istio-ingress-route`, two of them without authentication, `forward-auth`), the latter
with either way to write routes. Whole hooks of the charm run on a real API server with a real
istiod beside it, each a process of its own in Juju and a call here; requests are counted at the
client. A hook without any relation says what is not the routes' doing.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import pathlib
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / each) for each in (".", "src", "lib", "workload")]

import lightkube  # noqa: E402
from lightkube.config.kubeconfig import KubeConfig  # noqa: E402
from ops import testing  # noqa: E402

from istio_integrator.kube import cluster, manifests  # noqa: E402
from istio_integrator.relations import forward_auth, kubeflow  # noqa: E402
from testbed import cluster as testbed_cluster  # noqa: E402
from testbed import command_line  # noqa: E402
from tests import gateway_client  # noqa: E402
from tests.functional import (  # noqa: E402
    charm_runs,
    gateway_api_world,
    ingress_world,
    istiod_world,
    loopback_istiod,
    newer_routes,
)

READS, TRIES, WRITES = "reads", "dry runs", "writes"
KINDS = ("Gateway", "VirtualService", "HTTPRoute", "EnvoyFilter")
"""Of which a model with routes has some; what else there is, a model without any has, too."""
OPEN = 2
"""Applications of the newer generation without authentication: dex-auth and oidc-gatekeeper."""


@dataclasses.dataclass
class Requests:
    """What a client asked, by what it does to the cluster."""

    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter[str])

    def note(self, request: Any) -> None:
        """Count a request."""
        # What somebody may do is asked by a POST, which makes nothing.
        if request.method == "GET" or "/authorization.k8s.io/" in request.url.path:
            kind = READS
        else:
            kind = TRIES if b"dryRun" in request.url.query else WRITES
        self.counts[kind] += 1


@dataclasses.dataclass(frozen=True)
class World:
    """An API server whose clients are counted."""

    api: cluster.Cluster
    requests: Requests

    def hook(
        self, event: str, model: str, relations: Sequence[testing.Relation], **options: Any
    ) -> tuple[dict[str, int], float]:
        """Run a hook; return how often it asked what, and its seconds."""
        self.requests.counts.clear()
        began = time.monotonic()
        charm_runs.run(event, model, relations=relations, **options)
        taken = time.monotonic() - began
        return dict(self.requests.counts), taken


def older(count: int, _: str) -> list[testing.Relation]:
    """Return the relations of applications as the older generation of charms has them."""
    asked = [
        ingress_world.request(number, f"app-{number}", f"/app-{number}", None)
        for number in range(1, count + 1)
    ]
    bags = [
        (kubeflow.INGRESS, one.relation, one.application, ingress_world.written(one.message))
        for one in asked
    ]
    auth = ingress_world.COMPLETE
    bags.append((kubeflow.INGRESS_AUTH, 900, "oidc", ingress_world.written(auth.message)))
    return [_relation(*bag) for bag in bags]


def newer(count: int, model: str) -> list[testing.Relation]:
    """Return those of the newer generation."""
    found = []
    for number in range(1, count + 1):
        name = f"app-{number}"
        endpoint = newer_routes.OPEN if number <= OPEN else newer_routes.ASKED
        route = newer_routes.wish(name, newer_routes.matched(f"/{name}/"))
        _, bag = newer_routes.bag(number, name, route, endpoint=endpoint, model=model)
        found.append(_relation(endpoint, bag.relation, bag.application, bag.content))
    address = {"decisions_address": f"http://oidc.{model}.svc.cluster.local"}
    return [*found, _relation(forward_auth.ENDPOINT, 900, "oidc", {**address, "app_names": "[]"})]


def _relation(endpoint: str, number: int, application: str, data: Any) -> testing.Relation:
    return testing.Relation(
        endpoint, id=number, remote_app_name=application, remote_app_data=dict(data)
    )


def measure(world: World, title: str, related: Any, count: int, **options: Any) -> None:
    """Measure the hooks of a model, and print what they cost.

    Args:
        world: Where.
        title: What the line is called.
        related: Makes the relations of so many applications.
        count: Of them.
        options: Of the charm.
    """
    model = "bench-" + title.split(",", maxsplit=1)[0].replace(" ", "-")
    for obj in (ingress_world.namespace(model), *ingress_world.service(model, "oidc", 8080)):
        world.api.create(obj)
    options |= {"hosts": gateway_client.HOST, "gateway-service": "istio-ingress/gateway"}
    relations, more = related(count, model), related(count + 1, model)
    try:
        lines = [
            ("from nothing", world.hook("config_changed", model, relations, **options)),
            ("as it should be", world.hook("update_status", model, relations, **options)),
            ("a route more", world.hook("update_status", model, more, **options)),
            ("as it should be", world.hook("update_status", model, more, **options)),
        ]
        own = manifests.Manifests(world.api, model=model, application="istio-integrator")
        kinds = collections.Counter(one["kind"] for one in own.owned())
    finally:
        charm_runs.run("remove", model, units=0, **options)
        world.api.delete(ingress_world.namespace(model))
    shown = ", ".join(f"{kinds[kind]} {kind}" for kind in KINDS if kinds[kind])
    print(f"{title}: {kinds.total()} objects" + (f", of these {shown}" if shown else ""))
    for name, (counts, taken) in lines:
        asked = "".join(f"{counts.get(kind, 0):5} {kind}" for kind in (READS, TRIES, WRITES))
        print(f"  {name:16}{asked} {taken:6.2f} s")


def _prepare(client: lightkube.Client, api: cluster.Cluster) -> None:
    istiod_world.install_definitions(client)
    gateway_api_world.install_definitions(client)
    api.create(ingress_world.namespace(istiod_world.GATEWAY_NAMESPACE))
    for obj in ingress_world.gateway_workload((("http2", 80, 8080), ("https", 443, 8443))):
        api.create(obj)
    spec = {"controllerName": "istio.io/gateway-controller"}
    api.apply(
        {
            "apiVersion": cluster.GATEWAY_CLASS.api_version,
            "kind": cluster.GATEWAY_CLASS.name,
            "metadata": {"name": "istio"},
            "spec": spec,
        }
    )


def main() -> None:
    """Print what a hook costs with the routes of each generation."""
    parser = command_line.parser(
        "bench/bench_ingress.py", __doc__, "python bench/bench_ingress.py --routes 20"
    )
    parser.add_argument("--routes", type=int, default=20, help="applications that want one")
    count = parser.parse_args().routes
    testbed = testbed_cluster.Testbed("bench-ingress")
    testbed.up(testbed_cluster.Options(control_plane_only=True))
    with contextlib.ExitStack() as stack:
        stack.callback(testbed.down)
        config = KubeConfig.from_file(testbed.kubeconfig).get()
        client = stack.enter_context(lightkube.Client(config=config))
        api = cluster.Cluster(client)
        _prepare(client, api)
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        stack.enter_context(loopback_istiod.installed(api, testbed.kubeconfig, folder))
        world = World(api, Requests())
        client._client._client.event_hooks["request"].append(world.requests.note)  # noqa: SLF001
        cluster.connect = lambda: api
        measure(world, "no relation", lambda *_: [], 0)
        measure(world, f"older, {count} of ingress", older, count)
        measure(world, f"newer, {count} of istio-ingress-route", newer, count)
        routing = {"routing": "gateway-api"}
        measure(world, f"routing gateway-api, {count}", newer, count, **routing)


if __name__ == "__main__":
    main()

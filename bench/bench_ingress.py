"""What routes cost: objects, requests to the API server and time of a hook, of both generations.

Twenty applications ask for a path each, in the older way (`ingress`, `ingress-auth`) and in the
newer one (`istio-ingress-route`, two of them without authentication, `forward-auth`), the latter
with either way to write routes. Whole hooks of the charm run on a real API server with a real
istiod beside it, each a process of its own in Juju and a call here; requests are counted at the
client. A hook without any relation says what is not the routes' doing.
"""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import world
from ops import testing

from istio_integrator.kube import cluster, manifests
from testbed import command_line
from tests import gateway_client
from tests.functional import charm_runs, ingress_world, newer_routes
from tests.kubernetes_objects import namespace_of
from tests.unit.charm import charm_world

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
    folder: pathlib.Path
    """For charms' folders, each of which stays from hook to hook, as in a pod."""

    def hook(
        self, event: str, model: str, relations: Sequence[testing.Relation], **options: Any
    ) -> tuple[dict[str, int], float]:
        """Run a hook; return how often it asked what, and its seconds."""
        root = self.folder / model
        if not root.exists():
            root.mkdir()
            charm_world.root(root)
        self.requests.counts.clear()
        began = time.monotonic()
        charm_runs.run(event, model, relations=relations, root=root, **options)
        taken = time.monotonic() - began
        return dict(self.requests.counts), taken


def older(count: int, _: str) -> list[testing.Relation]:
    """Return the relations of applications as the older generation of charms has them."""
    asked = [
        ingress_world.request(number, f"app-{number}", f"/app-{number}", None)
        for number in range(1, count + 1)
    ]
    return [*asked, dataclasses.replace(ingress_world.COMPLETE, id=900)]


def newer(count: int, model: str) -> list[testing.Relation]:
    """Return those of the newer generation."""
    found = []
    for number in range(1, count + 1):
        name = f"app-{number}"
        endpoint = newer_routes.OPEN if number <= OPEN else newer_routes.ASKED
        route = newer_routes.wish(name, newer_routes.matched(f"/{name}/"))
        found.append(newer_routes.bag(number, name, route, endpoint=endpoint, model=model))
    forward = ingress_world.forward(f"http://oidc.{model}.svc.cluster.local")
    return [*found, dataclasses.replace(forward, id=900)]


def measure(place: World, title: str, related: Any, count: int, **options: Any) -> None:
    """Measure the hooks of a model, and print what they cost.

    Args:
        place: Where.
        title: What the line is called.
        related: Makes the relations of so many applications.
        count: Of them.
        options: Of the charm.
    """
    model = "bench-" + title.split(",", maxsplit=1)[0].replace(" ", "-")
    for obj in (namespace_of(model), *ingress_world.service(model, "oidc", 8080)):
        place.api.create(obj)
    charm_runs.deploy(place.api, model)
    # The workload's own, which the charm looks for until it is there.
    kept = {"name": "istio-integrator-convergence", "namespace": model}
    place.api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": kept})
    options |= {"hosts": gateway_client.HOST}
    if "routing" not in options:
        options["gateway-service"] = "istio-ingress/gateway"
    relations, more = related(count, model), related(count + 1, model)
    try:
        lines = [
            ("from nothing", place.hook("config_changed", model, relations, **options)),
            ("as it should be", place.hook("update_status", model, relations, **options)),
            ("a route more", place.hook("update_status", model, more, **options)),
            ("as it should be", place.hook("update_status", model, more, **options)),
        ]
        own = manifests.Manifests(place.api, model=model, application="istio-integrator")
        kinds = collections.Counter(one["kind"] for one in own.owned())
    finally:
        charm_runs.run("remove", model, units=0, **options)
        charm_runs.delete(place.api, model)
        place.api.delete(namespace_of(model))
    shown = ", ".join(f"{kinds[kind]} {kind}" for kind in KINDS if kinds[kind])
    print(f"{title}: {kinds.total()} objects" + (f", of these {shown}" if shown else ""))
    for name, (counts, taken) in lines:
        asked = "".join(f"{counts.get(kind, 0):5} {kind}" for kind in (READS, TRIES, WRITES))
        print(f"  {name:16}{asked} {taken:6.2f} s")


def main() -> None:
    """Print what a hook costs with the routes of each generation."""
    parser = command_line.parser(
        "bench/bench_ingress.py", __doc__, "python bench/bench_ingress.py --routes 20"
    )
    parser.add_argument("--routes", type=int, default=20, help="applications that want one")
    count = parser.parse_args().routes
    with (
        world.with_gateway("bench-ingress") as (_, client),
        tempfile.TemporaryDirectory(prefix="bench-ingress-") as folder,
    ):
        api = cluster.Cluster(client)
        place = World(api, Requests(), pathlib.Path(folder))
        client._client._client.event_hooks["request"].append(place.requests.note)  # noqa: SLF001
        cluster.connect = lambda: api
        measure(place, "no relation", lambda *_: [], 0)
        measure(place, f"older, {count} of ingress", older, count)
        measure(place, f"newer, {count} of istio-ingress-route", newer, count)
        routing = {"routing": "gateway-api"}
        measure(place, f"routing gateway-api, {count}", newer, count, **routing)


if __name__ == "__main__":
    main()

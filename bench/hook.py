"""What a hook costs: CPU time, memory and requests, beside a charm that does nothing.

Each hook is a process, as Juju starts it, with stand-ins for Juju's hook tools (a few lines of sh
that print files); the API server and istiod are real, the workload's container is not there. CPU
time is the hook's own, without that of the tools. In turns with it run a charm of ops alone and,
for a before and after of one and the same minute, the charm of another checkout (`--beside`).

`--large 250` first has a user create so many pods of 1.1 MB; a hook is to take 200 MB at most.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from bench import ROOT, world
from istio_integrator.kube import cluster
from testbed import command_line
from tests import hook_process
from tests.functional import charm_runs, ingress_world
from tests.kubernetes_objects import namespace_of

ALONE = "ops alone"
NOTHING = """
import ops


class Nothing(ops.CharmBase):
    def __init__(self, framework):
        super().__init__(framework)
        for event in (self.on.config_changed, self.on.update_status):
            framework.observe(event, self._do_nothing)

    def _do_nothing(self, _):
        pass


ops.main(Nothing)
"""


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one hook took: seconds, MB at most, and how often it asked what."""

    cpu: float
    memory: float
    requests: collections.Counter[str]


class Unit(hook_process.Unit):
    """A unit whose hooks are counted; without a checkout, of a charm of ops alone."""

    def __init__(
        self, folder: pathlib.Path, model: str, checkout: pathlib.Path | None, kubeconfig: str
    ) -> None:
        if not checkout:
            checkout = folder / "nothing"
            (checkout / "src").mkdir(parents=True)
            (checkout / "src" / "charm.py").write_text(NOTHING)
            (checkout / "metadata.yaml").write_text("name: nothing\n")
        counted = str(pathlib.Path(__file__).with_name("counted.py"))
        command = (sys.executable, counted, str(checkout / "src" / "charm.py"))
        super().__init__(folder, model, checkout, command, BENCH_KUBECONFIG=kubeconfig)

    def cost(self, event: str) -> Cost:
        """Run a hook, and return what it cost."""
        self.hook(event)
        told = json.loads((self.world / "told").read_text())
        return Cost(told["cpu"], told["memory"], collections.Counter(told["requests"]))


def compare(units: dict[str, Unit], rounds: int) -> dict[str, list[Cost]]:
    """Run hooks that find everything as it should be, in turns."""
    for unit in units.values():
        for event in ("config-changed", "update-status", "update-status"):
            unit.cost(event)
    costs: dict[str, list[Cost]] = {name: [] for name in units}
    for _ in range(rounds):
        for name, unit in units.items():
            costs[name].append(unit.cost("update-status"))
    return costs


def large(name: str) -> dict[str, Any]:
    """A pod of 1.1 MB, which no node takes."""
    environment = [{"name": "TEXT", "value": "x" * 1_100_000}]
    container = {"name": "main", "image": "none.invalid/none", "env": environment}
    metadata = {"name": name, "namespace": "large"}
    spec = {"containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def requests(count: int) -> list[Any]:
    """Return the relations of so many applications that ask for a path each."""
    asked = [
        ingress_world.request(number, f"app-{number}", f"/app-{number}", None)
        for number in range(1, count + 1)
    ]
    return [*asked, dataclasses.replace(ingress_world.COMPLETE, id=900)] if count else []


@contextlib.contextmanager
def served(pods: int, routes: int) -> Iterator[Callable[[str, pathlib.Path | None], Unit]]:
    """Serve a cluster with so many pods of 1.1 MB; yield a function that makes units.

    The function takes the model's name and the checkout. So many applications ask for a route.
    """
    with (
        world.with_gateway("bench-hook") as (kubeconfig, client),
        tempfile.TemporaryDirectory(prefix="bench-hook-") as folder,
    ):
        api: Any = cluster.Cluster(client)
        profile = {"app.kubernetes.io/part-of": "kubeflow-profile"}
        api.create(namespace_of("large", **profile))
        account = {"metadata": {"name": "default", "namespace": "large"}}
        # kube-controller-manager creates it, too.
        api.apply({"apiVersion": "v1", "kind": "ServiceAccount", **account})
        for number in range(pods):
            api.create(large(f"large-{number}"))

        def make(model: str, checkout: pathlib.Path | None) -> Unit:
            for obj in (namespace_of(model), *ingress_world.service(model, "oidc", 8080)):
                api.create(obj)
            charm_runs.deploy(api, model)
            unit = Unit(pathlib.Path(folder, model), model, checkout, str(kubeconfig))
            # Each model has a host of its own.
            options = {"hosts": f"{model}.example.com", "gateway-service": "istio-ingress/gateway"}
            unit.says(requests(routes), **options)
            return unit

        yield make


def main() -> None:
    """Print what hooks cost."""
    parser = command_line.parser("bench.hook", __doc__, "python -m bench.hook --routes 20")
    parser.add_argument("--routes", type=int, default=20, help="applications that want one")
    parser.add_argument("--rounds", type=int, default=5, help="hooks of each kind, in turns")
    parser.add_argument("--large", type=int, default=0, help="pods of 1.1 MB of a user")
    parser.add_argument(
        "--beside", type=pathlib.Path, metavar="CHECKOUT", help="whose charm runs in turns, too"
    )
    parser.add_argument("--show", action="store_true", help="list the requests of a hook")
    given = parser.parse_args()
    checkouts = {"this charm": ROOT} | ({"beside": given.beside} if given.beside else {})
    with served(given.large, given.routes) as make:
        units = {
            name: make(f"bench-{name}".replace(" ", "-"), checkout)
            for name, checkout in {ALONE: None, **checkouts}.items()
        }
        costs = compare(units, given.rounds)
    for name, taken in costs.items():
        # Other work of the machine only adds to the cheapest one.
        cpu, nothing = (min(each.cpu for each in those) for those in (taken, costs[ALONE]))
        memory, asked = max(each.memory for each in taken), taken[-1].requests
        print(
            f"{name:12}{cpu:6.2f} s CPU ({cpu / nothing:4.1f} x){memory:5.0f} MB"
            f"{asked.total():5} requests"
        )
        for request, times in asked.most_common() if given.show else ():
            print(f"    {times:3} {request}")


if __name__ == "__main__":
    main()

"""What a hook costs: CPU time, memory and requests, beside a charm that does nothing.

Each hook is a process, as Juju starts it, with stand-ins for Juju's hook tools (a few lines of sh
that print files); the API server and istiod are real, the workload's container is not there. CPU
time is the hook's own, without that of the tools. In turns with it run a charm of ops alone and,
for a before and after of one and the same minute, the charm of another checkout (`--beside`).

`--bundle 40` adds what so many applications cost that are integrated before the unit has started:
install, relation-created of each, leader-elected, config-changed, start, then relation-joined and
relation-changed of each; and what it costs to remove all these relations and add them again.

`--large 250` first has a user create so many pods of 1.1 MB; a hook is to take 200 MB at most.

`--profile FOLDER` writes there where the time of one more hook of each kind goes, which
`docs/pictures.py` draws.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import pathlib
import resource
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from typing import Any

APPLICATION = "istio-integrator"
TOOLS = """#!/bin/sh
tool=$(basename "$0"); last=; relation=
while [ $# -gt 0 ]; do
    case "$1" in -r) relation=$2; shift;; --app) tool="$tool-app";; --*) ;; *) last=$1;; esac
    shift
done
case "$tool" in
    is-leader) echo true;;
    config-get|goal-state) cat "$WORLD/$tool";;
    relation-ids) cat "$WORLD/ids-$last" 2>/dev/null || echo '[]';;
    relation-list) echo "[]";;
    relation-list-app) cat "$WORLD/$relation-name";;
    relation-get-app) [ "$last" = istio-integrator ] && echo '{}' || cat "$WORLD/$relation";;
    relation-get|state-get|status-get) echo '{}';;
    relation-set) cat >/dev/null;;
    juju-log) echo "$last" >>"$WORLD/log";;
esac
"""
NAMES = (
    "is-leader config-get goal-state relation-ids relation-list relation-get relation-set "
    "state-get state-set state-delete juju-log status-set status-get application-version-set"
)
SINCE = "2026-01-01T00:00:00Z"
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


def child(program: str) -> None:
    """Be a hook: run a charm's file, and write down what it cost."""
    requests: collections.Counter[str] = collections.Counter()

    def noted(request: Any) -> None:
        requests[f"{request.method} {request.url.path}"] += 1

    def connect() -> Any:
        import lightkube  # noqa: PLC0415 - a part of what is measured

        from istio_integrator.kube import cluster  # noqa: PLC0415

        config = lightkube.KubeConfig.from_file(os.environ["BENCH_KUBECONFIG"]).get()
        api = cluster.Cluster(lightkube.Client(config=config))
        api.client._client._client.event_hooks["request"].append(noted)  # noqa: SLF001
        return api

    if program.endswith("src/charm.py"):
        from istio_integrator.kube import cluster  # noqa: PLC0415

        cluster.connect = connect
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        used = resource.getrusage(resource.RUSAGE_SELF)
        # `ru_maxrss` has what the parent had when it forked.
        status = pathlib.Path("/proc/self/status").read_text()
        memory = int(status.partition("VmHWM:")[2].split()[0]) / 1024
        cpu = used.ru_utime + used.ru_stime
        told = {"cpu": cpu, "memory": memory, "requests": requests}
        pathlib.Path(os.environ["WORLD"], "told").write_text(json.dumps(told))


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one hook took."""

    cpu: float
    """Seconds."""
    wall: float
    memory: float
    """MB at most."""
    requests: collections.Counter[str]


class Unit:
    """A charm in a folder of its own, as a unit has it.

    Args:
        folder: Where to put everything.
        checkout: Whose charm; None for one of ops alone.
        kubeconfig: Of the API server.
        model: Its namespace.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        checkout: pathlib.Path | None,
        kubeconfig: pathlib.Path,
        model: str,
    ) -> None:
        self._charm = folder / "charm"
        self._world = folder / "world"
        tools = folder / "tools"
        for each in (self._charm, self._world, tools):
            each.mkdir(parents=True)
        for name in NAMES.split():
            tool = tools / name
            tool.write_text(TOOLS)
            tool.chmod(0o755)
        if checkout is None:
            (self._charm / "src").mkdir()
            (self._charm / "src" / "nothing.py").write_text(NOTHING)
            (self._charm / "metadata.yaml").write_text("name: nothing\n")
        else:
            for name in ("src", "lib", "templates", "rbac"):
                shutil.copytree(checkout / name, self._charm / name)
            for name in ("metadata.yaml", "config.yaml", "actions.yaml"):
                shutil.copy(checkout / name, self._charm / name)
        self._program = self._charm / "src" / ("charm.py" if checkout else "nothing.py")
        self._environment = {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": f"{self._charm / 'src'}:{self._charm / 'lib'}",
            "JUJU_CHARM_DIR": str(self._charm),
            "JUJU_MODEL_NAME": model,
            "JUJU_MODEL_UUID": "b2f5b6e0-0000-4000-8000-000000000000",
            "JUJU_UNIT_NAME": f"{APPLICATION}/0",
            "JUJU_VERSION": "3.6.9",
            "BENCH_KUBECONFIG": str(kubeconfig),
            "WORLD": str(self._world),
        }

    def says(self, bags: Iterable[Any] = ()) -> None:
        """Have Juju say what each related application wrote."""
        # Each model has a host of its own.
        host = f"{self._environment['JUJU_MODEL_NAME']}.example.com"
        options = {"hosts": host, "gateway-service": "istio-ingress/gateway"}
        units = {
            "units": {f"{APPLICATION}/0": {"status": "active", "since": SINCE}},
            "relations": {},
        }
        written: dict[str, Any] = {"config-get": options, "goal-state": units}
        for bag in bags:
            relation = f"{bag.endpoint}:{bag.id}"
            written[relation] = bag.remote_app_data
            written[f"{relation}-name"] = bag.remote_app_name
            written.setdefault(f"ids-{bag.endpoint}", []).append(relation)
        for name, value in written.items():
            (self._world / name).write_text(json.dumps(value))

    def hook(self, event: str, bag: Any = None, stacks: pathlib.Path | None = None) -> Cost:
        """Run a hook, and say what it cost; with a file for stacks, profile it."""
        more = {"JUJU_DISPATCH_PATH": f"hooks/{event}", "JUJU_HOOK_NAME": event}
        if bag is not None:
            more |= {"JUJU_RELATION": bag.endpoint, "JUJU_REMOTE_APP": bag.remote_app_name}
            more["JUJU_RELATION_ID"] = f"{bag.endpoint}:{bag.id}"
            more |= {"JUJU_DISPATCH_PATH": f"hooks/{bag.endpoint}-{event}"}
            more["JUJU_HOOK_NAME"] = f"{bag.endpoint}-{event}"
        argv = [sys.executable, __file__, "--child", str(self._program)]
        if stacks:
            import process  # noqa: PLC0415 - nothing of this is for a hook

            argv = [*process.profiled(stacks), *argv]
        began = time.monotonic()
        done = subprocess.run(
            argv, env=self._environment | more, check=False, capture_output=True, text=True
        )
        wall = time.monotonic() - began
        if done.returncode:
            log = (self._world / "log").read_text()
            raise SystemExit(f"{event} failed:\n{done.stdout}{done.stderr}{log}")
        told = json.loads((self._world / "told").read_text())
        requests = collections.Counter(told["requests"])
        return Cost(told["cpu"], wall, told["memory"], requests)


def shown(title: str, costs: list[Cost], beside: float) -> str:
    """Write what the cheapest hook cost, as others' work only adds, beside one of ops alone."""
    cpu, wall = min(each.cpu for each in costs), min(each.wall for each in costs)
    asked, memory = costs[-1].requests.total(), max(each.memory for each in costs)
    return (
        f"  {title:28}{cpu:6.2f} s CPU ({cpu / beside:4.1f} x){wall:7.2f} s{memory:5.0f} MB"
        f"{asked:5} requests"
    )


def measure(units: dict[str, Unit], title: str, given: argparse.Namespace) -> None:
    """Print what hooks cost that find everything as it should be, in turns."""
    for unit in units.values():
        for event in ("config-changed", "update-status", "update-status"):
            unit.hook(event)
    costs: dict[str, list[Cost]] = {name: [] for name in units}
    for _ in range(given.rounds):
        for name, unit in units.items():
            costs[name].append(unit.hook("update-status"))
    nothing = min(each.cpu for each in costs["ops alone"])
    print(title)
    for name, taken in costs.items():
        print(shown(name, taken, nothing), flush=True)
        for request, count in taken[-1].requests.most_common() if given.show else ():
            print(f"    {count:3} {request}")
    for name, unit in units.items() if given.profile else ():
        stacks = given.profile / f"{name} {title}.txt".replace(" ", "-")
        unit.hook("update-status", stacks=stacks.absolute())
        print(f"  {stacks}")


def bundle(unit: Unit, bags: list[Any], title: str) -> None:
    """Print what applications cost that are integrated before the unit starts, and again later."""
    unit.says(bags)
    costs = [unit.hook("install")]
    costs += [unit.hook("relation-created", bag) for bag in bags]
    costs += [unit.hook(each) for each in ("leader-elected", "config-changed", "start")]
    costs += [
        unit.hook(each, bag) for bag in bags for each in ("relation-joined", "relation-changed")
    ]
    print(summed(title, costs), flush=True)
    again = ("departed", "broken", "created", "joined", "changed")
    costs = [unit.hook(f"relation-{each}", bag) for bag in bags for each in again]
    print(summed(f"{title}, added again", costs), flush=True)


def summed(title: str, costs: list[Cost]) -> str:
    """Write what several hooks cost together."""
    asked = sum(each.requests.total() for each in costs)
    cpu, wall = sum(each.cpu for each in costs), sum(each.wall for each in costs)
    return f"  {title:28}{cpu:6.1f} s CPU {wall:7.1f} s {asked:6} requests"


def large(name: str) -> dict[str, Any]:
    """A pod of 1.1 MB, which no node takes."""
    environment = [{"name": "TEXT", "value": "x" * 1_100_000}]
    container = {"name": "main", "image": "none.invalid/none", "env": environment}
    metadata = {"name": name, "namespace": "large"}
    spec = {"containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def main() -> None:
    """Print what hooks cost."""
    import bench_ingress  # noqa: PLC0415 - nothing of this is for a hook
    import world  # noqa: PLC0415

    from istio_integrator.kube import cluster  # noqa: PLC0415
    from testbed import command_line  # noqa: PLC0415
    from tests.functional import charm_runs, ingress_world  # noqa: PLC0415
    from tests.kubernetes_objects import namespace_of  # noqa: PLC0415

    parser = command_line.parser(
        "bench/bench_hook.py", __doc__, "python bench/bench_hook.py --routes 20"
    )
    parser.add_argument("--routes", type=int, default=20, help="applications that want one")
    parser.add_argument("--rounds", type=int, default=5, help="hooks of each kind, in turns")
    parser.add_argument("--bundle", type=int, default=0, help="applications integrated at once")
    parser.add_argument("--large", type=int, default=0, help="pods of 1.1 MB of a user")
    parser.add_argument(
        "--beside", type=pathlib.Path, metavar="CHECKOUT", help="whose charm runs in turns, too"
    )
    parser.add_argument("--profile", type=pathlib.Path, metavar="FOLDER", help="for stacks")
    parser.add_argument("--show", action="store_true", help="list the requests of a hook")
    given = parser.parse_args()
    checkouts = {"this charm": world.ROOT} | ({"beside": given.beside} if given.beside else {})
    with (
        world.with_gateway("bench-hook") as (kubeconfig, client),
        tempfile.TemporaryDirectory(prefix="bench-hook-") as folder,
    ):
        api = cluster.Cluster(client)
        profile = {"app.kubernetes.io/part-of": "kubeflow-profile"}
        api.create(namespace_of("large", **profile))
        account = {"metadata": {"name": "default", "namespace": "large"}}
        api.create({"apiVersion": "v1", "kind": "ServiceAccount", **account})
        for number in range(given.large):
            api.create(large(f"large-{number}"))

        def made(name: str, checkout: pathlib.Path | None, title: str) -> Unit:
            model = f"bench-{name}-{title}".replace(" ", "-")
            for obj in (namespace_of(model), *ingress_world.service(model, "oidc", 8080)):
                api.create(obj)
            charm_runs.deploy(api, model)
            return Unit(pathlib.Path(folder, model), checkout, kubeconfig, model)

        for title, count in (("no relation", 0), (f"{given.routes} routes", given.routes)):
            units = {
                name: made(name, checkout, title)
                for name, checkout in {"ops alone": None, **checkouts}.items()
            }
            for unit in units.values():
                unit.says(bench_ingress.older(count, "") if count else [])
            measure(units, title, given)
        if given.bundle:
            print(f"{given.bundle} applications integrated at once")
            for name, checkout in checkouts.items():
                unit = made(name, checkout, "bundle")
                bundle(unit, bench_ingress.older(given.bundle, ""), name)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2])
    else:
        main()

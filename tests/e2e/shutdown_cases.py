"""Workloads that run to completion, each with what must become of it."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from testbed.kit import workloads
from tests.e2e import kubeflow_kinds
from tests.e2e.shutdown_world import DB_MANAGER, NATIVE, PEER, PREFIX, Object, World, job

Make = Callable[[World, str], list[Object]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One workload and its expected end."""

    name: str
    make: Make
    """From the world and the name of the case."""
    want: str = "Complete"
    """A condition of a job or the phase of a bare pod."""
    tries: Mapping[str, int] | None = None
    """What the peer must have counted, by suffix of the name; None: nothing to count."""
    pods: int = 1
    """How many pods it comes to."""
    stopped: int | None = None
    """How many of them have their proxy stopped by us; None: each."""
    namespace: str = "model"
    endures: bool = False
    """Its proxy runs on: the state is looked at when all others have ended."""
    holding: str = ""
    """The container that, in the words of the Event, still holds the pod."""
    main: str = "main"
    """The container that ends where the pod endures."""
    sidecar: str = "classic"
    """Or native."""

    def has(self, item: Object) -> bool:
        """Whether a pod or a job is of this case, by its name."""
        name = item["metadata"]["name"]
        return name == self.name or name.startswith(f"{self.name}-")


CASES: list[Case] = []


def case(name: str, make: Make, **expected: Any) -> None:
    """Add a case."""
    CASES.append(Case(name=name, make=make, **expected))


def to(**expected: Any) -> Callable[[Make], Make]:
    """Add a case that is made by the function below, and has its name."""

    def add(make: Make) -> Make:
        case(make.__name__.replace("_", "-"), make, **expected)
        return make

    return add


def ends(**annotations: str) -> Make:
    """A Job whose payload succeeds."""

    def make(world: World, name: str) -> list[Object]:
        return job(world, name, world.template(world.tries(name, "0"), **annotations))

    return make


# Those whose tries take longest come first.
@to(tries={f"-{number}": 3 for number in range(20)}, pods=20)
def twenty(world: World, name: str) -> list[Object]:
    made = []
    for each in (f"{name}-{number}" for number in range(20)):
        template = world.template(world.tries(each, "1,1,0"), policy="OnFailure")
        made += job(world, each, template, backoffLimit=6)
    return made


case("job-never", ends(), tries={"": 1})


@to(want="Succeeded", tries={"": 1})
def bare(world: World, name: str) -> list[Object]:
    return [workloads.pod(name, world.model, world.template(world.tries(name, "0")))]


def training(kind: str, role: str, policy: str, codes: str, *, workers: int = 0) -> Make:
    """One replica that ends with these codes; with workers they do, and the role outlasts them."""
    container = {"TFJob": "tensorflow", "PyTorchJob": "pytorch"}[kind]

    def replica(world: World, main: Object, count: int = 1) -> Object:
        template = world.template(main)
        del template["spec"]["restartPolicy"]
        return {"replicas": count, "restartPolicy": policy, "template": template}

    def make(world: World, name: str) -> list[Object]:
        port = {"containerPort": 2222, "name": f"{kind.lower()}-port"}
        own = {"container": container, "ports": [port]}
        replicas = {role: replica(world, world.tries(name, codes, **own))}
        if workers:
            replicas = {
                role: replica(world, world.tries(name, "0", 40, **own)),
                "Worker": replica(world, world.tries(f"{name}-worker", codes, **own), workers),
            }
        field = f"{kind.removesuffix('Job').lower()}ReplicaSpecs"
        spec = {"runPolicy": {"cleanPodPolicy": "None"}, field: replicas}
        return [workloads.manifest("kubeflow.org/v1", kind, name, world.model, **spec)]

    return make


case(
    "tf-on-failure",
    training("TFJob", "Worker", "OnFailure", "1,0"),
    want="Succeeded",
    tries={"": 2},
)
# From 128 on the operator deletes the pod and makes one of the same name.
case(
    "tf-exit-code",
    training("TFJob", "Worker", "ExitCode", "130,0"),
    want="Succeeded",
    tries={"": 2},
    pods=2,
)
case(
    "pytorch-workers-on-failure",
    training("PyTorchJob", "Master", "OnFailure", "1,0", workers=1),
    want="Succeeded",
    tries={"": 1, "-worker": 2},
    pods=2,
)


@to(want="Completed", tries={"": 4, "-after": 1}, pods=5)
def jobset(world: World, name: str) -> list[Object]:
    """Two Jobs of two pods each, and one that begins when they are Complete."""

    def template(part: str) -> Object:
        return world.template(world.tries(f"{name}{part}", "0", 1))

    both = {"completionMode": "Indexed", "completions": 2, "parallelism": 2}
    nodes = kubeflow_kinds.replicated("node", template(""), replicas=2, **both)
    after = kubeflow_kinds.replicated("after", template("-after"))
    after["dependsOn"] = [{"name": "node", "status": "Complete"}]
    return kubeflow_kinds.job_set(name, world.model, nodes, after)


@to(tries={"": 2, "-data": 1}, pods=3)
def trainjob(world: World, name: str) -> list[Object]:
    """Nodes that ask the peer, after an initializer that has done so."""
    first, step = "dataset-initializer", world.tries(f"{name}-data", "0", container="data")
    step["name"] = first
    labels = {kubeflow_kinds.ANCESTOR: first}
    before = kubeflow_kinds.replicated(first, world.template(step), labels=labels)
    main = workloads.container("node", "from-the-train-job", ())
    labels = {kubeflow_kinds.ANCESTOR: "trainer"}
    node = kubeflow_kinds.replicated("node", world.template(main), labels=labels)
    node["dependsOn"] = [{"name": first, "status": "Complete"}]
    command = world.tries(name, "0", 1)["command"]
    trainer = {"image": world.image, "command": command, "numNodes": 2}
    runtime = {"replicatedJobs": [before, node]}
    return kubeflow_kinds.train_job(name, world.model, runtime, trainer)


def trial(*, wait_for_all: bool = False, annotations: Mapping[str, str] | None = None) -> Make:
    def make(world: World, name: str) -> list[Object]:
        # Whoever trains for less time than its collector takes to start fails with Katib.
        training = world.tries(name, "0", 15, container="training-container")
        template = world.template(training, **(annotations or {}))
        peer = f"{PEER}.{world.model}:{DB_MANAGER}"
        collected = kubeflow_kinds.with_collector(template, name, peer, wait_for_all=wait_for_all)
        return job(world, name, collected)

    return make


TRAINING = {f"{PREFIX}wait-for-containers": "training-container"}
PAST = {"traffic.sidecar.istio.io/excludeOutboundPorts": str(DB_MANAGER)}
case("katib-job", trial(), tries={"": 1, "-metrics": 1})
# With Katib's default the collector waits for the proxy, too, so nobody's turn comes.
case(
    "katib-waits-for-all",
    trial(wait_for_all=True),
    want="Running",
    tries={"": 1, "-metrics": 0},
    stopped=0,
    endures=True,
    main="training-container",
)
# The report of a collector that outlives its proxy is lost, and the trial with it.
case(
    "katib-not-waited-for",
    trial(wait_for_all=True, annotations=TRAINING),
    want="Failed",
    tries={"": 1, "-metrics": 0},
    holding=kubeflow_kinds.COLLECTOR,
)
# The way out without a change to Katib: the report goes past the proxy.
case(
    "katib-past-the-proxy",
    trial(wait_for_all=True, annotations={**TRAINING, **PAST}),
    tries={"": 1, "-metrics": 1},
    holding=kubeflow_kinds.COLLECTOR,
)


def step(world: World, name: str, **annotations: str) -> Object:
    """A step that fetches something, and stores something."""
    template = world.template(world.tries(name, "0"), **annotations)
    return kubeflow_kinds.storing(kubeflow_kinds.step(template, name), f"{PEER}.{world.model}")


STORED = {"": 1, "-inputs": 1, "-outputs": 1}


@to(want="Succeeded", tries=STORED)
def argo_step(world: World, name: str) -> list[Object]:
    return kubeflow_kinds.workflow(name, world.model, name, [step(world, name)])


@to(want="Succeeded", tries={"-first": 1, "-retried": 2, "-other": 1, "-last": 1}, pods=5)
def argo_graph(world: World, name: str) -> list[Object]:
    """A step; after it another, and one tried twice that needs the first one's output; a last."""

    def step(part: str, codes: str = "0") -> Object:
        template = world.template(world.tries(f"{name}-{part}", codes, 1))
        return kubeflow_kinds.step(template, part)

    def task(part: str, *after: str, **more: Object) -> Object:
        return {"name": part, "template": part, "dependencies": list(after), **more}

    code = "code"
    first, retried = step("first"), step("retried", f"1,{{{{inputs.parameters.{code}}}}}")
    first["container"]["command"] = [
        *("sh", "-c", 'cd /tmp && "$@" && echo 0 > code', "-"),
        *first["container"]["command"],
    ]
    first["outputs"] = {"parameters": [{"name": code, "valueFrom": {"path": "/tmp/code"}}]}
    retried |= {"inputs": {"parameters": [{"name": code}]}, "retryStrategy": {"limit": "2"}}
    said = f"{{{{tasks.first.outputs.parameters.{code}}}}}"
    given = {"arguments": {"parameters": [{"name": code, "value": said}]}}
    tasks = [
        task("first"),
        task("retried", "first", **given),
        task("other", "first"),
        task("last", "retried", "other"),
    ]
    steps = [first, retried, step("other"), step("last")]
    whole = {"name": name, "dag": {"tasks": tasks}}
    return kubeflow_kinds.workflow(name, world.model, name, [whole, *steps])


@to(want="Succeeded", tries=STORED)
def pipelines_step_in_the_mesh(world: World, name: str) -> list[Object]:
    """A step of Kubeflow Pipelines, which has a sidecar only where its pod asks for one."""
    wanted = {"sidecar.istio.io/inject": "true"}
    steps = [kubeflow_kinds.pipelines(step(world, name, **wanted), world.image, name)]
    return kubeflow_kinds.workflow(name, world.model, name, steps)


case("native", ends(**NATIVE), tries={"": 1}, stopped=0, sidecar="native")


@to(namespace="by_revision")
def by_revision(world: World, name: str) -> list[Object]:
    main = workloads.container("main", world.image, workloads.payload("sleep.py", 1))
    return [workloads.job(name, world.by_revision, world.template(main))]


case("status-port", ends(**{"status.sidecar.istio.io/port": "16020"}), tries={"": 1})


@to(want="Succeeded", tries={"": 2})
def restart_rule(world: World, name: str) -> list[Object]:
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]
    main = world.tries(name, "42,0", restartPolicy="Never", restartPolicyRules=rules)
    return [workloads.pod(name, world.model, world.template(main))]

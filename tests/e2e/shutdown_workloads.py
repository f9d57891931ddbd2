"""Workloads that run to completion, each made for a world and under the name of its case."""

from collections.abc import Callable, Mapping

from testbed.kit import workloads
from tests.e2e import kubeflow_kinds
from tests.e2e.shutdown_world import DB_MANAGER, NATIVE, PEER, Object, World, job

Make = Callable[[World, str], list[Object]]


def on_failure(world: World, name: str) -> list[Object]:
    template = world.template(world.tries(name, "1,1,0"), policy="OnFailure")
    return job(world, name, template, backoffLimit=6)


def never(world: World, name: str) -> list[Object]:
    return job(world, name, world.template(world.tries(name, "0")))


def cron(world: World, name: str) -> list[Object]:
    made = workloads.job(name, world.model, world.template(world.tries(name, "0")))
    return [
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": made["metadata"],
            # On the 29th of February: the test says that one run is due.
            "spec": {"schedule": "0 0 29 2 *", "jobTemplate": {"spec": made["spec"]}},
        }
    ]


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
        return [
            {
                "apiVersion": "kubeflow.org/v1",
                "kind": kind,
                "metadata": {"name": name, "namespace": world.model},
                "spec": {"runPolicy": {"cleanPodPolicy": "None"}, field: replicas},
            }
        ]

    return make


def trial(*, wait_for_all: bool = False, annotations: Mapping[str, str] | None = None) -> Make:
    def make(world: World, name: str) -> list[Object]:
        # Whoever trains for less time than its collector takes to start fails with Katib.
        training = world.tries(name, "0", 15, container="training-container")
        template = world.template(training, **(annotations or {}))
        peer = f"{PEER}.{world.model}:{DB_MANAGER}"
        collected = kubeflow_kinds.with_collector(template, name, peer, wait_for_all=wait_for_all)
        (made,) = job(world, name, collected)
        return kubeflow_kinds.trial(made)

    return make


def step(world: World, name: str) -> list[Object]:
    template = world.template(world.tries(name, "0"))
    one = kubeflow_kinds.step(template, name)
    peer = f"{PEER}.{world.model}"
    steps = [kubeflow_kinds.storing(one, peer)]
    return kubeflow_kinds.workflow(name, world.model, name, steps)


def pipelines(world: World, name: str) -> list[Object]:
    """A step of Kubeflow Pipelines, which has a sidecar only where its pod asks for one."""
    wanted = {"sidecar.istio.io/inject": "true"}
    template = world.template(world.tries(name, "0"), **wanted)
    one = kubeflow_kinds.storing(kubeflow_kinds.step(template, name), f"{PEER}.{world.model}")
    steps = [kubeflow_kinds.pipelines(one, world.image, name)]
    return kubeflow_kinds.workflow(name, world.model, name, steps)


def graph(world: World, name: str) -> list[Object]:
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


def job_set(world: World, name: str) -> list[Object]:
    """Two Jobs of two pods each, and one that begins when they are Complete."""

    def template(part: str) -> Object:
        return world.template(world.tries(f"{name}{part}", "0", 1))

    both = {"completionMode": "Indexed", "completions": 2, "parallelism": 2}
    nodes = kubeflow_kinds.replicated("node", template(""), replicas=2, **both)
    after = kubeflow_kinds.replicated("after", template("-after"))
    after["dependsOn"] = [{"name": "node", "status": "Complete"}]
    return kubeflow_kinds.job_set(name, world.model, nodes, after)


def train_job(world: World, name: str) -> list[Object]:
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


def native(world: World, name: str) -> list[Object]:
    return job(world, name, world.template(world.tries(name, "0"), **NATIVE))


def by_revision(world: World, name: str) -> list[Object]:
    main = workloads.container("main", world.image, workloads.payload("sleep.py", 1))
    return [workloads.job(name, world.by_revision, world.template(main))]


def status_port(world: World, name: str) -> list[Object]:
    template = world.template(world.tries(name, "0"), **{"status.sidecar.istio.io/port": "16020"})
    return job(world, name, template)


def restart_rule(world: World, name: str) -> list[Object]:
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]
    main = world.tries(name, "42,0", restartPolicy="Never", restartPolicyRules=rules)
    return [workloads.pod(name, world.model, world.template(main))]


def twenty(world: World, name: str) -> list[Object]:
    return [made for number in range(20) for made in on_failure(world, f"{name}-{number}")]

"""Workloads that run to completion, each with what must become of it.

The payload is `tries.py`: in every try it calls a counting peer through the mesh, at its start and
just before its end, and ends with 99 if the peer can't be reached. So a proxy that was stopped too
early shows as a wrong count or as an exit code of 99.
"""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from demo import kubernetes, observer, workloads
from tests.e2e import kubeflow_kinds

Object = dict[str, Any]

PREFIX = "istio-integrator.charmhub.io/"
PEER = "tries"
DB_MANAGER = 6789
"""The peer's second port, which is that of Katib's DB manager."""
NATIVE = {"sidecar.istio.io/nativeSidecar": "true"}
CPU = {"sidecar.istio.io/proxyCPU": "10m"}
FOREVER = ["python3", "/opt/payload/sleep.py", "100000"]


@dataclasses.dataclass(frozen=True)
class World:
    """Where the cases are put."""

    model: str
    by_revision: str
    """A namespace that asks for a sidecar by revision and is labelled to be served."""
    unserved: str
    """A namespace of the mesh that nobody asked us to serve."""
    image: str
    classic: Mapping[str, str]
    """Annotations that make the sidecar a classic one here."""

    def template(self, *containers: Object, policy: str = "Never", **annotations: str) -> Object:
        """A pod template with a classic sidecar."""
        words = {**CPU, **self.classic, **annotations}
        return workloads.template(containers, restart_policy=policy, annotations=words)

    def tries(self, name: str, codes: str, seconds: float = 0.3, /, **fields: Any) -> Object:
        """A container that ends with one code after the other."""
        peer = f"http://{PEER}.{self.model}"
        command = workloads.payload("tries.py", "run", peer, name, codes, seconds)
        return workloads.container(fields.pop("container", "main"), self.image, command, **fields)

    def forever(self, name: str) -> Object:
        """A container that never ends."""
        return workloads.container(name, self.image, FOREVER)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One workload and its expected end."""

    name: str
    make: Callable[[World, str], list[Object]]
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
    """It does not end: the state is looked at when all others have."""
    proxy: str = "terminated"
    """The proxy's last state where it endures."""
    holding: str = ""
    """The container that, in the words of the Event, still holds the pod."""
    main: str = "main"
    """The container that ends where the pod endures."""
    sidecar: str = "classic"
    """Or native, or none."""


def job(world: World, name: str, template: Object, **spec: Any) -> list[Object]:
    """A Job that is not tried anew by another pod, unless said otherwise."""
    made = workloads.job(name, world.model, template)
    made["spec"] |= spec
    return [made]


def _on_failure(world: World, name: str) -> list[Object]:
    template = world.template(world.tries(name, "1,1,0"), policy="OnFailure")
    return job(world, name, template, backoffLimit=6)


def _never(world: World, name: str) -> list[Object]:
    return job(world, name, world.template(world.tries(name, "0")))


def _fails(world: World, name: str) -> list[Object]:
    return job(world, name, world.template(world.tries(name, "1")))


def _new_pod(world: World, name: str) -> list[Object]:
    return job(world, name, world.template(world.tries(name, "1,0")), backoffLimit=2)


def _indexed(world: World, name: str) -> list[Object]:
    template = world.template(world.tries(name, "0"))
    return job(world, name, template, completionMode="Indexed", completions=3, parallelism=3)


def _cron(world: World, name: str) -> list[Object]:
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


def _bare(world: World, name: str) -> list[Object]:
    return [workloads.pod(name, world.model, world.template(world.tries(name, "0")))]


def _bare_fails(world: World, name: str) -> list[Object]:
    return [workloads.pod(name, world.model, world.template(world.tries(name, "3")))]


def _training(
    kind: str, role: str, policy: str, codes: str, *, workers: int = 0, seconds: float = 0.3
) -> Callable[[World, str], list[Object]]:
    """One replica that ends with these codes; with workers they do, and the role outlasts them."""
    container = {"TFJob": "tensorflow", "PyTorchJob": "pytorch"}[kind]

    def replica(world: World, main: Object, count: int = 1) -> Object:
        template = world.template(main)
        del template["spec"]["restartPolicy"]
        return {"replicas": count, "restartPolicy": policy, "template": template}

    def make(world: World, name: str) -> list[Object]:
        port = {"containerPort": 2222, "name": f"{kind.lower()}-port"}
        own = {"container": container, "ports": [port]}
        replicas = {role: replica(world, world.tries(name, codes, seconds, **own))}
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


def _two(second: str) -> Callable[[World, str], list[Object]]:
    def make(world: World, name: str) -> list[Object]:
        later = world.tries(f"{name}-{second}", "0", 5, container=second)
        return job(world, name, world.template(world.tries(name, "0"), later))

    return make


def _collected(world: World, template: Object, name: str, wait_for_all: bool) -> Object:
    peer = f"{PEER}.{world.model}:{DB_MANAGER}"
    return kubeflow_kinds.with_collector(template, name, peer, wait_for_all=wait_for_all)


def _trial(
    *, wait_for_all: bool = False, annotations: Mapping[str, str] | None = None
) -> Callable[[World, str], list[Object]]:
    def make(world: World, name: str) -> list[Object]:
        # Whoever trains for less time than its collector takes to start fails with Katib.
        training = world.tries(name, "0", 15, container="training-container")
        template = world.template(training, **(annotations or {}))
        (made,) = job(world, name, _collected(world, template, name, wait_for_all))
        return kubeflow_kinds.trial(made)

    return make


def _trial_of_tf(world: World, name: str) -> list[Object]:
    (made,) = _training("TFJob", "Worker", "Never", "0", seconds=15)(world, name)
    replica = made["spec"]["tfReplicaSpecs"]["Worker"]
    replica["template"] = _collected(world, replica["template"], name, False)
    return kubeflow_kinds.trial(made)


def _step(codes: str) -> Callable[[World, str], list[Object]]:
    def make(world: World, name: str) -> list[Object]:
        template = world.template(world.tries(name, codes))
        step = kubeflow_kinds.step(template, name, f"{PEER}.{world.model}")
        return kubeflow_kinds.workflow(workloads.pod(name, world.model, step))

    return make


def _pipelines(annotations: Mapping[str, str]) -> Callable[[World, str], list[Object]]:
    def make(world: World, name: str) -> list[Object]:
        template = world.template(world.tries(name, "0"), **annotations)
        step = kubeflow_kinds.step(template, name, f"{PEER}.{world.model}")
        step = kubeflow_kinds.pipelines(step, name)
        return kubeflow_kinds.workflow(workloads.pod(name, world.model, step))

    return make


def _ignored(world: World, name: str) -> list[Object]:
    template = world.template(
        world.tries(name, "0"),
        world.forever("agent"),
        **{f"{PREFIX}ignore-containers": "agent"},
    )
    return [workloads.pod(name, world.model, template)]


def _waited_for(world: World, name: str) -> list[Object]:
    template = world.template(
        world.tries(name, "0"),
        world.forever("agent"),
        **{f"{PREFIX}wait-for-containers": "main"},
    )
    return [workloads.pod(name, world.model, template)]


def _disabled(world: World, name: str) -> list[Object]:
    template = world.template(world.tries(name, "0"), **{f"{PREFIX}proxy-shutdown": "disabled"})
    return [workloads.pod(name, world.model, template)]


def _unserved(world: World, name: str) -> list[Object]:
    main = workloads.container("main", world.image, workloads.payload("sleep.py", 0.3))
    return [workloads.pod(name, world.unserved, world.template(main))]


def _cannot_start(world: World, name: str) -> list[Object]:
    second = workloads.container("second", "localhost/none:1", ["true"])
    second["imagePullPolicy"] = "Never"
    template = world.template(world.tries(name, "0"), second)
    return [workloads.pod(name, world.model, template)]


def _native(world: World, name: str) -> list[Object]:
    return job(world, name, world.template(world.tries(name, "0"), **NATIVE))


def _by_revision(world: World, name: str) -> list[Object]:
    main = workloads.container("main", world.image, workloads.payload("sleep.py", 1))
    return [workloads.job(name, world.by_revision, world.template(main))]


def _status_port(world: World, name: str) -> list[Object]:
    template = world.template(world.tries(name, "0"), **{"status.sidecar.istio.io/port": "16020"})
    return job(world, name, template)


def _rules(action: str) -> Callable[[World, str], list[Object]]:
    def make(world: World, name: str) -> list[Object]:
        codes = {"operator": "In", "values": [42]}
        rules = [{"action": action, "exitCodes": codes}]
        main = world.tries(name, "42,0", restartPolicy="Never", restartPolicyRules=rules)
        return [workloads.pod(name, world.model, world.template(main))]

    return make


def _own_policy(world: World, name: str) -> list[Object]:
    main = world.tries(name, "1,0", restartPolicy="OnFailure")
    return [workloads.pod(name, world.model, world.template(main))]


def _deadline(world: World, name: str) -> list[Object]:
    return job(world, name, world.template(world.forever("main")), activeDeadlineSeconds=30)


def _failure_policy(world: World, name: str) -> list[Object]:
    codes = {"containerName": "main", "operator": "In", "values": [42]}
    return job(
        world,
        name,
        world.template(world.tries(name, "42")),
        backoffLimit=6,
        podFailurePolicy={"rules": [{"action": "FailJob", "onExitCodes": codes}]},
    )


def _twenty(world: World, name: str) -> list[Object]:
    return [made for number in range(20) for made in _on_failure(world, f"{name}-{number}")]


CASES = (
    # Those whose tries take longest come first.
    Case(
        name="twenty",
        make=_twenty,
        tries={f"-{number}": 3 for number in range(20)},
        pods=20,
    ),
    Case(name="job-on-failure", make=_on_failure, tries={"": 3}),
    Case(name="job-never", make=_never, tries={"": 1}),
    Case(name="job-failing", make=_fails, want="Failed", tries={"": 1}),
    Case(name="job-in-a-new-pod", make=_new_pod, tries={"": 2}, pods=2),
    Case(name="job-indexed", make=_indexed, tries={"": 3}, pods=3),
    Case(name="cron", make=_cron, tries={"": 1}),
    Case(name="bare", make=_bare, want="Succeeded", tries={"": 1}),
    Case(name="failing-bare", make=_bare_fails, want="Failed", tries={"": 1}),
    Case(
        name="tf-on-failure",
        make=_training("TFJob", "Worker", "OnFailure", "1,0"),
        want="Succeeded",
        tries={"": 2},
    ),
    Case(
        name="tf-exit-code",
        # From 128 on the operator deletes the pod and makes one of the same name.
        make=_training("TFJob", "Worker", "ExitCode", "130,0"),
        want="Succeeded",
        tries={"": 2},
        pods=2,
    ),
    Case(
        name="pytorch-on-failure",
        make=_training("PyTorchJob", "Master", "OnFailure", "1,0"),
        want="Succeeded",
        tries={"": 2},
    ),
    Case(
        name="pytorch-exit-code",
        make=_training("PyTorchJob", "Master", "ExitCode", "130,0"),
        want="Succeeded",
        tries={"": 2},
        pods=2,
    ),
    Case(
        name="pytorch-workers-on-failure",
        make=_training("PyTorchJob", "Master", "OnFailure", "1,0", workers=1),
        want="Succeeded",
        tries={"": 1, "-worker": 2},
        pods=2,
    ),
    Case(
        name="pytorch-workers-exit-code",
        make=_training("PyTorchJob", "Master", "ExitCode", "130,0", workers=1),
        want="Succeeded",
        tries={"": 1, "-worker": 2},
        pods=3,
    ),
    Case(
        name="tf-workers-on-failure",
        make=_training("TFJob", "Chief", "OnFailure", "1,1,0", workers=2),
        want="Succeeded",
        # Two workers share the count: the first codes fall to one or the other.
        tries={"": 1, "-worker": 4},
        pods=3,
    ),
    Case(
        name="tf-never",
        make=_training("TFJob", "Worker", "Never", "1"),
        want="Failed",
        tries={"": 1},
    ),
    Case(name="two-payloads", make=_two("other"), tries={"": 1, "-other": 1}),
    Case(name="argo", make=_two("wait"), tries={"": 1, "-wait": 1}),
    Case(name="katib-job", make=_trial(), tries={"": 1, "-metrics": 1}),
    Case(
        name="katib-native",
        make=_trial(annotations=NATIVE),
        tries={"": 1, "-metrics": 1},
        stopped=0,
        sidecar="native",
    ),
    Case(
        name="katib-tfjob",
        make=_trial_of_tf,
        want="Succeeded",
        tries={"": 1, "-metrics": 1},
    ),
    Case(
        # With Katib's default the collector waits for the proxy, too, so nobody's turn comes.
        name="katib-waits-for-all",
        make=_trial(wait_for_all=True),
        want="Running",
        tries={"": 1, "-metrics": 0},
        stopped=0,
        endures=True,
        main="training-container",
        proxy="running",
    ),
    Case(
        # The report of a collector that outlives its proxy is lost, and the trial with it.
        name="katib-not-waited-for",
        make=_trial(
            wait_for_all=True,
            annotations={f"{PREFIX}wait-for-containers": "training-container"},
        ),
        want="Failed",
        tries={"": 1, "-metrics": 0},
        holding=kubeflow_kinds.COLLECTOR,
    ),
    Case(
        # The way out without a change to Katib: the report goes past the proxy.
        name="katib-past-the-proxy",
        make=_trial(
            wait_for_all=True,
            annotations={
                f"{PREFIX}wait-for-containers": "training-container",
                "traffic.sidecar.istio.io/excludeOutboundPorts": str(DB_MANAGER),
            },
        ),
        tries={"": 1, "-metrics": 1},
        holding=kubeflow_kinds.COLLECTOR,
    ),
    Case(
        name="argo-step",
        make=_step("0"),
        want="Succeeded",
        tries={"": 1, "-inputs": 1, "-outputs": 1},
    ),
    Case(
        name="argo-step-failing",
        make=_step("1"),
        want="Failed",
        tries={"": 1, "-inputs": 1, "-outputs": 1},
    ),
    Case(
        name="pipelines-step",
        make=_pipelines({}),
        want="Succeeded",
        tries={"": 1, "-inputs": 1, "-outputs": 1},
        stopped=0,
        sidecar="none",
    ),
    Case(
        name="pipelines-step-in-the-mesh",
        make=_pipelines({"sidecar.istio.io/inject": "true"}),
        want="Succeeded",
        tries={"": 1, "-inputs": 1, "-outputs": 1},
    ),
    Case(
        name="ignored-agent",
        make=_ignored,
        want="Running",
        tries={"": 1},
        endures=True,
        holding="agent",
    ),
    Case(
        name="not-waited-for-agent",
        make=_waited_for,
        want="Running",
        tries={"": 1},
        endures=True,
        holding="agent",
    ),
    Case(
        name="disabled",
        make=_disabled,
        want="Running",
        tries={"": 1},
        stopped=0,
        endures=True,
        proxy="running",
    ),
    Case(
        name="unserved",
        make=_unserved,
        want="Running",
        stopped=0,
        namespace="unserved",
        endures=True,
        proxy="running",
    ),
    Case(
        name="waiting-for-an-image",
        make=_cannot_start,
        want="Pending",
        tries={"": 1},
        stopped=0,
        endures=True,
        proxy="running",
    ),
    Case(name="native", make=_native, tries={"": 1}, stopped=0, sidecar="native"),
    Case(name="by-revision", make=_by_revision, namespace="by_revision"),
    Case(name="status-port", make=_status_port, tries={"": 1}),
    Case(name="restart-rule", make=_rules("Restart"), want="Succeeded", tries={"": 2}),
    Case(
        name="restart-all-rule",
        make=_rules("RestartAllContainers"),
        want="Succeeded",
        tries={"": 2},
    ),
    Case(name="own-restart-policy", make=_own_policy, want="Succeeded", tries={"": 2}),
    Case(name="deadline", make=_deadline, want="Failed", stopped=0),
    Case(name="pod-failure-policy", make=_failure_policy, want="Failed", tries={"": 1}),
)


def peer(world: World) -> list[Object]:
    """The counting server, in the mesh."""
    server = workloads.container(
        "server",
        world.image,
        workloads.payload("tries.py", "serve", 8080),
        ports=[{"containerPort": 8080, "name": "http"}],
        readinessProbe={"httpGet": {"path": "/again", "port": 8080}, "periodSeconds": 1},
    )
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": PEER, "namespace": world.model},
        "spec": {
            "selector": {"app": PEER},
            "ports": [
                {"name": "http", "port": 80, "targetPort": 8080},
                {"name": "http-metrics", "port": DB_MANAGER, "targetPort": 8080},
            ],
        },
    }
    template = workloads.template([server], annotations=CPU)
    return [workloads.deployment(PEER, world.model, template), service]


async def counted(api: kubernetes.Api, namespace: str) -> dict[str, int]:
    """How many tries of each name have reached the peer."""
    path = f"/api/v1/namespaces/{namespace}/services/{PEER}:80/proxy/"
    return json.loads(await api.request("GET", path))


async def peer_is_ready(api: kubernetes.Api, namespace: str) -> None:
    """Wait until the peer answers, with nothing counted by an earlier one."""

    async def answers() -> bool:
        with contextlib.suppress(kubernetes.ApiError):
            return await counted(api, namespace) == {}
        return False

    await observer.eventually(answers, 90, "the peer Ready")

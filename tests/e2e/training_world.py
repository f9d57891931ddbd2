"""Namespaces that allow or deny plain text, and jobs of several pods of each kind."""

import asyncio
import dataclasses
import shlex
from collections.abc import Mapping
from typing import Any

from integrator_contract import names
from testbed import kubernetes
from testbed.kit import juju, observer, training, workloads
from tests.e2e import kubeflow_kinds

UNCHANGED = {names.POD_TRAFFIC: "unchanged"}
ENDS = {"Succeeded": True, "Complete": True, "Completed": True, "Failed": False}
"""The conditions of a job that is over, and whether it has succeeded."""


async def prepare(api, setting, model):
    """Make a namespace, and wait for what the charm of a model writes there."""
    await api.apply(*setting.objects(names.name_owner(model, juju.APPLICATION)))

    async def is_written():
        return setting.is_open or await training.find_filter(api, setting.name, model)

    await observer.eventually(is_written, 60, f"the EnvoyFilter of {setting.name}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """How the pods of a namespace are protected."""

    name: str
    is_strict: bool
    has_policy: bool
    """The namespace is a profile, with rules that Kubeflow's profile controller writes."""

    @property
    def is_open(self):
        """Whether pods accept plain text from each other."""
        return not (self.is_strict or self.has_policy)

    def objects(self, owner):
        """The namespace with its policies, served by the integrator of this name alone."""
        kind = {names.PART_OF: names.PROFILE} if self.has_policy else {names.SERVED: "enabled"}
        labels = {**kind, "istio-injection": "enabled", names.SERVED_BY: owner}
        found = [workloads.namespace(self.name, labels)]
        if self.is_strict:
            found.append(workloads.strict(self.name))
        if self.has_policy:
            found.append(workloads.profile_policy(self.name))
        return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operated:
    """A kind of the training operator's."""

    container: str
    field: str
    roles: tuple[str, ...] = ("Worker",)
    """The first pod has the first role, all others the last one."""
    address: str = ""
    """Where rank 0 listens, for kinds whose variables our payload does not read."""
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Other fields of the job."""


OPERATED = {
    "PyTorchJob": Operated(
        container="pytorch", field="pytorchReplicaSpecs", roles=("Master", "Worker")
    ),
    "JAXJob": Operated(container="jax", field="jaxReplicaSpecs"),
    "TFJob": Operated(container="tensorflow", field="tfReplicaSpecs", address="worker-0:2222"),
    "XGBoostJob": Operated(
        container="xgboost", field="xgbReplicaSpecs", roles=("Master", "Worker")
    ),
    "PaddleJob": Operated(
        container="paddle", field="paddleReplicaSpecs", address="worker-0:36543"
    ),
}

ELASTIC = Operated(
    container="pytorch",
    field="pytorchReplicaSpecs",
    address="worker-0:29400",
    more={"elasticPolicy": {"minReplicas": 1, "maxReplicas": 3, "rdzvBackend": "c10d"}},
)
"""A PyTorchJob whose workers may become more or fewer."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """A job of some pods, each of which runs a command."""

    kind: str
    namespace: str
    image: str
    command: tuple[str, ...]
    name: str
    pods: int = 3
    labels: workloads.Labels = dataclasses.field(default_factory=dict)
    annotations: workloads.Labels = dataclasses.field(default_factory=dict)
    policy: str = "Never"
    """When a pod's container runs again."""
    operated: Operated | None = None
    """In place of the one of `OPERATED`."""

    def objects(self):
        """The job, and the runtime that it may need."""
        return getattr(self, f"_{self.kind.lower()}", self._operated)()

    def _template(self, container, **fields):
        main = workloads.container(container, self.image, self.command, **fields)
        words = {"labels": self.labels, "annotations": self.annotations}
        return workloads.template([main], restart_policy=self.policy, **words)

    def _variables(self, address):
        host, _, port = address.partition(":")
        values = {"ADDRESS": host, "PORT": port}
        found = {f"COORDINATOR_{name}": value for name, value in values.items()}
        found["NUM_PROCESSES"] = str(self.pods)
        return [{"name": name, "value": value} for name, value in found.items()]

    def _operated(self):
        kind = self.operated or OPERATED[self.kind]
        own = {"env": self._variables(f"{self.name}-{kind.address}")} if kind.address else {}
        template = self._template(kind.container, **own)
        del template["spec"]["restartPolicy"]
        counts = {kind.roles[0]: 1}
        counts[kind.roles[-1]] = self.pods - (len(kind.roles) > 1)
        roles = {role: (count, template) for role, count in counts.items() if count}
        return self._training(kind.field, roles, **kind.more)

    def _mpijob(self):
        """One pod starts the command by `kubectl exec` on all others, which only wait."""
        name = {
            "PRTE_MCA_plm_ssh_agent": "kubexec.sh",
            "PRTE_MCA_prte_default_hostfile": "hostfile",
        }
        env = [{"name": each, "value": f"/etc/mpi/{file}"} for each, file in name.items()]
        launcher = self._template("mpi", env=env)
        del launcher["spec"]["automountServiceAccountToken"]
        worker = self._template("mpi")
        (main,) = worker["spec"]["containers"]
        main["command"] = ["sleep", "1000"]
        roles = {"Launcher": (1, launcher), "Worker": (self.pods - 1, worker)}
        return self._training("mpiReplicaSpecs", roles)

    def _training(self, field, roles, **more):
        """Make a job of the training operator of roles, each with its count and template."""
        replicas = {
            role: {"replicas": count, "restartPolicy": self.policy, "template": template}
            for role, (count, template) in roles.items()
        }
        spec = {"runPolicy": {"cleanPodPolicy": "None"}, **more, field: replicas}
        version = "kubeflow.org/v1"
        return [workloads.manifest(version, self.kind, self.name, self.namespace, **spec)]

    def _rayjob(self):
        """Its pods start Ray, and a Job tells Ray to run the command."""
        template = self._template("ray")
        (main,) = template["spec"]["containers"]
        del main["command"]
        # KubeRay's own probes ask by a program that the image lacks.
        probe = {"exec": {"command": ["true"]}}
        main |= {"readinessProbe": probe, "livenessProbe": probe}
        start = {"num-cpus": "1", "object-store-memory": "100000000"}
        group = {"rayStartParams": start, "template": template}
        counts = dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), self.pods - 1)
        cluster = {
            "headGroupSpec": group,
            "workerGroupSpecs": [{"groupName": "workers", **counts, **group}],
        }
        spec = {"entrypoint": shlex.join(self.command), "rayClusterSpec": cluster}
        return [workloads.manifest("ray.io/v1", self.kind, self.name, self.namespace, **spec)]

    def _jobset(self):
        variables = self._variables(f"{self.name}-node-0-0.{self.name}:29400")
        node = self._node(self._template("node", env=variables), self.pods)
        return kubeflow_kinds.job_set(self.name, self.namespace, node)

    def _trainjob(self):
        node = self._node(self._template("node"), 1)
        torch = {"torch": {"numProcPerNode": 1}}
        trainer = {"numNodes": self.pods}
        runtime = {"replicatedJobs": [node]}
        return kubeflow_kinds.train_job(
            self.name, self.namespace, runtime, trainer, framework=torch
        )

    @staticmethod
    def _node(template, pods):
        labels = {kubeflow_kinds.ANCESTOR: "trainer"}
        count = {"completionMode": "Indexed", "completions": pods, "parallelism": pods}
        return kubeflow_kinds.replicated("node", template, labels=labels, **count)


async def end_of(api, job, within):
    """Wait until a job is over; return whether it has succeeded."""
    kind = "Job" if job.kind == "RayJob" else job.kind

    async def is_over():
        found = await api.find(kind, job.name, job.namespace)
        conditions = (found or {}).get("status", {}).get("conditions") or ()
        true = {each["type"] for each in conditions if each["status"] == "True"}
        return true & ENDS.keys()

    over = await observer.eventually(is_over, within, f"{job.name} over", every=1)
    if job.kind == "RayJob":
        # KubeRay, outside of the mesh, may not ask Ray, and what follows the log always succeeds.
        pods = await api.list("Pod", job.namespace, f"job-name={job.name}")
        logs = [
            await api.log(job.namespace, each["metadata"]["name"], "ray-job-submitter")
            for each in pods
        ]
        return any("nodes exchanged arrays" in text for text in logs)
    (end,) = over
    return ENDS[end]


async def run_all(api, jobs, *, at_once, within):
    """Run jobs, so many pods of them at a time; return whether each has succeeded, by name."""
    room, turn = asyncio.Semaphore(at_once), asyncio.Lock()

    async def run(job):
        async with turn:
            for _ in range(job.pods):
                await room.acquire()
        found = job.objects()

        async def is_applied():
            try:
                await api.apply(*found)
            except kubernetes.ApiError as error:
                # Trainer's webhook knows a new runtime a moment later, or is away for a moment.
                if error.code not in (403, 500):
                    raise
                return False
            return True

        try:
            await observer.eventually(is_applied, 60, f"{job.name} applied")
            return await end_of(api, job, within)
        finally:
            for each in found:
                await api.delete(each["kind"], job.name, job.namespace)
            for _ in range(job.pods):
                room.release()

    async with asyncio.TaskGroup() as group:
        tasks = {job.name: group.create_task(run(job)) for job in jobs}
    return {name: task.result() for name, task in tasks.items()}

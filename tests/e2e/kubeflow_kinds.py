"""Kubeflow's kinds, and the pods that their controllers make.

Workflows, JobSets and TrainJobs are for their real controllers, of `testbed.parts`. Notebook is a
minimal kind of our own, there to own what its controller would create. Pods of trials have the
containers, labels and volumes that Katib's injector gives them, and steps of pipelines what the
pipelines' API server writes on them; what runs in them is our payload.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from testbed.kit import workloads
from tests.kubernetes_objects import made

Object = dict[str, Any]
Labels = Mapping[str, str] | None

ARGO = "argoproj.io/v1alpha1"
METRICS = "/var/log/katib"
COLLECTOR = "metrics-logger-and-collector"
JOBSET = "jobset.x-k8s.io/v1alpha2"
TRAINER = "trainer.kubeflow.org/v1alpha1"
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
"""The label by which Trainer knows what a Job of its runtime is for."""
OUTSIDE = {"sidecar.istio.io/inject": "false"}


NOTEBOOKS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "notebooks.kubeflow.org"},
    "spec": {
        "group": "kubeflow.org",
        "scope": "Namespaced",
        "names": {"kind": "Notebook", "plural": "notebooks", "singular": "notebook"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
"""The definition of a kind that takes any content."""


def with_collector(template: Object, name: str, peer: str, *, wait_for_all: bool) -> Object:
    """A pod template after Katib's injector: its first container is wrapped, and collected from.

    Its command has no quoted words; `peer` stands in for the DB manager, and `wait_for_all` is
    Katib's `waitAllProcesses`.
    """
    (training,) = template["spec"]["containers"]
    mount = {"volumeMounts": [{"name": "metrics-volume", "mountPath": METRICS}]}
    said = f"1>{METRICS}/metrics.log 2>&1"
    # The kubelet makes $$ of it, which is the shell's own number.
    mark = f"echo completed > {METRICS}/$$$$.pid"
    wrapped = {
        **training,
        "command": ["sh", "-c"],
        "args": [f"{' '.join(training['command'])} {said} && {mark}"],
        **mount,
    }
    collector = workloads.container(
        COLLECTOR,
        training["image"],
        ["python3", "/opt/payload/collector.py"],
        args=[
            *("-t", name, "-m", "accuracy", "-o-type", "maximize", "-s-db", peer),
            *("-path", f"{METRICS}/metrics.log", "-format", "TEXT"),
            *(() if wait_for_all else ("-w", "false")),
        ],
        **mount,
    )
    labels = {"katib.kubeflow.org/experiment": name, "katib.kubeflow.org/trial": name}
    metadata = template["metadata"]
    return {
        "metadata": {**metadata, "labels": {**metadata["labels"], **labels}},
        "spec": {
            **template["spec"],
            "shareProcessNamespace": True,
            "containers": [wrapped, collector],
            "volumes": [{"name": "metrics-volume", "emptyDir": {}}],
        },
    }


def workflow(
    name: str, namespace: str, entrypoint: str, templates: Sequence[Object]
) -> list[Object]:
    """A Workflow of Argo's."""
    spec: Object = {"entrypoint": entrypoint, "templates": list(templates)}
    return [workloads.manifest(ARGO, "Workflow", name, namespace, **spec)]


def step(template: Object, name: str) -> Object:
    """A pod's template as one of a Workflow; Argo adds `init`, `wait` and the emissary to it."""
    (main,) = template["spec"]["containers"]
    return {"name": name, "metadata": template["metadata"], "container": main}


def storing(step: Object, peer: str) -> Object:
    """The same step with something to fetch before it, and to store after it, at the peer."""

    def artifact(what: str, path: str) -> Object:
        url = f"http://{peer}/try/{step['name']}-{what}"
        return {"name": what, "path": path, "http": {"url": url}, "archive": {"none": {}}}

    return {
        **step,
        "inputs": {"artifacts": [artifact("inputs", "/tmp/inputs")]},
        "outputs": {"artifacts": [artifact("outputs", "/opt/payload/tries.py")]},
    }


def pipelines(step: Object, image: str, run: str) -> Object:
    """A step after the pipelines' API server and compiler (KFP v2).

    The API server asks for no sidecar unless the pipeline says something about it itself.
    """
    metadata = step["metadata"]
    launcher = {"name": "kfp-launcher", "mountPath": "/kfp-launcher"}
    copy = workloads.container(
        "kfp-launcher", image, ["touch", "/kfp-launcher/launch"], volumeMounts=[launcher]
    )
    labels = {"pipelines.kubeflow.org/v2_component": "true", "pipeline/runid": run}
    return {
        **step,
        "metadata": {
            "labels": {**metadata["labels"], **labels},
            "annotations": {
                **OUTSIDE,
                **metadata["annotations"],
                "pipelines.kubeflow.org/v2_component": "true",
            },
        },
        "initContainers": [copy],
        "container": {**step["container"], "volumeMounts": [launcher]},
        "volumes": [{"name": "kfp-launcher", "emptyDir": {}}],
    }


def executor_rights(namespace: str) -> list[Object]:
    """What lets the pods of Workflows, which have the default account, tell what they put out."""
    rule = {
        "apiGroups": ["argoproj.io"],
        "resources": ["workflowtaskresults"],
        "verbs": ["create", "patch"],
    }
    group, name = "rbac.authorization.k8s.io", "argo-executor"
    role = {"apiGroup": group, "kind": "Role", "name": name}
    account = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    return [
        made(f"{group}/v1", "Role", name, namespace, rules=[rule]),
        made(f"{group}/v1", "RoleBinding", name, namespace, roleRef=role, subjects=[account]),
    ]


def job_set(name: str, namespace: str, *sets: Object, **spec: Any) -> list[Object]:
    """A JobSet of these replicated Jobs."""
    spec["replicatedJobs"] = list(sets)
    return [workloads.manifest(JOBSET, "JobSet", name, namespace, **spec)]


def replicated(
    name: str, template: Object, *, replicas: int = 1, labels: Labels = None, **job: Any
) -> Object:
    """Some Jobs of a JobSet, by the name that they have in it."""
    spec = {"backoffLimit": 0, "template": template, **job}
    made = {"metadata": {"labels": dict(labels or {})}, "spec": spec}
    return {"name": name, "replicas": replicas, "template": made}


def train_job(
    name: str,
    namespace: str,
    runtime: Object,
    trainer: Object,
    *,
    framework: Object | None = None,
    **spec: Any,
) -> list[Object]:
    """A runtime of Trainer's, and the TrainJob that uses it.

    The runtime is the spec of a JobSet, whose Job `node` has the label `ANCESTOR`. A framework has
    Trainer set the variables of its ranks.
    """
    nodes = {"numNodes": 1, **(framework or {})}
    policy: Object = {"mlPolicy": nodes, "template": {"spec": runtime}}
    reference = {"apiGroup": TRAINER.partition("/")[0], "kind": "TrainingRuntime", "name": name}
    wanted = {"runtimeRef": reference, "trainer": trainer, **spec}
    return [
        workloads.manifest(TRAINER, "TrainingRuntime", name, namespace, **policy),
        workloads.manifest(TRAINER, "TrainJob", name, namespace, **wanted),
    ]

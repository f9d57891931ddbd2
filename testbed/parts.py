"""Kubeflow's controllers, put into a testbed that is up: Argo's, JobSet's, Ray's and Trainer's.

Their objects are the projects' own, rendered from the pinned module; images and probes are ours.
"""

import dataclasses
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from testbed import addons, programs
from testbed.running import RunningTestbed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """One project's controller."""

    bases: tuple[str, ...]
    """Folders below the product's `share`, each with a kustomization."""
    namespace: str
    images: Mapping[str, str]
    """Each container of its Deployments, to its image of `testbed.images`."""
    executor: str = ""
    """The image that the controller puts into pods which it makes."""
    secret: str = ""
    """An empty Secret that the controller fills with certificates of its own."""


PARTS: Mapping[str, Part] = {
    "argo-workflows": Part(
        bases=(
            "manifests/base/crds/minimal",
            "manifests/base/workflow-controller",
            "manifests/cluster-install-no-crds/workflow-controller-rbac",
        ),
        namespace="argo",
        images={"workflow-controller": "workflow-controller"},
        executor="argoexec",
    ),
    "jobset": Part(
        bases=("config/default",), namespace="jobset-system", images={"manager": "jobset"}
    ),
    "kuberay": Part(
        bases=("config/default",), namespace="ray-system", images={"kuberay-operator": "kuberay"}
    ),
    "trainer": Part(
        bases=tuple(f"manifests/base/{name}" for name in ("crds", "manager", "rbac", "webhook")),
        namespace="kubeflow-system",
        images={"manager": "trainer"},
        secret="kubeflow-trainer-webhook-cert",
    ),
}


def install(testbed: RunningTestbed, *names: str) -> None:
    """Build parts where needed, and have them run in the testbed.

    Args:
        testbed: one with a node that is up.
        names: some of `PARTS`.

    Raises:
        AddonError: when the objects of one can't be rendered.
        ClusterError: when one does not get ready.
        ProgramError: when one can't be built.
    """
    programs.ensure(names)
    for name in names:
        part = PARTS[name]
        executor = (part.executor,) if part.executor else ()
        loaded = testbed.load_images((*part.images.values(), *executor))
        testbed.apply(addons.dump(objects(name, loaded)))
    for name in names:
        where = ("--namespace", PARTS[name].namespace, "--timeout=120s")
        testbed.kubectl("rollout", "status", "deployment", *where)


def objects(name: str, references: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the objects of a part.

    Args:
        name: of the part.
        references: image of `testbed.images` to its reference.
    """
    part = PARTS[name]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": part.namespace}}
    found = [namespace, *_rendered(programs.directory(name) / "share", part)]
    for one in found:
        if one["kind"] == "Deployment":
            _settle(one["spec"]["template"]["spec"], part, references)
    return found


def _settle(spec: dict[str, Any], part: Part, references: Mapping[str, str]) -> None:
    """Have a pod run our images, be Ready soon, and ask for no room that a small node lacks."""
    for container in spec["containers"]:
        container["image"] = references[part.images[container["name"]]]
        container.pop("resources", None)
        if part.executor:
            container["command"] = ["/manager"]
            container["args"] = ["--executor-image", references[part.executor]]
        if probe := container.get("readinessProbe"):
            probe |= {"initialDelaySeconds": 1, "periodSeconds": 1}


def _rendered(share: Path, part: Part) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        # kustomize takes no absolute paths, and follows the links of those that it is in.
        here = Path(folder).resolve()
        wanted: dict[str, Any] = {
            "namespace": part.namespace,
            "resources": [os.path.relpath(share.resolve() / base, here) for base in part.bases],
        }
        if part.secret:
            made = {"name": part.secret, "options": {"disableNameSuffixHash": True}}
            wanted["secretGenerator"] = [made]
        (here / "kustomization.yaml").write_text(yaml.safe_dump(wanted))
        argv = [programs.binary("kubectl"), "kustomize", here]
        run = subprocess.run(argv, capture_output=True, text=True, check=False)
    if run.returncode:
        raise addons.AddonError(f"kubectl kustomize: {run.stderr.strip()}")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [one for one in yaml.load_all(run.stdout, Loader=loader) if one]

"""A model on a real API server, by which `diagnose` is tried.

There is no node and no istiod: the mesh is given, what only running proxies tell is for the
end-to-end tests. The workload's part is its real program.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import lightkube
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import User

from istio_integrator import diagnosis, parts
from istio_integrator.config import config
from istio_integrator.diagnosis import checks
from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.kube import errors, manifests
from istio_integrator.mesh import installation
from tests.functional.ingress_world import Related

APP = "istio-integrator"

INJECTED = {"sidecar.istio.io/status": '{"revision": "default"}'}

RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


class Workload:
    """A container in which the workload's program runs, as an administrator."""

    def __init__(self, kubeconfig):
        self._kubeconfig = kubeconfig

    def can_connect(self):
        return True

    def exec(self, argv, *, timeout, stdin=None, working_dir):
        done = subprocess.run(
            [sys.executable, "-m", "tests.workload_access", self._kubeconfig, *argv[1:]],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env={**os.environ, "PYTHONPATH": ".:workload:lib"},
        )
        assert done.returncode == 0, done.stderr
        return Process(done.stdout)


@dataclasses.dataclass
class Process:
    output: str

    def wait_output(self):
        return self.output, ""


@dataclasses.dataclass
class Found:
    """An Istio that was found."""

    mesh: installation.Mesh

    def statuses(self):
        return ()


@dataclasses.dataclass
class World:
    """A model, and everything by which it is looked at."""

    api: charm_cluster.Cluster
    control_plane: object
    kubeconfig: pathlib.Path
    model: str
    related: Related = dataclasses.field(default_factory=Related)
    mesh: object = None
    options: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        # Each model has a mesh of its own: others' objects in it are those of other tests.
        self.root = f"{self.model}-istio"
        self.mesh = installation.Mesh(
            namespace=self.root,
            root_namespace=self.root,
            revision="default",
            is_default=True,
            version="1.31.1",
            proxy_revision="default",
            alive=True,
            probed=True,
        )

    def kubectl(self, *argv, text=None):
        return self.control_plane.kubectl(*argv, text=text)

    def create(self, kind, name, namespace=None, status=None, labels=None, **fields):
        """Make an object, and what its controller would say about it."""
        version = next(key[0] for key in charm_cluster.KINDS if key[1] == kind)
        metadata = {"name": name, "namespace": namespace or self.model, "labels": labels or {}}
        if kind == "Namespace":
            del metadata["namespace"]
        metadata["annotations"] = fields.pop("annotations", {})
        obj = {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}
        self.api.create(obj)
        if status:
            self.set_status(kind.lower(), name, metadata.get("namespace"), status)
        return obj

    def set_status(self, kind, name, namespace, status):
        where = ("-n", namespace) if namespace else ()
        patch = json.dumps({"status": status})
        argv = ("patch", kind, name, "--subresource=status", "--type=merge", "-p", patch)
        self.kubectl(*where, *argv)

    def pod(self, name, *containers, namespace=None, status=None, **fields):
        spec = {
            "containers": [{"name": each, "image": "none:1.31.1"} for each in containers],
            **fields.pop("spec", {}),
        }
        return self.create("Pod", name, namespace, status, spec=spec, **fields)

    def facts(self, api=None):
        own = api or self.api
        context = parts.Context(
            cluster=own,
            manifests=manifests.Manifests(own, model=self.model, application=APP),
            config=config.Config(**self.options),
            mesh=self.mesh,
            model=self.model,
            application=APP,
            unit=f"{APP}/0",
            leader=True,
            exposes=self.related.is_related("ingress"),
        )
        workload, found = Workload(self.kubeconfig), Found(self.mesh)
        return diagnosis.Facts(context, self.related, workload, discovery=found)

    def says(self, check, api=None):
        """Run one check; what it says, the worst first."""
        found = checks.known()[check].run(self.facts(api))
        order = "✗!✓"
        return sorted(found, key=lambda each: order.index(each.level.value))

    def worst(self, check, api=None):
        found = self.says(check, api)[0]
        return found.level.value, found.seen


def account(api, namespace, name="default"):
    """Make an account that pods need, unless the controller of accounts was quicker."""
    metadata = {"name": name, "namespace": namespace}
    with contextlib.suppress(errors.ConflictError):
        api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})


@contextlib.contextmanager
def restricted(world, roles):
    """The API server, as the application with some roles."""
    account(world.api, world.model, APP)
    world.kubectl("apply", "-f", "-", text=roles)
    made = world.kubectl("-n", world.model, "create", "token", APP)
    token = str(getattr(made, "stdout", made)).strip()
    user = KubeConfig.from_file(world.kubeconfig).get()._replace(user=User(token=token))
    try:
        with lightkube.Client(config=user) as client:
            yield charm_cluster.Cluster(client)
    finally:
        world.kubectl("delete", "--ignore-not-found", "-f", "-", text=roles)

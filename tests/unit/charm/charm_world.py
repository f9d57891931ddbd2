"""The charm with its workload, on a small API server."""

import pathlib
import shutil
import time

import msgspec
import ops
import yaml
from ops import testing

import charm
from integrator_contract import names, service
from tests import asked, charm_access
from tests.unit.charm import fake_cluster

# Each hook reads and writes YAML, which takes Python three times as long as libyaml.
yaml.SafeLoader, yaml.SafeDumper = yaml.CSafeLoader, yaml.CSafeDumper
MODEL, APPLICATION = "kf", "mesh-2"
UNIT = 3
"""The number of the unit that runs hooks; unit 0 has another pod."""
OWN_POD = f"{APPLICATION}-{UNIT}"
DOMAIN = "k8s.example"
"""The domain of the clusters that `search` describes."""
IMAGE = "registry.example/juju/charm-base:24.04"
"""Of the charm's own container."""
SETTINGS = pathlib.PurePath("tmp/sidecar-lifecycle.settings.json")
"""In the file system of the workload's container."""

SUMMARY = {"eligible": 14, "in_mesh": 14}
CONNECTED: list[fake_cluster.FakeCluster] = []
"""The cluster to which `reach` connected the charm last."""


POD = {"namespace": "kf", "name": "minio-0", "workload": "StatefulSet/minio", "fixable": True}
POD |= {"reason": "Queued", "message": "was created before the mesh was there"}


def workload(
    *pods, can_connect=True, code=0, text="", files: pathlib.Path | None = None, **summary
) -> testing.Container:
    """Make the workload's container; its /tmp stays from hook to hook in a folder, if given."""
    if code:
        asked.SERVICE.fails(code, text)
    else:
        asked.SERVICE.says(*pods, **{**SUMMARY, **summary})
    mounts = {"tmp": testing.Mount(location="/tmp", source=files)} if files else {}
    return testing.Container(
        "lifecycle", can_connect=can_connect, execs={asked.version()}, mounts=mounts
    )


def context(application=APPLICATION, **more) -> testing.Context[charm.IstioIntegrator]:
    """Make what runs hooks of an application."""
    return testing.Context(charm.IstioIntegrator, app_name=application, unit_id=UNIT, **more)


def state(container=None, *, leader=True, units=1, **config) -> testing.State:
    return testing.State(
        leader=leader,
        planned_units=units,
        containers={container or workload()},
        config={key.replace("_", "-"): value for key, value in config.items()},
        model=testing.Model(MODEL, type="kubernetes"),
    )


def status(ctx, given, event=None) -> ops.StatusBase:
    return ctx.run(event or ctx.on.config_changed(), given).unit_status


def told(ctx: testing.Context, out: testing.State) -> service.Options:
    """Read the workload's settings file."""
    files = out.get_container("lifecycle").get_filesystem(ctx)
    return msgspec.json.decode((files / SETTINGS).read_bytes(), type=service.Options)


def results(ctx: testing.Context, out: testing.State) -> service.Results:
    """Read what the hook has written for the workload at its end."""
    files = out.get_container("lifecycle").get_filesystem(ctx)
    text = (files / service.name_results_file(SETTINGS)).read_bytes()
    return msgspec.json.decode(text, type=service.Results)


def joins(ctx: testing.Context, out: testing.State) -> tuple[bool, str, str]:
    """Read from the settings whether the model has joined, istiod's namespace and revision."""
    found = told(ctx, out)
    return found.joined, found.mesh_namespace, found.mesh_revision


def model() -> fake_cluster.FakeCluster:
    """Make a cluster with a model `kf` and one node, without Istio."""
    fake = fake_cluster.FakeCluster()
    fake.namespace("kf")
    fake.namespace("default")
    fake.node()
    neighbour(fake)
    return fake


def neighbour(fake):
    """Add objects of an application of the same name in another model."""
    place, owner = f"{MODEL}-2", {names.OWNER: names.name_owner(f"{MODEL}-2", APPLICATION)}
    fake.namespace(place)
    fake.put("Secret", f"{APPLICATION}-record", place, labels=owner, data={})
    fake.put("ConfigMap", f"{APPLICATION}-convergence", place, labels=owner)
    fake.put("Pod", f"{APPLICATION}-0", place, labels={names.NAME: APPLICATION}, spec={})


def root(folder: pathlib.Path) -> pathlib.Path:
    """Fill a charm's folder that stays from hook to hook, as in a pod.

    The files are copies: ops.testing writes them anew for each hook.
    """
    source = pathlib.Path(charm.__file__).parents[1]
    for name in ("metadata.yaml", "config.yaml", "actions.yaml", "charmcraft.yaml"):
        shutil.copy2(source / name, folder / name)
    return folder


def search(monkeypatch, resolver=f"\nsearch kf.svc.{DOMAIN} svc.{DOMAIN} {DOMAIN}\n"):
    """Have the unit's pod search the domains of a cluster."""
    read = pathlib.Path.read_text

    def read_text(path, *how, **encoding):
        is_resolver = path == pathlib.Path("/etc/resolv.conf")
        return resolver if is_resolver else read(path, *how, **encoding)

    monkeypatch.setattr(pathlib.Path, "read_text", read_text)


def reach(fake, monkeypatch):
    """Connect the charm to a cluster, and skip waits."""
    monkeypatch.setattr(time, "sleep", lambda _: asked.SERVICE.closes())
    CONNECTED[:] = [fake]
    charm_access.connect(monkeypatch, fake.client())


def connect(fake, monkeypatch):
    """Connect the charm to a cluster that has the unit's pod."""
    reach(fake, monkeypatch)
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "mesh-2"}
    owner |= {"uid": "1", "controller": True, "blockOwnerDeletion": True}
    add_units(fake, labels={"app.kubernetes.io/name": "mesh-2"}, ownerReferences=[owner])


def add_units(fake, **metadata):
    """Add the unit's own pod, and the older one of unit 0 with other images."""
    for name, *images in ((OWN_POD, IMAGE, "workload:1"), (f"{APPLICATION}-0", "older", "older")):
        named = zip(("charm", "lifecycle"), images, strict=True)
        containers = [{"name": each, "image": image} for each, image in named]
        fake.put("Pod", name, spec={"containers": containers}, **metadata)

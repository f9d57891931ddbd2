"""Jobs of several pods of each kind, with real collectives, in namespaces that deny plain text."""

import asyncio
import contextlib
import dataclasses
import itertools
import json
import time

import pytest

from integrator_contract import names
from testbed import addons, kubernetes, parts
from testbed.kit import juju, observer, timeline, training, workloads
from tests import kubernetes_objects
from tests.e2e import pods, training_world
from tests.e2e.training_world import Job, Setting

# The first one builds JAX's image and Kubeflow's controllers where that was not done yet.
pytestmark = [pytest.mark.long, pytest.mark.cluster("tomorrow"), pytest.mark.timeout(3600)]

MODEL = "kf"
CPU = {"sidecar.istio.io/proxyCPU": "10m"}
SIDECARS = {"classic": workloads.CLASSIC, "native": {}}
SETTINGS = (
    Setting(name="team-open", is_strict=False, has_policy=False),
    Setting(name="team-strict", is_strict=True, has_policy=False),
    Setting(name="kf-user-permissive", is_strict=False, has_policy=True),
    Setting(name="kf-user-strict", is_strict=True, has_policy=True),
)
STRICT_PROFILE = SETTINGS[-1]
REAL = ("PyTorchJob", "TrainJob", "JAXJob")
"""Kinds whose own variables tell JAX where its ranks are."""
OTHERS = ("JobSet", "TFJob", "XGBoostJob", "PaddleJob")
MOST = 8
"""Pods of the largest jobs."""
AT_ONCE = 12
"""Pods that two processors start within a minute."""
TIMEOUT = 90
WITHIN = 600
JOB_NAME, REPLICA, INDEX = (
    f"training.kubeflow.org/{each}" for each in ("job-name", "replica-type", "replica-index")
)


async def set_up(node, api, *settings):
    """Deploy the charm in a model, with pod networks, and make namespaces that it serves."""
    controller = node.juju(MODEL)
    if not await api.find("Namespace", MODEL):
        await controller.add_model()
        await controller.deploy(node.charms.integrator, juju.APPLICATION)
    await controller.wait_for("active", 120)
    await training.name_networks(controller, api)
    for setting in settings:
        await training_world.prepare(api, setting, MODEL)


@pytest.fixture(scope="module")
def jax(node):
    """A model with the charm, which knows the networks of pods; the payload image with JAX."""

    async def start():
        await asyncio.to_thread(parts.install, node.testbed, "jobset", "trainer")
        async with kubernetes.Api.from_kubeconfig(node.testbed.kubeconfig) as api:
            await set_up(node, api, *SETTINGS)

    asyncio.run(start())
    return node.testbed.load_images(["app-jax"])["app-jax"]


def real(image, setting, row):
    """A job with real collectives, whose pods the charm changes or does not."""
    kind, count, sidecar, is_changed = row
    suffix = "" if is_changed else "-unchanged"
    return Job(
        kind=kind,
        namespace=setting.name,
        name=f"{kind.lower()}-{count}-{sidecar}{suffix}",
        image=image,
        command=tuple(workloads.payload("collectives.py", "--timeout", TIMEOUT)),
        pods=count,
        labels={} if is_changed else training_world.UNCHANGED,
        annotations={**CPU, **SIDECARS[sidecar]},
    )


async def check(api, jobs, setting, at_once=AT_ONCE):
    """Run jobs; those with labels of their own fail where plain text is denied."""
    found = await training_world.run_all(api, jobs, at_once=at_once, within=WITHIN)
    assert found == {job.name: not job.labels or setting.is_open or job.pods == 1 for job in jobs}


@pytest.mark.parametrize("count", [1, 3, MOST])
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda each: each.name)
async def test_collectives_end_in_each_setting(api, jax, setting, count):
    kinds = REAL if count < MOST else REAL[:2]
    rows = itertools.product(kinds, (count,), SIDECARS, (True, False))
    await check(api, [real(jax, setting, row) for row in rows], setting)


async def test_collectives_end_in_an_elastic_job(api, jax):
    rows = [("PyTorchJob", 3, "classic", is_changed) for is_changed in (True, False)]
    jobs = [
        dataclasses.replace(job, operated=training_world.ELASTIC, name=f"elastic-{job.name}")
        for job in (real(jax, STRICT_PROFILE, row) for row in rows)
    ]
    await check(api, jobs, STRICT_PROFILE)


MPIRUN = """
ranks="--allow-run-as-root -n 2 python3 /opt/payload/mpi_ranks.py"
for try in 1 2 3; do
  timeout --kill-after 5 40 mpirun $ranks && exit
  sleep 5
done
exit 1
"""


SOURCE = {"sidecar.istio.io/interceptionMode": "TPROXY"}
"""Open MPI takes no connection whose source is not an address of the other pod."""


async def test_ranks_of_an_mpi_job_add(api, node, jax):
    loaded = node.testbed.load_images(["app-mpi", "kubectl-delivery"])
    operator = await api.get("Deployment", "training-operator", addons.TRAINING_OPERATOR)
    (main,) = operator["spec"]["template"]["spec"]["containers"]
    args = [*main["args"], f"--mpi-kubectl-delivery-image={loaded['kubectl-delivery']}"]
    change = {"containers": [{**main, "args": args}]}
    await api.patch(
        "Deployment",
        "training-operator",
        addons.TRAINING_OPERATOR,
        {"spec": {"template": {"spec": change}}},
    )
    where = ("--namespace", addons.TRAINING_OPERATOR, "--timeout=120s")
    await asyncio.to_thread(
        node.testbed.kubectl, "rollout", "status", "deployment/training-operator", *where
    )
    jobs = [
        dataclasses.replace(
            real(loaded["app-mpi"], STRICT_PROFILE, ("MPIJob", 3, "classic", is_changed)),
            command=("sh", "-c", MPIRUN),
            annotations={**CPU, **workloads.CLASSIC, **SOURCE},
        )
        for is_changed in (True, False)
    ]
    await check(api, jobs, STRICT_PROFILE)


async def test_nodes_of_a_ray_job_exchange_arrays(api, node, jax):
    await asyncio.to_thread(parts.install, node.testbed, "kuberay")
    image = node.testbed.load_images(["app-ray"])["app-ray"]
    jobs = [
        dataclasses.replace(
            real(image, STRICT_PROFILE, ("RayJob", 3, "native", is_changed)),
            command=tuple(workloads.payload("ray_tasks.py", 3)),
        )
        for is_changed in (True, False)
    ]
    await check(api, jobs, STRICT_PROFILE, at_once=3)


async def test_workers_of_tensorflow_train(api, node, jax):
    """They call each other by headless Services, and need no change of the charm."""
    image = node.testbed.load_images(["app-tensorflow"])["app-tensorflow"]
    jobs = [
        dataclasses.replace(
            real(image, STRICT_PROFILE, ("TFJob", 3, "classic", is_changed)),
            command=tuple(workloads.payload("multi_worker.py")),
        )
        for is_changed in (True, False)
    ]
    found = await training_world.run_all(api, jobs, at_once=6, within=WITHIN)
    assert found == dict.fromkeys((job.name for job in jobs), True)


async def test_collectives_end_in_jobs_of_other_kinds(api, jax):
    rows = itertools.product(OTHERS, (3,), ("classic",), (True, False))
    jobs = [real(jax, STRICT_PROFILE, row) for row in rows]
    await check(api, jobs, STRICT_PROFILE)


def small(node, name, *arguments, **fields):
    """A job whose ranks need no JAX."""
    return Job(
        kind="PyTorchJob",
        namespace=STRICT_PROFILE.name,
        name=name,
        image=node.charms.payload_image,
        command=tuple(workloads.payload("ranks.py", *arguments)),
        annotations={**CPU, **workloads.CLASSIC},
        **fields,
    )


@pytest.mark.cluster("")
async def test_ranks_meet_where_a_node_agent_redirects(cni_node, cni_api):
    await set_up(cni_node, cni_api, STRICT_PROFILE)
    jobs = [
        dataclasses.replace(
            small(cni_node, f"{sidecar}{suffix}", labels=labels),
            annotations={**CPU, **annotations},
        )
        for sidecar, annotations in SIDECARS.items()
        for suffix, labels in (("", {}), ("-unchanged", training_world.UNCHANGED))
    ]
    await check(cni_api, jobs, STRICT_PROFILE)


async def until_connected(api, job):
    """Wait until the first rank of a PyTorchJob has met the others."""

    async def is_connected():
        with contextlib.suppress(kubernetes.ApiError):
            text = await api.log(job.namespace, f"{job.name}-master-0", "pytorch")
            return "connected" in text
        return False

    await observer.eventually(is_connected, 120, f"the ranks of {job.name} connected")


async def test_deleted_worker_is_replaced(api, node, jax):
    job = small(node, "replaced", "--steps", 20, "--pause", 1, policy="OnFailure")
    await api.apply(*job.objects())
    await until_connected(api, job)
    (worker,) = await pods.renewed(
        api, job.namespace, f"{JOB_NAME}=replaced,{REPLICA}=worker,{INDEX}=1"
    )
    assert worker["metadata"]["labels"][names.POD_TRAFFIC] == names.MUTUAL_TLS
    assert await training_world.end_of(api, job, WITHIN)


async def test_suspended_job_resumes(api, node, jax):
    job = small(node, "suspended", "--steps", 20, "--pause", 1)
    await api.apply(*job.objects())
    await until_connected(api, job)
    policy = {"spec": {"runPolicy": {"suspend": True}}}
    await api.patch(job.kind, job.name, job.namespace, policy)

    async def are_gone():
        return not await api.list("Pod", job.namespace, f"{JOB_NAME}={job.name}")

    await observer.eventually(are_gone, 120, "no pod of the suspended job")
    policy["spec"]["runPolicy"]["suspend"] = False
    await api.patch(job.kind, job.name, job.namespace, policy)
    assert await training_world.end_of(api, job, WITHIN)


async def test_containers_that_a_rule_restarts_connect_again(api, node, jax):
    once = "test -e /state/ran || { touch /state/ran; exit 3; }; exec"
    row = ("JobSet", 3, "classic", True)
    job = dataclasses.replace(real(jax, STRICT_PROFILE, row), name="by-rule")
    (found,) = job.objects()
    (replicated,) = found["spec"]["replicatedJobs"]
    spec = replicated["template"]["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "state", "emptyDir": {}}]
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}}
    (main,) = spec["containers"]
    main |= {
        "command": ["sh", "-c", f'{once} "$@"', "-", *main["command"]],
        "restartPolicy": "Never",
        "restartPolicyRules": [rule],
        "volumeMounts": [{"name": "state", "mountPath": "/state"}],
    }
    await api.apply(found)
    assert await training_world.end_of(api, job, WITHIN)


async def test_fifty_jobs_in_a_row_succeed(api, node, jax, record_property):
    jobs = [small(node, f"row-{number}", "--steps", 5) for number in range(50)]
    began = time.monotonic()
    found = await training_world.run_all(api, jobs, at_once=3, within=WITHIN)
    record_property("training: 50 jobs of 3 pods in a row, s", round(time.monotonic() - began))
    assert [name for name, has_succeeded in found.items() if not has_succeeded] == []


async def join(api, node, controller, namespace):
    """Let a Node join, whose network the charm finds."""
    unit = await api.get("Pod", f"{juju.APPLICATION}-0", MODEL)
    network = str(training.network_of(unit["status"]["podIP"]))
    (first,) = await api.list("Node")
    await api.patch("Node", first["metadata"]["name"], "", {"spec": pod_network(network)})
    await controller.set(juju.APPLICATION, pod_networks="")
    joined = "198.51.100.0"
    await api.apply(
        kubernetes_objects.made("v1", "Node", "joined", spec=pod_network(f"{joined}/24"))
    )

    async def is_known():
        found = await training.find_filter(api, namespace, MODEL)
        return found and joined in json.dumps(found["spec"])

    await observer.eventually(is_known, 120, "the network of the new node known")


async def refresh(api, node, controller, namespace):
    """Refresh the charm with itself."""
    hook = (juju.APPLICATION, "upgrade-charm")
    before = await controller.count_hooks(*hook)
    charm = node.charms.integrator
    await controller.do("refresh", juju.APPLICATION, charm.path, charm.resources)

    async def has_run():
        return await controller.count_hooks(*hook) > before

    await observer.eventually(has_run, 180, "the charm refreshed")
    await controller.wait_for("active", 120)


async def allow_plain_text(api, node, controller, namespace):
    """Take strict mutual TLS away."""
    await api.delete("PeerAuthentication.security.istio.io", "default", namespace)


async def lift_policy(api, node, controller, namespace):
    """Take the policy of the profile away."""
    policy = workloads.profile_policy(namespace)
    await api.delete(policy["kind"], policy["metadata"]["name"], namespace)


async def allow_everything(api, node, controller, namespace):
    """Write a policy that denies nothing."""
    rules = {"action": "ALLOW", "rules": [{}]}
    await api.apply(workloads.istio("AuthorizationPolicy", "everything", namespace, **rules))


OPEN = SETTINGS[0]


@pytest.mark.parametrize(
    ("change", "setting", "labels", "goes_on"),
    [
        (join, STRICT_PROFILE, {}, True),
        (refresh, STRICT_PROFILE, {}, True),
        # istiod changes the filter chain by which a pod takes connections, and Envoy ends them.
        (allow_plain_text, STRICT_PROFILE, {}, False),
        (lift_policy, STRICT_PROFILE, {}, False),
        (allow_everything, OPEN, training_world.UNCHANGED, False),
    ],
)
async def test_running_job_outlives_changes(api, node, jax, *, change, setting, labels, goes_on):
    controller = node.juju(MODEL)
    name = change.__name__.replace("_", "-")
    job = small(node, name, "--steps", 90, "--pause", 1, labels=labels)
    job = dataclasses.replace(job, namespace=setting.name)
    await api.apply(*job.objects())
    await until_connected(api, job)
    try:
        await change(api, node, controller, job.namespace)
        assert await training_world.end_of(api, job, WITHIN) is goes_on
    finally:
        await api.delete(job.kind, job.name, job.namespace)
        await api.delete("Node", "joined")
        await api.delete("AuthorizationPolicy.security.istio.io", "everything", OPEN.name)
        await training.name_networks(controller, api)
        await api.apply(*setting.objects(names.name_owner(MODEL, juju.APPLICATION)))


def pod_network(text):
    return {"podCIDR": text, "podCIDRs": [text]}


SERVE = """
import socketserver, threading
class Answer(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.recv(9)
        self.request.sendall(b"served")
for port in (23456, 34567):
    server = socketserver.ThreadingTCPServer(("", port), Answer)
    threading.Thread(target=server.serve_forever).start()
"""
CALL = """
import json, socket, sys
def is_served(port):
    try:
        with socket.create_connection((sys.argv[1], port), 5) as peer:
            # Envoy waits for more where the first bytes may be the beginning of HTTP.
            peer.sendall(b"\\0")
            return peer.recv(9) == b"served"
    except OSError:
        return False
print(json.dumps([is_served(23456), is_served(34567)]))
"""
MARKED = {names.POD_TRAFFIC: names.MUTUAL_TLS}
CALLERS = {
    "outside": ("callers", {}),
    "neighbour": ("kf-user-permissive", {}),
    "neighbour-marked": ("kf-user-permissive", MARKED),
    "same": (STRICT_PROFILE.name, {}),
    "same-marked": (STRICT_PROFILE.name, MARKED),
}
"""Pods that try to open ports of a job: their namespace and labels."""


async def test_charm_opens_ports_of_a_job_to_jobs_of_its_namespace_alone(api, node, jax):
    await api.apply(workloads.namespace("callers"))
    image = node.charms.payload_image
    jobs = [
        dataclasses.replace(
            small(node, name, pods=2, labels=labels), command=("python3", "-c", SERVE)
        )
        for name, labels in (("served", {}), ("served-unchanged", training_world.UNCHANGED))
    ]
    main = workloads.container("main", image, ["sleep", "1000"])
    callers = [
        workloads.pod(name, place, workloads.template([main], labels=labels, annotations=CPU))
        for name, (place, labels) in CALLERS.items()
    ]
    await api.apply(*callers, *(each for job in jobs for each in job.objects()))

    async def are_ready():
        found = [await api.find("Pod", name, place) for name, (place, _) in CALLERS.items()]
        return all(each and timeline.is_ready(each) for each in found)

    await observer.eventually(are_ready, 120, "the callers Ready")
    for job in jobs:

        async def is_served(job=job):
            return await called(node, api, job, "same-marked") == [True, True]

        await observer.eventually(is_served, 120, f"{job.name} served to a job")
        found = {name: await called(node, api, job, name) for name in CALLERS}
        # The declared port, and the other one.
        assert found == {
            name: [name.startswith("same"), name == "same-marked"] for name in CALLERS
        }
        await api.delete(job.kind, job.name, job.namespace)


async def called(node, api, job, caller):
    """Have a pod call both ports of a job's first pod; None while that does not run."""
    with contextlib.suppress(kubernetes.ApiError, KeyError):
        master = await api.get("Pod", f"{job.name}-master-0", job.namespace)
        argv = ("exec", "-n", CALLERS[caller][0], caller, "-c", "main", "--")
        argv = (*argv, "python3", "-c", CALL, master["status"]["podIP"])
        run = await asyncio.to_thread(node.testbed.kubectl, *argv)
        return json.loads(run.stdout)

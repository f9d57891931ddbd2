"""Cases from public bug reports on a node: what happens to an application that works.

Each test has a model of its own. Another team's policy, template or image exists before the charm.
"""

import pytest

from testbed import kubernetes
from testbed.kit import juju, observer, workloads
from tests.e2e import life_world

pytestmark = [pytest.mark.long, pytest.mark.timeout(900), pytest.mark.cluster("today")]

PROXY = "istio-proxy"
MISSING_IMAGE = "localhost/nowhere/proxyv2:9.9"


@pytest.fixture
async def world(node, api, request):
    """A model of the test's own, gone afterwards."""
    async with life_world.model(node, api, request.node.name) as made:
        yield made


def policy(name, model, resources, expression, message):
    """A ValidatingAdmissionPolicy of another team for one namespace, with its binding."""
    kind = "admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": model}},
            "resourceRules": [{**rule, "resources": resources}],
        },
        "validations": [{"expression": expression, "message": message, "reason": "Forbidden"}],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    return (
        {
            "apiVersion": kind,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": spec,
        },
        {
            "apiVersion": kind,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": binding,
        },
    )


@pytest.fixture
async def forbid(world):
    """Apply policies about pods, and delete them before the model goes."""
    applied = []

    async def apply(name, expression, message, *, labels=None, annotations=None):
        pair = policy(name, world.model, ["pods"], expression, message)
        applied.extend(pair)
        await world.api.apply(*pair)
        body = workloads.template(
            [workloads.container("main", "unused", ["true"])],
            labels=labels,
            annotations=annotations,
        )
        trial = workloads.pod("refused", world.model, body)

        async def is_refused():
            try:
                await world.api.create(trial, dry_run=True)
            except kubernetes.ApiError as error:
                return message in str(error)
            return False

        await observer.eventually(is_refused, 30, f"{name} in effect", every=0.1)

    yield apply
    for each in reversed(applied):
        await world.api.delete(each["kind"], each["metadata"]["name"])


def sleeping(world, name, *, annotations=None, inits=(), labels=None):
    """A Deployment of one pod that waits."""
    wait = ["python3", "-c", "import time; time.sleep(1e9)"]
    container = workloads.container("main", world.node.charms.payload_image, wait)
    template = workloads.template([container], annotations=annotations, labels=labels)
    template["spec"]["terminationGracePeriodSeconds"] = 1
    if inits:
        template["spec"]["initContainers"] = list(inits)
    return workloads.deployment(name, world.model, template)


async def pods_of(world, name):
    """The live pods of a Deployment that this module made."""
    found = await world.api.list("Pod", world.model, labels=f"app={name}")
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def is_ready(pod):
    """Whether the kubelet says that the pod is Ready."""
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def containers(pod):
    """The names of a pod's containers, those of init containers first."""
    spec = pod["spec"]
    return [each["name"] for each in (*spec.get("initContainers", ()), *spec["containers"])]


async def until_ready(world, name, *, in_mesh, within=240):
    """Wait until a Deployment's only pod is Ready, with or without a sidecar; return it."""

    async def ready():
        pods = await pods_of(world, name)
        fits = [pod for pod in pods if is_ready(pod) and (PROXY in containers(pod)) is in_mesh]
        return fits[0] if len(pods) == 1 and fits else None

    return await observer.eventually(ready, within, f"{name} Ready, in the mesh: {in_mesh}")


async def recreated(world, pod):
    """Delete a pod; return the one that its controller makes, once it is Ready."""
    await world.api.delete("Pod", pod["metadata"]["name"], world.model, grace=0)

    async def ready():
        pods = await pods_of(world, pod["metadata"]["labels"]["app"])
        return next(
            (
                each
                for each in pods
                if is_ready(each) and each["metadata"]["uid"] != pod["metadata"]["uid"]
            ),
            None,
        )

    return await observer.eventually(ready, 120, f"{pod['metadata']['name']} recreated")


async def reported(world, job, reason):
    """Wait for an Event of this reason about a pod of a Job; return it."""

    async def found():
        events = await world.api.list("Event", world.model)
        return [
            each
            for each in events
            if each["reason"] == reason and each["involvedObject"]["name"].startswith(f"{job}-")
        ]

    (event, *_) = await observer.eventually(found, 120, f"Event {reason}")
    return event


async def completed(world, job):
    """Wait until a Job is complete."""

    async def is_complete():
        found = await world.api.get("Job", job, world.model)
        return found.get("status", {}).get("succeeded")

    await observer.eventually(is_complete, 120, f"{job} complete")


async def test_policy_against_the_hold_costs_the_hold_alone(world, forbid):
    await forbid(
        "no-istio-overrides",
        "!has(object.metadata.annotations)"
        " || !('proxy.istio.io/config' in object.metadata.annotations)",
        "the annotation proxy.istio.io/config is not allowed on pods",
        annotations={"proxy.istio.io/config": "{}"},
    )
    await world.api.apply(sleeping(world, "catalogue"))
    await until_ready(world, "catalogue", in_mesh=False)
    await world.deploy()
    pod = await until_ready(world, "catalogue", in_mesh=True)
    assert "proxy.istio.io/config" not in pod["metadata"]["annotations"]
    status = await world.juju.until(
        lambda status: "no-istio-overrides" in status.message, 240, "names the policy"
    )
    assert "no-istio-overrides" in status.message[:100]
    assert PROXY in containers(await recreated(world, pod))


async def test_policy_against_pods_outside_keeps_no_pod_from_coming(world, forbid):
    await forbid(
        "nobody-outside",
        "!has(object.metadata.labels) || !('sidecar.istio.io/inject' in object.metadata.labels)"
        " || object.metadata.labels['sidecar.istio.io/inject'] != 'false'",
        "pods may not leave the mesh",
        labels=workloads.NO_SIDECAR,
    )
    await world.deploy()
    await world.juju.until(
        lambda status: "nobody-outside" in status.message, 300, "names the policy"
    )
    (operator,) = await world.api.list(
        "Pod", world.model, labels="operator.juju.is/name=modeloperator"
    )
    await world.api.delete("Pod", operator["metadata"]["name"], world.model, grace=0)

    async def is_back():
        pods = await world.api.list(
            "Pod", world.model, labels="operator.juju.is/name=modeloperator"
        )
        return [pod for pod in pods if pod["metadata"]["uid"] != operator["metadata"]["uid"]]

    await observer.eventually(is_back, 60, "modeloperator's next pod")


async def test_finished_work_whose_proxy_never_started_is_reported(world):
    await world.deploy()
    await world.active()
    main = workloads.container(
        "report", world.node.charms.payload_image, ["python3", "-c", "import time; time.sleep(3)"]
    )
    broken = {"name": PROXY, "image": MISSING_IMAGE, "imagePullPolicy": "Never"}
    template = workloads.template(
        [main, broken],
        restart_policy="Never",
        annotations={"proxy.istio.io/config": "holdApplicationUntilProxyStarts: false"},
    )
    await world.api.apply(workloads.job("nightly", world.model, template))

    event = await reported(world, "nightly", "ProxyNotRunning")
    assert "ErrImageNeverPull" in event["message"]


async def test_finished_work_beside_a_proxy_without_envoy_names_what_ends_it(world):
    await world.deploy()
    await world.active()
    template = workloads.template(
        [workloads.container("settle", world.node.charms.payload_image, ["python3", "-c", ""])],
        restart_policy="OnFailure",
        annotations={"inject.istio.io/templates": "grpc-agent"},
    )
    await world.api.apply(workloads.job("settle-accounts", world.model, template))
    event = await reported(world, "settle-accounts", "ProxyWithoutEnvoy")
    (pod,) = await world.api.list("Pod", world.model, labels="job-name=settle-accounts")
    # The testbed's image of the proxy has no shell to run it in.
    command = f"exec {pod['metadata']['name']} -c istio-proxy -- bash -c 'kill 1'"
    assert f"run: kubectl -n {world.model} {command}" in event["message"]


async def test_finished_work_whose_helper_stopped_the_proxy_is_not_repeated(world):
    await world.juju.do(
        "deploy",
        world.node.charms.integrator.path,
        juju.APPLICATION,
        resources=world.node.charms.integrator.resources,
        config={"delete-broken-pods": "true", "job-sidecars": "classic"},
    )
    await world.active()
    image = world.node.charms.payload_image
    quits = """
import contextlib, time, urllib.request
time.sleep(5)
with contextlib.suppress(OSError):  # The proxy may end before it answers.
    urllib.request.urlopen(urllib.request.Request(
        "http://127.0.0.1:15020/quitquitquit", method="POST"))
time.sleep(45)
"""
    template = workloads.template(
        [
            workloads.container("backup", image, ["python3", "-c", ""]),
            workloads.container("quitter", image, ["python3", "-c", quits]),
        ],
        restart_policy="Never",
    )
    await world.api.apply(workloads.job("backup", world.model, template))
    event = await reported(world, "backup", "PodNotReplaced")
    assert "backup succeeded" in event["message"]
    await completed(world, "backup")
    pods = await world.api.list("Pod", world.model, labels="job-name=backup")
    assert [pod["metadata"]["name"] for pod in pods] == [event["involvedObject"]["name"]]


def helper(world):
    """A native helper whose startup probe istiod leads to the proxy."""
    probe = {
        "httpGet": {"path": "/", "port": 9801},
        "periodSeconds": 1,
        "failureThreshold": 30,
    }
    return workloads.container(
        "db-proxy",
        world.node.charms.payload_image,
        ["python3", "-m", "http.server", "9801"],
        restartPolicy="Always",
        startupProbe=probe,
    )


async def test_pod_that_cannot_start_with_a_classic_proxy_is_left_running(world):
    await world.api.apply(sleeping(world, "orders", inits=[helper(world)]))
    before = await until_ready(world, "orders", in_mesh=False)
    await world.deploy()
    await until_ready(world, "stays", in_mesh=True)
    await world.juju.until(lambda status: "orders" in status.message, 240, "names orders")
    (after,) = await pods_of(world, "orders")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert is_ready(after)


async def test_pod_that_cannot_start_with_a_classic_proxy_gets_a_native_one(world):
    await world.api.apply(sleeping(world, "orders", inits=[helper(world)]))
    await until_ready(world, "orders", in_mesh=False)
    await world.juju.do(
        "deploy",
        world.node.charms.integrator.path,
        juju.APPLICATION,
        resources=world.node.charms.integrator.resources,
        config={"job-sidecars": "auto"},
    )
    pod = await until_ready(world, "orders", in_mesh=True, within=300)
    assert PROXY not in [each["name"] for each in pod["spec"]["containers"]]


async def test_only_one_application_is_lost_where_no_replacement_starts(world):
    names = [f"app-{number}" for number in range(6)]
    image = {"sidecar.istio.io/proxyImage": MISSING_IMAGE}
    stays = {"spec": {"template": {"metadata": {"annotations": image}}}}
    await world.api.patch("Deployment", "stays", world.model, stays)
    await world.api.apply(*(sleeping(world, name, annotations=image) for name in names))
    before = {}
    for name in (*names, "stays"):
        before[name] = (await until_ready(world, name, in_mesh=False))["metadata"]["uid"]
    await world.deploy()
    status = await world.juju.wait_for("blocked", 400)
    lost = []
    for name, uid in before.items():
        pods = await pods_of(world, name)
        if [pod["metadata"]["uid"] for pod in pods if is_ready(pod)] != [uid]:
            lost.append(name)
    assert len(lost) == 1
    assert lost[0] in status.message
    assert "Image" in status.message
    # Once the cause is mended convergence goes on by itself.
    mended = {"spec": {"template": {"metadata": {"annotations": {next(iter(image)): None}}}}}
    for name in before:
        await world.api.patch("Deployment", name, world.model, mended)
    await world.active(within=400, in_mesh=len(before))

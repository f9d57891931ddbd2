"""Trial pods beside the pods that Kubernetes' own controllers create, and beside real policies."""

import datetime
import json
import random
import re
import uuid

import msgspec
import pytest
from sidecar_lifecycle.decide.convergence import trial
from sidecar_lifecycle.model import resources, types

from integrator_contract import names, refusals, rejections
from integrator_contract.pods import Settings as Wanted
from testbed import kubernetes
from tests import admission_policies, kubernetes_objects
from tests.functional import convergence_world
from tests.functional.convergence_world import APPLICATION, until
from tests.unit.cases import cases

SEED = 20261125
OF_EACH_KIND = 12
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OF_ITS_OWN = ("name", "uid", "resourceVersion", "creationTimestamp", "managedFields", "generation")


@pytest.fixture
async def world(kubeconfig, namespace):
    async with convergence_world.living(kubeconfig, namespace) as world:
        yield world


@pytest.fixture
async def node(world):
    """A Node that DaemonSets get pods on, though nothing runs there."""
    name = f"node-{uuid.uuid4().hex[:8]}"
    await world.api.create(kubernetes_objects.made("v1", "Node", name))
    now = datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now, "reason": "Test"}
    await world.api.request(
        "PATCH",
        f"/api/v1/nodes/{name}/status",
        body={"status": {"conditions": [ready]}},
        content_type="application/strategic-merge-patch+json",
    )
    yield name
    await world.api.delete("Node", name)


def some(choice, **fields):
    """Return a few of the fields."""
    return {key: value for key, value in fields.items() if choice.random() < 0.5}


def template(choice, app):
    """Return a pod template as people write them, of whatever seed."""
    taint = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
    preferred = [{"weight": 1, "preference": term}]
    required = {"nodeSelectorTerms": [term]}
    spread = {"topologyKey": "kubernetes.io/hostname"}
    apart = {**spread, "labelSelector": {"matchLabels": {"app": app}}}
    volumes = [{"name": "data", "emptyDir": {}}, {"name": "cache", "emptyDir": {}}]
    container = {
        "name": "main",
        "image": f"x.invalid/x:{choice.randrange(9)}",
        **some(
            choice,
            env=[{"name": "A", "value": str(choice.randrange(9))}],
            securityContext={"runAsNonRoot": True},
            resources={"requests": {"cpu": f"{choice.randrange(1, 9)}m"}},
        ),
    }
    helper = {"name": "helper", "image": "x.invalid/x", "restartPolicy": "Always"}
    spec = {
        "containers": [container],
        **some(
            choice,
            volumes=choice.sample(volumes, choice.randint(1, 2)),
            initContainers=[helper],
            tolerations=choice.sample(
                [{**taint, "tolerationSeconds": 7}, {"key": "gpu", "operator": "Exists"}, taint],
                choice.randint(1, 2),
            ),
            affinity=some(
                choice,
                nodeAffinity=some(
                    choice,
                    preferredDuringSchedulingIgnoredDuringExecution=preferred,
                    **{REQUIRED: required},
                ),
                podAntiAffinity={REQUIRED: [apart]},
            ),
            hostNetwork=True,
            hostname="other",
            subdomain="other",
            automountServiceAccountToken=False,
            securityContext={"fsGroup": 7},
            priorityClassName="system-cluster-critical",
            terminationGracePeriodSeconds=choice.randrange(60),
        ),
    }
    meta = {
        "labels": {"app": app, **some(choice, tier="front")},
        **some(choice, annotations={"note": "x", "sidecar.istio.io/inject": "true"}),
    }
    return {"metadata": meta, "spec": spec}


def workload(choice, kind, app):
    spec = {"selector": {"matchLabels": {"app": app}}, "template": template(choice, app)}
    if kind == "DaemonSet":
        # A Node that nothing schedules to has no zone.
        affinity = spec["template"]["spec"].get("affinity", {})
        affinity.get("nodeAffinity", {}).pop(REQUIRED, None)
        return spec
    spec["replicas"] = choice.randint(1, 2)
    if kind == "StatefulSet":
        claim = {
            "metadata": {"name": choice.choice(["data", "more"])},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Mi"}},
            },
        }
        spec |= {
            "podManagementPolicy": "Parallel",
            **some(
                choice,
                serviceName=app,
                volumeClaimTemplates=[claim],
                ordinals={"start": choice.randrange(5)},
                updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 1}},
            ),
        }
    return spec


async def owned_pods(world, kind, app, count):
    """Wait for the pods of a workload."""
    found = []

    async def there():
        nonlocal found
        found = await world.api.list("Pod", world.namespace, f"app={app}")
        return len(found) == count

    await until(there)
    if kind == "DaemonSet":
        for pod in found:
            await bind(world, pod)
    return found


async def bind(world, pod):
    """Schedule a DaemonSet's pod to its node."""
    terms = pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    target = {"kind": "Node", "name": terms[0]["matchFields"][0]["values"][0]}
    name = pod["metadata"]["name"]
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    binding = f"/api/v1/namespaces/{world.namespace}/pods/{name}/binding"
    await world.api.request("POST", binding, body=body)


def comparable(pod, name):
    """Return a pod without what each has of its own."""
    meta = {key: value for key, value in pod["metadata"].items() if key not in OF_ITS_OWN}
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    text = json.dumps({"metadata": meta, "spec": spec}, sort_keys=True)
    return json.loads(re.sub(r"kube-api-access-\w{5}", "kube-api-access", text)), name


async def trial_of(world, real):
    """Return the dry-run pod in place of a pod, as the API server completes it."""
    (owner,) = real["metadata"]["ownerReferences"]
    found = await world.api.get(owner["kind"], owner["name"], world.namespace)
    creator, replaced = msgspec.convert(found, resources.Creator), msgspec.convert(real, types.Pod)
    made = msgspec.to_builtins(trial.make_pod_of(owner["kind"], creator, replaced))
    made["metadata"]["namespace"] = world.namespace
    return await world.api.create(made, dry_run=True)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
async def test_trial_pod_is_the_pod_that_the_controller_creates(world, node, kind):
    choice = random.Random(f"{SEED} {kind}")
    specs = {
        f"app-{number}": workload(choice, kind, f"app-{number}") for number in range(OF_EACH_KIND)
    }
    for app, spec in specs.items():
        await world.api.create(
            kubernetes_objects.made("apps/v1", kind, app, world.namespace, spec)
        )
    for app, spec in specs.items():

        async def noted(app=app):
            # The controller writes the revisions after the first pods.
            found = await world.api.get(kind, app, world.namespace)
            return found["status"].get("observedGeneration") == found["metadata"]["generation"]

        await until(noted)
        for real in await owned_pods(world, kind, app, spec.get("replicas", 1)):
            name = real["metadata"]["name"]
            current = await world.api.get("Pod", name, world.namespace)
            made = await trial_of(world, current)
            assert comparable(made, app) == comparable(real, app)
            if kind == "StatefulSet":
                assert made["metadata"]["name"] == f"{name}{trial.SUFFIX}"


IN_EFFECT = "!('in-effect' in object.metadata.?labels.orValue({}))"


@pytest.mark.parametrize("kind", ["Job", "CronJob"])
async def test_trial_pod_is_the_pod_that_a_job_creates(world, kind):
    choice = random.Random(f"{SEED} {kind}")
    job = {"template": template(choice, "task")}
    job["template"]["spec"]["restartPolicy"] = "Never"
    spec = job
    if kind == "CronJob":
        spec = {"schedule": "* * * * *", "jobTemplate": {"spec": job}, "suspend": True}
    await world.api.create(
        kubernetes_objects.made("batch/v1", kind, "task", world.namespace, spec)
    )
    found = await world.api.get(kind, "task", world.namespace)
    made = trial.make_pod_of(kind, msgspec.convert(found, resources.Creator))
    made = msgspec.to_builtins(made)
    made["metadata"]["namespace"] = world.namespace
    created = await world.api.create(made, dry_run=True)
    if kind == "CronJob":
        # No controller creates a Job of a suspended one; the API server admits its pod.
        assert created["spec"]["restartPolicy"] == "Never"
        assert created["metadata"]["ownerReferences"][0]["kind"] == "Job"
        return
    (real,) = await owned_pods(world, kind, "task", 1)
    assert comparable(created, "task") == comparable(real, "task")


@pytest.fixture
async def forbid(world):
    """Create a policy of another team, and wait until it is in effect."""
    name = f"policy-{world.namespace}"
    made = []

    async def create(expression):
        asked = {"expression": IN_EFFECT, "message": "in effect"}
        rule = {"expression": expression, "message": "not allowed here", "reason": "Forbidden"}
        made.extend(admission_policies.validating(name, world.namespace, asked, rule))
        await world.api.apply(*made)
        metadata = {"labels": {"in-effect": "asked"}}
        pod = kubernetes_objects.pod("x", world.namespace, metadata, **convergence_world.SPEC)

        async def in_effect():
            try:
                await world.api.create(pod, dry_run=True)
            except kubernetes.ApiError:
                return True

        await until(in_effect)
        return name

    yield create
    for each in made:
        await world.api.delete(each["kind"], name)


async def write(world, name, key, value):
    """Create a ConfigMap that has a value as JSON."""
    data = {key: msgspec.json.encode(value).decode()}
    await world.api.create(
        kubernetes_objects.made("v1", "ConfigMap", name, world.namespace, data=data)
    )


@cases(
    ("expression", "changes", "workloads"),
    no_bare_pods=("has(object.metadata.ownerReferences)", [], []),
    allowed_registries=(
        "object.spec.containers.all(c, c.image.startsWith('x.') || c.name == 'istio-proxy')",
        *([], []),
    ),
    no_overrides=(
        f"!('{names.PROXY_CONFIG}' in object.metadata.?annotations.orValue({{}}))",
        *(["hold"], []),
    ),
    nobody_outside=(
        f"object.metadata.?labels['{names.INJECT}'].orValue('') != 'false'",
        *(["excluded"], []),
    ),
    no_pods=("false", [], ["Deployment/shop"]),
)
async def test_policy_of_another_team_decides_by_the_pod_that_the_controller_makes(
    world, forbid, expression, changes, workloads
):
    """The changes that it forbids are told from its other refusals."""
    await world.workload("Deployment", "shop")
    # This charm's own, whose image and owner the cluster has admitted.
    owner = await world.owner("of-the-charm")
    labels = {names.NAME: APPLICATION}
    await world.pod(f"{APPLICATION}-0", ownerReferences=[owner], labels=labels)
    wanted = Wanted(application=APPLICATION, model=world.namespace, native=True)
    await write(world, f"{APPLICATION}-admission", "settings.json", wanted.to_document())
    # An earlier policy forbade another change.
    earlier = rejections.Rejections(changes={"native": refusals.Refusal(author="x", words="")})
    await write(world, rejections.name_config_map(APPLICATION), rejections.KEY, earlier)
    await world.join()
    author = f"ValidatingAdmissionPolicy {await forbid(expression)}"
    refusal = refusals.Refusal(author=author, words="not allowed here")
    rejected = rejections.Rejections(
        changes=dict.fromkeys(changes, refusal), workloads=dict.fromkeys(workloads, refusal)
    )

    async def is_remembered():
        text = (await world.remembered())["data"][rejections.KEY]
        return msgspec.json.decode(text, type=rejections.Rejections) == rejected

    async with world.converging() as service:
        await until(is_remembered)

        async def is_replaced():
            return any((await world.injected()).values())

        async def is_held():
            (pod,) = (await service.get("/uninjected"))["pods"]
            return (pod["reason"], pod["message"]) == ("ReplacementRefused", str(refusal))

        await until(is_held if workloads else is_replaced)


async def test_template_that_a_daemon_set_withholds_is_not_rolled_out(world, node):
    """The API server counts where a template that waits for its pods' deletion is looked up."""
    template = {"metadata": {"labels": {"app": "x"}}, "spec": convergence_world.SPEC}
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    spec["updateStrategy"] = {"type": "OnDelete"}
    await world.api.create(
        kubernetes_objects.made("apps/v1", "DaemonSet", "x", world.namespace, spec)
    )
    await owned_pods(world, "DaemonSet", "x", 1)
    await world.join()
    async with world.converging(leader=False) as service:
        (before,) = (await service.get("/uninjected"))["pods"]
        change = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
        await world.api.patch("DaemonSet", "x", world.namespace, change)
        (after,) = (await service.get("/uninjected"))["pods"]
    assert before["reason"] != after["reason"] == "TemplateWithheld"

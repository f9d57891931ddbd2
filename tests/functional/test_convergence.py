"""Convergence against a real control plane: evictions, budgets, admission and conflicts.

The workloads' own controllers and the disruption controller are real too. A policy plays Istio's
injector, and `World.kubelet` reports pods as Ready, since there is no node.
"""

import asyncio
import contextlib
import datetime
import json

import prometheus_client
import pytest
from sidecar_lifecycle import cli, names
from sidecar_lifecycle.convergence import controller, memory, resources
from sidecar_lifecycle.convergence.settings import Settings
from sidecar_lifecycle.kube import client as kube_client
from sidecar_lifecycle.kube import errors, types
from sidecar_lifecycle.kube.client import path

APPLICATION = "istio-integrator"
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
BUDGETS = "/apis/policy/v1/namespaces/{}/poddisruptionbudgets"
SPEC = {"containers": [{"name": "main", "image": "x.invalid/x"}]}


class Impatient:
    """A clock that does not wait long for anything, and says that it did."""

    def __init__(self):
        self.skew = 0.0

    def now(self):
        return datetime.datetime.now(tz=datetime.UTC).timestamp() + self.skew

    async def wait(self, event, seconds):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, 0.05)):
                await event.wait()
                return
        self.skew += max(0.0, seconds - 0.05)


class Leader:
    is_leader = True


class World:
    """The namespace, the stand-in for its injector, and the hands of the other controllers."""

    def __init__(self, client, namespace):
        self.client = client
        self.namespace = namespace
        self.reported = []
        """Names of the pods that came up, in order."""

    async def request(self, method, where, body=None, **arguments):
        data = await self.client.transport.request(method, where, body=body, **arguments)
        return json.loads(data)

    async def join(self):
        name = f"injector-{self.namespace}"
        honest = "object.metadata.?labels['lies'].orValue('') != 'yes'"
        policy = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "reinvocationPolicy": "Never",
                "matchConstraints": {
                    "namespaceSelector": {
                        "matchLabels": {"kubernetes.io/metadata.name": self.namespace}
                    },
                    "resourceRules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "operations": ["CREATE"],
                            "resources": ["pods"],
                        }
                    ],
                },
                "matchConditions": [
                    {
                        "name": "not-lying",
                        "expression": f"{honest} || request.dryRun",
                    },
                    {
                        "name": "not-skipped",
                        "expression": "object.metadata.?labels['skip'].orValue('') != 'yes'",
                    },
                ],
                "mutations": [
                    {
                        "patchType": "JSONPatch",
                        "jsonPatch": {
                            "expression": '[JSONPatch{op: "add", path: "/spec/containers/-", '
                            'value: Object.spec.containers{name: "istio-proxy", '
                            'image: "x:1.30.4"}}]'
                        },
                    }
                ],
            },
        }
        await self.request("POST", POLICIES, policy)
        await self.bind()
        labels = {"metadata": {"labels": {"istio-injection": "enabled"}}}
        await self.request(
            "PATCH",
            path(types.Namespace, name=self.namespace),
            labels,
            content_type="application/merge-patch+json",
        )

    async def bind(self):
        name = f"injector-{self.namespace}"
        binding = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name},
        }
        await self.request("POST", BINDINGS, binding)
        await self.until_injecting(True)

    async def unbind(self):
        await self.request("DELETE", f"{BINDINGS}/injector-{self.namespace}")
        await self.until_injecting(False)

    async def until_injecting(self, wanted):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "try-"},
            "spec": SPEC,
        }
        for _ in range(200):
            with contextlib.suppress(errors.StatusError):
                created = await self.request(
                    "POST", path(types.Pod, self.namespace), pod, params={"dryRun": "All"}
                )
                if (len(created["spec"]["containers"]) == 2) is wanted:
                    return
            await asyncio.sleep(0.05)
        raise AssertionError(f"the injector's stand-in injects: {not wanted}")

    async def upgrade(self, version):
        """Have pods get a newer proxy from now on."""
        name = f"{POLICIES}/injector-{self.namespace}"
        policy = await self.request("GET", name)
        patch = policy["spec"]["mutations"][0]["jsonPatch"]
        patch["expression"] = patch["expression"].replace("1.30.4", version)
        await self.request("PUT", name, policy)
        pod = {"kind": "Pod", "metadata": {"generateName": "try-"}, "spec": SPEC}

        async def upgraded():
            created = await self.request(
                "POST",
                path(types.Pod, self.namespace),
                {"apiVersion": "v1", **pod},
                params={"dryRun": "All"},
            )
            return created["spec"]["containers"][1]["image"].endswith(version)

        await self.until(upgraded)

    async def remove(self):
        for where in (BINDINGS, POLICIES):
            with contextlib.suppress(errors.StatusError):
                await self.request("DELETE", f"{where}/injector-{self.namespace}")

    async def workload(self, kind, name, *, replicas=1, owner=None, labels=None, annotations=None):
        """Create a workload and see its pods Ready."""
        body = {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {
                "name": name,
                "annotations": annotations or {},
                "ownerReferences": [owner] if owner else [],
            },
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name, **(labels or {})}},
                    "spec": SPEC,
                },
            },
        }
        if kind == "StatefulSet":
            body["spec"] |= {"serviceName": name, "podManagementPolicy": "Parallel"}
        plural = f"/apis/apps/v1/namespaces/{self.namespace}/{kind.lower()}s"
        created = await self.request("POST", plural, body)

        async def ready():
            status = (await self.request("GET", f"{plural}/{name}"))["status"]
            return status.get("readyReplicas") == replicas

        async with self.kubelet():
            await self.until(ready)
        return _reference("apps/v1", created)

    async def owner(self, name):
        """Create something that can own a workload."""
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        created = await self.request("POST", path(resources.ConfigMap, self.namespace), body)
        return _reference("v1", created)

    async def bare_pod(self, name):
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": SPEC}
        await self.request("POST", path(types.Pod, self.namespace), body)

    @contextlib.asynccontextmanager
    async def kubelet(self):
        """Report every pod as Ready for two minutes."""

        async def report():
            while True:
                listing = await self.request("GET", path(types.Pod, self.namespace))
                for pod in listing["items"]:
                    if pod["status"].get("phase") != "Running":
                        with contextlib.suppress(errors.StatusError):
                            await self.report_ready(pod["metadata"])
                await asyncio.sleep(0.05)

        task = asyncio.create_task(report())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def report_ready(self, metadata):
        when = datetime.datetime.now(tz=datetime.UTC) - datetime.timedelta(minutes=2)
        ready = {
            "type": "Ready",
            "status": "True",
            "lastTransitionTime": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        await self.request(
            "PATCH",
            path(types.Pod, self.namespace, metadata["name"], "status"),
            {"status": {"phase": "Running", "conditions": [ready]}},
            content_type="application/merge-patch+json",
        )
        self.reported.append(metadata["name"])

    async def budget(self, name, available):
        """Have so many pods be available; the disruption controller does the rest."""
        where = BUDGETS.format(self.namespace)
        spec = {"minAvailable": available, "selector": {"matchLabels": {"app": name}}}
        body = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name},
            "spec": spec,
        }
        params = {"fieldManager": "test", "force": "true"}
        await self.request(
            "PATCH",
            f"{where}/{name}",
            body,
            params=params,
            content_type="application/apply-patch+yaml",
        )

        async def counted():
            status = (await self.request("GET", f"{where}/{name}")).get("status", {})
            return status.get("disruptionsAllowed") == 2 - available

        await self.until(counted)

    async def injected(self):
        """Return which pods have the sidecar."""
        listing = await self.request("GET", path(types.Pod, self.namespace))
        return {
            each["metadata"]["name"]: len(each["spec"]["containers"]) == 2
            for each in listing["items"]
        }

    async def remembered(self):
        name = f"{APPLICATION}-convergence"
        return await self.request("GET", path(resources.ConfigMap, self.namespace, name))

    @contextlib.asynccontextmanager
    async def converging(self, **settings):
        """Run the controller and what stands in for the others."""
        registry = prometheus_client.CollectorRegistry()
        clock = Impatient()
        wishes = Settings(model=self.namespace, application=APPLICATION, **settings)

        running = controller.run(self.client, wishes, Leader(), registry=registry, clock=clock)
        async with self.kubelet():
            task = asyncio.create_task(running)
            yield registry
            task.cancel()
            (result,) = await asyncio.gather(task, return_exceptions=True)
            assert isinstance(result, asyncio.CancelledError), result

    async def until(self, condition, seconds=30.0):
        for _ in range(int(seconds * 10)):
            if await condition():
                return
            await asyncio.sleep(0.1)
        raise AssertionError("it did not become true in time")


def _reference(version, created):
    return {
        "apiVersion": version,
        "kind": created["kind"],
        "name": created["metadata"]["name"],
        "uid": created["metadata"]["uid"],
        "controller": True,
    }


@pytest.fixture
async def world(kubeconfig, namespace):
    client = kube_client.connect(str(kubeconfig))
    world = World(client, namespace)
    yield world
    await world.remove()
    await client.close()


async def test_what_missed_its_sidecar_is_replaced_and_nothing_else_is(world):
    await world.workload("StatefulSet", "one")
    await world.workload("StatefulSet", "three", replicas=3)
    await world.workload("Deployment", "web", replicas=2)
    await world.workload("StatefulSet", "nb", owner=await world.owner("notebook"))
    disabled = {names.CONVERGENCE: "disabled"}
    await world.workload("Deployment", "left-alone", annotations=disabled)
    await world.workload(
        "StatefulSet", "modeloperator", labels={"operator.juju.is/name": "modeloperator"}
    )
    await world.bare_pod("bare")
    await world.join()
    before = await world.injected()
    assert not any(before.values())

    async def converged():
        now = await world.injected()
        return sum(now.values()) == 6 and len(now) == 10

    async with world.converging(max_unavailable=1) as registry:
        await world.until(converged)
        await asyncio.sleep(0.5)

    after = await world.injected()
    untouched = {name for name, has in after.items() if not has}
    assert untouched == {"bare", "nb-0", "modeloperator-0"} | {
        name for name in before if name.startswith("left-alone")
    }
    sample = "sidecar_lifecycle_evictions_total"
    assert registry.get_sample_value(sample, {"result": "evicted"}) == 6
    stored = await world.remembered()
    assert stored["metadata"]["labels"][names.MANAGED_BY] == "istio-integrator"
    assert not memory.decode(stored["data"]).rounds
    events = await world.request("GET", path(types.Event, world.namespace))
    assert sum(each["reason"] == "SidecarMissing" for each in events["items"]) == 6


async def test_a_disruption_budget_is_waited_for(world, kubeconfig, capsys):
    await world.workload("Deployment", "web", replicas=2)
    await world.workload("StatefulSet", "other")
    await world.budget("web", 2)
    await world.join()

    async with world.converging(max_unavailable=1) as registry:

        async def refused():
            return registry.get_sample_value(
                "sidecar_lifecycle_evictions_total", {"result": "budget"}
            )

        await world.until(refused)

        async def other_converged():
            return (await world.injected()).get("other-0")

        await world.until(other_converged)
        assert sum((await world.injected()).values()) == 1
        stored = memory.decode((await world.remembered())["data"])
        assert stored.pauses["Deployment/web"].reason == "DisruptionBudget"
        scope = ["--model", world.namespace, "--application", APPLICATION, "--output", "json"]
        command = ["uninjected", *scope, "--kubeconfig", str(kubeconfig)]
        assert await asyncio.to_thread(cli.main, command) == 0
        summary = json.loads(capsys.readouterr().out.splitlines()[-1])["summary"]
        assert (summary["in_mesh"], summary["eligible"], summary["converging"]) == (1, 3, 0)
        (paused,) = summary["paused"]
        assert paused["reason"] == "DisruptionBudget"
        assert "disruption budget" in paused["message"]

        await world.budget("web", 1)

        async def converged():
            return sum((await world.injected()).values()) == 3

        await world.until(converged)


async def test_a_replacement_without_sidecar_ends_it_also_for_the_next_leader(world):
    await world.workload("StatefulSet", "liar", labels={"lies": "yes"})
    await world.workload("StatefulSet", "skipped", labels={"skip": "yes"})
    await world.join()

    async def guarded():
        with contextlib.suppress(errors.StatusError):
            guards = memory.decode((await world.remembered())["data"]).guards
            return {"StatefulSet/liar", "StatefulSet/skipped"} <= set(guards)
        return False

    async with world.converging():
        await world.until(guarded)
    made = list(world.reported)
    guards = memory.decode((await world.remembered())["data"]).guards
    assert guards["StatefulSet/liar"].reason == "StillNoSidecar"
    assert guards["StatefulSet/skipped"].reason == "InjectorSkips"
    assert made.count("liar-0") == 2
    assert made.count("skipped-0") == 1

    async with world.converging():
        await asyncio.sleep(2)
    assert world.reported == made


async def test_nothing_is_evicted_while_the_mesh_is_away(world):
    await world.workload("StatefulSet", "one")
    await world.join()
    await world.unbind()

    async with world.converging():
        await asyncio.sleep(2)
        assert world.reported == ["one-0"]
        await world.bind()

        async def converged():
            return (await world.injected()).get("one-0")

        await world.until(converged)


async def test_a_restart_by_hand_is_done_by_the_leader(world, kubeconfig, capsys):
    await world.workload("StatefulSet", "one")
    await world.workload("StatefulSet", "two")
    await world.join()
    scope = ["--model", world.namespace, "--application", APPLICATION]
    command = ["uninjected", *scope, "--convergence", "manual", "--kubeconfig", str(kubeconfig)]

    async with world.converging(mode="manual"):
        await asyncio.sleep(1)
        assert not any((await world.injected()).values())
        assert await asyncio.to_thread(cli.main, [*command, "--output", "json"]) == 0
        *rows, last = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [(row["name"], row["reason"]) for row in rows] == [
            ("one-0", "NotAsked"),
            ("two-0", "NotAsked"),
        ]
        assert last["summary"] == {
            "eligible": 2,
            "in_mesh": 0,
            "converging": 0,
            "proposed": 2,
            "guarded": [],
            "paused": [],
            "reported": 0,
            "settled_before_us": False,
            "stale": 0,
        }

        assert await asyncio.to_thread(cli.main, [*command, "--restart", "--pod", "one-0"]) == 0
        assert "1 of 1 pods replaced" in capsys.readouterr().out
        assert await world.injected() == {"one-0": True, "two-0": False}

        arguments = [*command, "--restart", "--no-wait", "--output", "json"]
        assert await asyncio.to_thread(cli.main, arguments) == 0
        (row,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert (row["name"], row["fixable"]) == ("two-0", True)

        async def converged():
            return await world.injected() == {"one-0": True, "two-0": True}

        await world.until(converged)


async def test_pods_with_an_old_proxy_are_renewed_when_it_is_asked_for(world, kubeconfig, capsys):
    await world.join()
    await world.workload("StatefulSet", "one")
    await world.upgrade("1.31.1")
    await world.workload("StatefulSet", "two")
    scope = ["--model", world.namespace, "--application", APPLICATION, "--output", "json"]
    command = ["uninjected", *scope, "--kubeconfig", str(kubeconfig)]
    command += ["--proxy-version", "1.31.1"]

    async with world.converging():
        assert await asyncio.to_thread(cli.main, command) == 0
        (last,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        counts = last["summary"]
        assert (counts["in_mesh"], counts["eligible"], counts["stale"]) == (2, 2, 1)
        assert await asyncio.to_thread(cli.main, [*command, "--stale"]) == 0
        row, last = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert (row["name"], row["fixable"]) == ("one-0", True)
        assert row["message"] == "its proxy is 1.30.4, istiod is 1.31.1"

        assert await asyncio.to_thread(cli.main, [*command, "--restart", "--stale"]) == 0
        first = capsys.readouterr().out.splitlines()[0]
        assert json.loads(first)["name"] == "one-0"
        assert await asyncio.to_thread(cli.main, [*command, "--stale"]) == 0
        (last,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert (last["summary"]["in_mesh"], last["summary"]["stale"]) == (2, 0)


async def test_two_that_both_believe_to_lead_keep_the_limits_together(world):
    for name in ("one", "two", "three"):
        await world.workload("StatefulSet", name)
    await world.join()

    async def converged():
        return list((await world.injected()).values()) == [True] * 3

    async def evictions(registry):
        sample = "sidecar_lifecycle_evictions_total"
        return registry.get_sample_value(sample, {"result": "evicted"}) or 0

    async with (
        world.converging(max_unavailable=1) as first,
        world.converging(max_unavailable=1) as second,
    ):
        most = 0

        async def converged_one_by_one():
            nonlocal most
            with contextlib.suppress(errors.StatusError):
                rounds = memory.decode((await world.remembered())["data"]).rounds
                most = max(most, len(rounds))
            return await converged()

        await world.until(converged_one_by_one)
        assert most <= 1
        assert await evictions(first) + await evictions(second) == 3


async def test_pods_of_other_namespaces_are_only_listed(world, kubeconfig, capsys):
    profile = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": f"{world.namespace}-profile",
            "labels": {names.PART_OF: names.PROFILE, "istio-injection": "enabled"},
        },
    }
    await world.request("POST", path(types.Namespace), profile)
    theirs = World(world.client, f"{world.namespace}-profile")
    await theirs.bare_pod("theirs")
    arguments = ["--model", world.namespace, "--application", APPLICATION, "--output", "json"]
    kinds = ["--lifecycle-namespaces", "model,profiles", "--kubeconfig", str(kubeconfig)]

    assert await asyncio.to_thread(cli.main, ["uninjected", *arguments, *kinds]) == 0
    row, last = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (row["namespace"], row["name"]) == (theirs.namespace, "theirs")
    assert (row["fixable"], row["reason"]) == (False, "OtherNamespace")
    assert last["summary"]["reported"] == 1
    await world.request("DELETE", path(types.Namespace, name=theirs.namespace))

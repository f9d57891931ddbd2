"""A namespace of a real control plane whose pods converge, and what plays the missing parts.

The workloads' own controllers and the disruption controller are real. A policy plays Istio's
injector, and `World.kubelet` reports pods as Ready, since there is no node.
"""

import asyncio
import contextlib
import datetime

from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell import metrics
from sidecar_lifecycle.shell.convergence import cluster as hands
from sidecar_lifecycle.shell.convergence import controller
from sidecar_lifecycle.shell.kube.client import path
from sidecar_lifecycle.shell.settings import Live, ServiceSettings

from integrator_contract import names
from testbed import kubernetes
from testbed.kit import workloads
from tests import admission_policies, workload_access
from tests.kubernetes_objects import made, pod, workload
from tests.unit.workload.fake_apiserver import running_task

APPLICATION = "istio-integrator"
SPEC = {"containers": [{"name": "main", "image": "x.invalid/x"}]}


class Impatient(hands.Clock):
    """A clock that does not wait long for anything."""

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


class World:
    """The namespace, the stand-in for its injector, and the hands of the other controllers."""

    def __init__(self, client, api, namespace):
        self.client = client
        """The workload's own."""
        self.api = api
        self.namespace = namespace

    async def join(self):
        await self.api.apply(
            made("v1", "ConfigMap", "istio-ca-root-cert", self.namespace), *self._injector()
        )
        await self.until(self.is_injecting)
        labels = {"metadata": {"labels": {names.INJECTION: "enabled"}}}
        await self.api.patch("Namespace", self.namespace, "", labels)

    def _injector(self):
        proxy = 'Object.spec.containers{name: "istio-proxy", image: "x:1.30.4"}'
        patches = {
            "/spec/containers/-": proxy,
            "/metadata/annotations": "object.metadata.?annotations.orValue({})",
            "/metadata/annotations/sidecar.istio.io~1status": '"{}"',
        }
        added = (
            f'JSONPatch{{op: "add", path: "{at}", value: {it}}}' for at, it in patches.items()
        )
        patch = f"[{', '.join(added)}]"
        return admission_policies.mutating(
            f"injector-{self.namespace}", patch, namespace=self.namespace
        )

    async def is_injecting(self):
        with contextlib.suppress(kubernetes.ApiError):
            created = await self.api.create(pod("try", self.namespace, **SPEC), dry_run=True)
            return len(created["spec"]["containers"]) == 2

    async def remove(self):
        for each in self._injector():
            await self.api.delete(each["kind"], each["metadata"]["name"])

    async def workload(self, kind, name, *, replicas=1, owner=None, labels=None, annotations=None):
        """Create a workload and see its pods Ready."""
        metadata = {
            "annotations": annotations or {},
            "ownerReferences": [owner] if owner else [],
        }
        body = workload(kind, name, self.namespace, {"app": name}, metadata, **SPEC)
        body["spec"]["replicas"] = replicas
        body["spec"]["template"]["metadata"] = {"labels": {"app": name, **(labels or {})}}
        if kind == "StatefulSet":
            body["spec"]["podManagementPolicy"] = "Parallel"
        created = await self.api.create(body)

        async def ready():
            status = (await self.api.get(kind, name, self.namespace))["status"]
            return status.get("readyReplicas") == replicas

        async with self.kubelet():
            await self.until(ready)
        return _reference(created)

    async def owner(self, name):
        """Create something that can own a workload."""
        return _reference(await self.api.create(made("v1", "ConfigMap", name, self.namespace)))

    async def bare_pod(self, name):
        await self.api.create(pod(name, self.namespace, **SPEC))

    def kubelet(self):
        """Report every pod that has started as Ready for two minutes."""

        async def report():
            while True:
                for each in await self.api.list("Pod", self.namespace):
                    is_new = each["status"].get("phase") != "Running"
                    if self.has_started(each["metadata"]) and is_new:
                        with contextlib.suppress(kubernetes.ApiError):
                            await self.report_ready(each["metadata"])
                await asyncio.sleep(0.05)

        return running_task(report())

    def has_started(self, metadata):
        """Tell whether a pod is as far as to be Ready: here all are at once."""
        return True

    async def report_ready(self, metadata):
        when = datetime.datetime.now(tz=datetime.UTC) - datetime.timedelta(minutes=2)
        ready = {
            "type": "Ready",
            "status": "True",
            "lastTransitionTime": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        await self.api.request(
            "PATCH",
            path(types.Pod, self.namespace, metadata["name"], "status"),
            body={"status": {"phase": "Running", "conditions": [ready]}},
            content_type="application/merge-patch+json",
        )

    async def budget(self, name, available):
        """Have so many pods be available; the disruption controller does the rest."""
        await self.api.apply(workloads.budget(name, self.namespace, minAvailable=available))

        async def counted():
            budget = await self.api.get("PodDisruptionBudget", name, self.namespace)
            return budget.get("status", {}).get("disruptionsAllowed") == 2 - available

        await self.until(counted)

    async def injected(self):
        """Return which pods have the sidecar."""
        return {
            each["metadata"]["name"]: len(each["spec"]["containers"]) == 2
            for each in await self.api.list("Pod", self.namespace)
        }

    async def events(self, reason):
        """Count the Events with a reason."""
        listed = await self.api.list("Event", self.namespace)
        return sum(each["reason"] == reason for each in listed)

    async def remembered(self):
        return await self.api.get("ConfigMap", f"{APPLICATION}-convergence", self.namespace)

    @contextlib.asynccontextmanager
    async def converging(self, **settings):
        """Run the controller, and what stands in for the others."""
        metrics.EVICTIONS.clear()
        options = ServiceSettings(
            model=self.namespace,
            application=APPLICATION,
            unit=f"{APPLICATION}/0",
            joined=True,
            leader=True,
            **settings,
        )
        running = controller.run(self.client, Live(options), clock=Impatient())
        async with self.kubelet():
            task = asyncio.create_task(running)
            yield metrics.REGISTRY
            task.cancel()
            (result,) = await asyncio.gather(task, return_exceptions=True)
            assert isinstance(result, asyncio.CancelledError), result

    async def until(self, condition, seconds=30.0):
        for _ in range(int(seconds * 10)):
            if await condition():
                return
            await asyncio.sleep(0.1)
        raise AssertionError("it did not become true in time")


def _reference(created):
    return {
        "apiVersion": created["apiVersion"],
        "kind": created["kind"],
        "name": created["metadata"]["name"],
        "uid": created["metadata"]["uid"],
        "controller": True,
    }


@contextlib.asynccontextmanager
async def living(kubeconfig, namespace):
    """Connect to the namespace, and take everything out of it at the end."""
    client = workload_access.connect(kubeconfig)
    async with kubernetes.Api.from_kubeconfig(kubeconfig) as api:
        world = World(client, api, namespace)
        yield world
        await world.remove()
    await client.close()

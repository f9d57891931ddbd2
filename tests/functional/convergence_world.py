"""A namespace of a real control plane whose pods converge, and what plays the missing parts.

The workloads' own controllers and the disruption controller are real. A policy plays Istio's
injector, and `World.kubelet` reports pods as Ready, since there is no node.
"""

import asyncio
import contextlib
import datetime
import json

from sidecar_lifecycle.model import resources, types
from sidecar_lifecycle.shell import metrics
from sidecar_lifecycle.shell.convergence import cluster as hands
from sidecar_lifecycle.shell.convergence import controller
from sidecar_lifecycle.shell.kube import errors
from sidecar_lifecycle.shell.kube.client import path
from sidecar_lifecycle.shell.settings import Live, ServiceSettings

from integrator_contract import names
from tests import admission_policies, workload_access

APPLICATION = "istio-integrator"
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
BUDGETS = "/apis/policy/v1/namespaces/{}/poddisruptionbudgets"
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

    def __init__(self, client, namespace):
        self.client = client
        self.namespace = namespace

    async def request(self, method, where, body=None, **arguments):
        data = await self.client.request(method, where, body=body, **arguments)
        return json.loads(data)

    async def join(self):
        certificate = {"metadata": {"name": "istio-ca-root-cert"}}
        body = {"apiVersion": "v1", "kind": "ConfigMap", **certificate}
        with contextlib.suppress(errors.StatusError):
            await self.request("POST", path(resources.ConfigMap, self.namespace), body)
        for where, item in zip((POLICIES, BINDINGS), self._injector(), strict=True):
            await self.request("POST", where, item)
        await self.until(self.is_injecting)
        await self.request(
            "PATCH",
            path(types.Namespace, name=self.namespace),
            {"metadata": {"labels": {names.INJECTION: "enabled"}}},
            content_type="application/merge-patch+json",
        )

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
        pod = {"metadata": {"generateName": "try-"}, "spec": SPEC}
        with contextlib.suppress(errors.StatusError):
            where = path(types.Pod, self.namespace)
            created = await self.request("POST", where, pod, params={"dryRun": "All"})
            return len(created["spec"]["containers"]) == 2

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
        """Report every pod that has started as Ready for two minutes."""

        async def report():
            while True:
                listing = await self.request("GET", path(types.Pod, self.namespace))
                for pod in listing["items"]:
                    is_new = pod["status"].get("phase") != "Running"
                    if self.has_started(pod["metadata"]) and is_new:
                        with contextlib.suppress(errors.StatusError):
                            await self.report_ready(pod["metadata"])
                await asyncio.sleep(0.05)

        task = asyncio.create_task(report())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

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
        await self.request(
            "PATCH",
            path(types.Pod, self.namespace, metadata["name"], "status"),
            {"status": {"phase": "Running", "conditions": [ready]}},
            content_type="application/merge-patch+json",
        )

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

    async def events(self, reason):
        """Count the Events with a reason."""
        listing = await self.request("GET", path(types.Event, self.namespace))
        return sum(each["reason"] == reason for each in listing["items"])

    async def remembered(self):
        name = f"{APPLICATION}-convergence"
        return await self.request("GET", path(resources.ConfigMap, self.namespace, name))

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


def _reference(version, created):
    return {
        "apiVersion": version,
        "kind": created["kind"],
        "name": created["metadata"]["name"],
        "uid": created["metadata"]["uid"],
        "controller": True,
    }


@contextlib.asynccontextmanager
async def living(kubeconfig, namespace):
    """Connect to the namespace, and take everything out of it at the end."""
    client = workload_access.connect(kubeconfig)
    world = World(client, namespace)
    yield world
    await world.remove()
    await client.close()

"""A namespace of a real control plane whose pods converge, and what plays the missing parts.

The workloads' own controllers and the disruption controller are real. A policy plays Istio's
injector, and `World.kubelet` reports pods as Ready, since there is no node.
"""

import asyncio
import contextlib
import dataclasses
import datetime
import functools

from integrator_contract import names, namespaces
from testbed import kubernetes
from testbed.kit import workloads
from tests import admission_policies, workload_access
from tests.kubernetes_objects import made, pod, workload
from tests.unit.workload import fake_apiserver, service_world
from tests.unit.workload.service_world import APPLICATION

SPEC = {"containers": [{"name": "main", "image": "x.invalid/x"}]}
until = functools.partial(fake_apiserver.until, seconds=60)


class World:
    """The namespace, the stand-in for its injector, and the hands of the other controllers."""

    def __init__(self, kubeconfig, api, namespace):
        self.kubeconfig = kubeconfig
        self.api = api
        self.namespace = namespace
        self.application = APPLICATION

    async def join(self):
        await self.api.apply(
            made("v1", "ConfigMap", "istio-ca-root-cert", self.namespace), *self._injector()
        )
        await until(self.is_injecting)
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
        metadata = {"annotations": annotations or {}, "ownerReferences": [owner] if owner else []}
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
            await until(ready)
        return _reference(created)

    async def owner(self, name):
        """Create something that can own a workload."""
        return _reference(await self.api.create(made("v1", "ConfigMap", name, self.namespace)))

    async def pod(self, name, **metadata):
        """Create a pod that no controller recreates."""
        await self.api.create(pod(name, self.namespace, metadata, **SPEC))

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

        return fake_apiserver.running_task(report())

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
            f"/api/v1/namespaces/{self.namespace}/pods/{metadata['name']}/status",
            body={"status": {"phase": "Running", "conditions": [ready]}},
            content_type="application/merge-patch+json",
        )

    async def budget(self, name, available):
        """Have so many pods be available; the disruption controller does the rest."""
        await self.api.apply(workloads.budget(name, self.namespace, minAvailable=available))

        async def counted():
            budget = await self.api.get("PodDisruptionBudget", name, self.namespace)
            return budget.get("status", {}).get("disruptionsAllowed") == 2 - available

        await until(counted)

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
        return await self.api.get("ConfigMap", f"{self.application}-convergence", self.namespace)

    @contextlib.asynccontextmanager
    async def converging(self, **settings):
        """Run the leader's service in the joined model, with a stand-in for the kubelet."""
        unit = dataclasses.replace(
            service_world.SETTINGS,
            model=self.namespace,
            application=self.application,
            joined=True,
            served_namespaces=namespaces.MODEL_ONLY,
        )
        connection = workload_access.connect(self.kubeconfig)
        async with self.kubelet(), service_world.serving(connection, unit, **settings) as service:
            yield service


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
    async with kubernetes.Api.from_kubeconfig(kubeconfig) as api:
        world = World(kubeconfig, api, namespace)
        yield world
        await world.remove()

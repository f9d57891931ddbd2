"""Take istiod away and bring it back, as if Istio were installed after everything else.

What goes is what makes an istiod visible: its Deployment and the injector's webhook
configurations. Its certificate authority stays in a Secret, so workloads trust the one that comes.
"""

import copy
import dataclasses

from testbed import kubernetes
from testbed.kit import objects, observer

NAMESPACE = "istio-system"
_SERVER_FIELDS = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "ownerReferences",
)


@dataclasses.dataclass
class Istiod:
    """The istiod of the cluster."""

    api: kubernetes.Api
    # What was taken away, to be brought back.
    saved: list[kubernetes.Object] = dataclasses.field(default_factory=list)
    is_away: bool = False

    @property
    def keys(self) -> list[objects.Key]:
        """The objects that were taken away and brought back."""
        return [
            objects.Key(
                item["apiVersion"].rpartition("/")[0],
                item["kind"],
                item["metadata"].get("namespace", ""),
                item["metadata"]["name"],
            )
            for item in self.saved
        ]

    async def remove(self) -> None:
        """Delete it and wait until its pod is gone."""
        found = [
            {"apiVersion": "apps/v1", "kind": "Deployment", **item}
            for item in await self.api.list("Deployment", NAMESPACE, labels="app=istiod")
        ]
        kind = "MutatingWebhookConfiguration"
        found += [
            {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, **item}
            for item in await self.api.list(kind)
            if item["metadata"]["name"].startswith(("istio-sidecar-", "istio-revision-tag-"))
        ]
        self.saved, self.is_away = [creatable(item) for item in found], True
        for item in reversed(self.saved):
            metadata = item["metadata"]
            await self.api.delete(item["kind"], metadata["name"], metadata.get("namespace", ""))

        async def is_gone() -> bool:
            return not await self.api.list("Pod", NAMESPACE, labels="app=istiod")

        await observer.eventually(is_gone, 180, "istiod's pod gone")

    async def install(self) -> None:
        """Bring it back and wait until it serves."""
        for item in self.saved:
            await self.api.create(item)
        self.is_away = False
        await self.wait_until_ready()

    async def wait_until_ready(self, within: float = 90) -> None:
        """Wait until the Deployment is available, or one outside has named its authority."""

        async def is_available() -> bool:
            items = await self.api.list("Deployment", NAMESPACE, labels="app=istiod")
            if items:
                return any(item.get("status", {}).get("availableReplicas") for item in items)
            found = await self.api.list("MutatingWebhookConfiguration")
            clients = [hook["clientConfig"] for item in found for hook in item.get("webhooks", ())]
            outside = [client for client in clients if client.get("url")]
            return bool(outside) and all(client.get("caBundle") for client in outside)

        await observer.eventually(is_available, within, "istiod available")


def creatable(item: kubernetes.Object) -> kubernetes.Object:
    """Return the object as it would be written to create it again."""
    result = copy.deepcopy(item)
    result.pop("status", None)
    for field in _SERVER_FIELDS:
        result["metadata"].pop(field, None)
    return result

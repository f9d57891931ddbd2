"""Bring the cluster to what the models say."""

import hashlib
import json
import logging
from typing import Any

from testbed import kubernetes

from . import objects
from .state import Application, Model

logger = logging.getLogger(__name__)

DELETED_WITH_APPLICATION = (
    "StatefulSet",
    "Deployment",
    "DaemonSet",
    "Service",
    "ConfigMap",
    "Secret",
    "Ingress",
    "RoleBinding",
    "Role",
    "ServiceAccount",
    "ClusterRoleBinding",
    "ClusterRole",
    "CustomResourceDefinition",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
)
"""What Juju deletes by label when an application goes."""

DELETED_WITH_MODEL = (
    "ClusterRoleBinding",
    "ClusterRole",
    "CustomResourceDefinition",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
    "StorageClass",
)
"""Cluster-scoped kinds that Juju deletes by the model's labels."""


class Substrate:
    """The Kubernetes side of the controller."""

    def __init__(self, client: kubernetes.Api, image: str, address: str, certificate: str) -> None:
        self._client = client
        self._image = image
        self._address = address
        self._certificate = certificate
        self._applied: dict[tuple[str, str], str] = {}

    async def version(self) -> str:
        """The cluster's version, which charms see as CLOUD_API_VERSION."""
        answer = json.loads(await self._client.request("GET", "/version"))
        return answer["gitVersion"].removeprefix("v")

    async def has_namespace(self, name: str) -> bool:
        """Whether a namespace of this name exists."""
        return await self._client.find("Namespace", name) is not None

    async def ensure_model(self, model: Model) -> None:
        """Create the namespace once, and the model operator."""
        if not model.has_namespace:
            # One that was there before keeps its labels.
            if not await self.has_namespace(model.name):
                await self._client.create(objects.namespace(model))
            model.has_namespace = True
        operator = objects.model_operator(model, self._image, self._address, self._certificate)
        await self._apply((model.uuid, ""), operator)

    async def ensure_application(self, model: Model, application: Application) -> None:
        """Apply an application's objects when they are others than last time."""
        wanted = objects.application_objects(
            model,
            application,
            image=self._image,
            controller=self._address,
            certificate=self._certificate,
        )
        await self._apply((model.uuid, application.name), wanted)
        if not application.service_address:
            service = await self._client.find("Service", application.name, model.name)
            application.service_address = service["spec"]["clusterIP"] if service else ""

    async def list_pods(self, model: Model, application: Application) -> list[dict[str, Any]]:
        """Read an application's pods by the label by which Juju selects them."""
        selector = f"app.kubernetes.io/name={application.name}"
        return await self._client.list("Pod", model.name, selector)

    async def abandon_application(self, model: Model, application: Application) -> None:
        """Scale an application that is removed by force to nothing; its objects stay."""
        await self._client.apply(objects.stateful_set(model, application, self._image))
        self._applied.pop((model.uuid, application.name), None)
        model.abandoned.append(application.name)

    async def delete_application(self, model: Model, application: Application) -> None:
        """Delete an application's objects, and by label what its charm created."""
        for wanted in reversed(
            objects.application_objects(
                model, application, image="", controller="", certificate=""
            )
        ):
            meta = wanted["metadata"]
            await self._client.delete(wanted["kind"], meta["name"], meta.get("namespace", ""))
        own = objects.model_labels(model)
        selectors = (
            {"app.kubernetes.io/name": application.name, **own},
            {"app.juju.is/created-by": application.name, **own, **objects.MANAGED},
        )
        for kind in DELETED_WITH_APPLICATION:
            for selector in selectors:
                await self._delete_all(kind, selector, model.name)
        self._applied.pop((model.uuid, application.name), None)

    async def delete_model(self, model: Model) -> None:
        """Delete the namespace and the model's cluster-scoped objects."""
        await self._client.delete(
            "MutatingWebhookConfiguration", f"juju-model-admission-{model.name}"
        )
        for kind in DELETED_WITH_MODEL:
            await self._delete_all(kind, objects.model_labels(model))
        # Their labels name the controller's model.
        for name in (objects.OPERATOR, *model.abandoned):
            for kind in ("ClusterRoleBinding", "ClusterRole"):
                await self._client.delete(kind, f"{model.name}-{name}")
        await self._client.delete("Namespace", model.name)

    async def _apply(self, key: tuple[str, str], wanted: list[dict[str, Any]]) -> None:
        digest = hashlib.sha256(json.dumps(wanted).encode()).hexdigest()
        if self._applied.get(key) == digest:
            return
        for thing in wanted:
            await self._client.apply(thing)
        self._applied[key] = digest

    async def _delete_all(self, kind: str, labels: dict[str, str], namespace: str = "") -> None:
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        for found in await self._client.list(kind, namespace, selector):
            logger.info("deleting %s %s", kind, found["metadata"]["name"])
            await self._client.delete(kind, found["metadata"]["name"], namespace)

"""Models whose application is held by rbac/admission-policy.yaml, on a real kube-apiserver."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import yaml
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import User

from testbed import cluster
from tests import admission_policies, kubernetes_objects, rights, waiting
from tests.api import Api

APP = rights.APPLICATION


@dataclasses.dataclass(frozen=True)
class World:
    """A model, and what an application in it is let do."""

    model: str
    api: Api
    """As the administrator."""
    app: Api
    """As the application."""

    @property
    def owner(self) -> str:
        """The value of the application's owner label."""
        return f"{self.model}.{APP}"


@contextlib.contextmanager
def connected(testbed: cluster.Testbed, model: str) -> Iterator[Api]:
    """The API server, with the token of the model's application."""
    made = testbed.kubectl("-n", model, "create", "token", APP)
    admin = KubeConfig.from_file(testbed.kubeconfig).get()
    assert admin is not None
    config = admin._replace(user=User(token=made.stdout.strip()))
    with Api(config) as api:
        yield api


@contextlib.contextmanager
def trusted(testbed: cluster.Testbed, model: str) -> Iterator[None]:
    """Give the application what `juju trust --scope=cluster` gives."""
    name = f"{model}-trust"
    who = f"--serviceaccount={model}:{APP}"
    testbed.kubectl("create", "clusterrolebinding", name, "--clusterrole=cluster-admin", who)
    try:
        yield
    finally:
        testbed.kubectl("delete", "clusterrolebinding", name)


@contextlib.contextmanager
def limited(testbed: cluster.Testbed, world: World) -> Iterator[None]:
    """Apply the policy, and wait until the API server enforces it for the application."""
    limits = rights.admission_policy(world.model)
    text = f"{limits}\n---\n{yaml.safe_dump_all(juju_webhook(world.model))}"
    testbed.kubectl("apply", "-f", "-", text=text)
    try:
        assert waiting.eventually(lambda: _is_limited(testbed, world.model))
        yield
    finally:
        testbed.kubectl("delete", "--ignore-not-found", "-f", "-", text=text)


def juju_webhook(model: str) -> Iterator[dict[str, Any]]:
    """Play Juju's own webhook, which marks whatever an application writes in its model.

    Here that is of built-in groups: a policy knows new definitions after a while only.
    """
    mark, path = "app.juju.is/created-by", "/metadata/labels"
    add = f'JSONPatch{{op: "add", path: "{path}/{mark.replace("/", "~1")}", value: "{APP}"}}'
    anew = f'JSONPatch{{op: "add", path: "{path}", value: {{"{mark}": "{APP}"}}}}'
    groups = ["", "apps", "policy", "rbac.authorization.k8s.io", "coordination.k8s.io"]
    rule = {"apiGroups": groups, "apiVersions": ["*"], "resources": ["*"]}
    is_ours = f'request.userInfo.username == "{user(model)}"'
    return admission_policies.mutating(
        f"juju-{model}",
        f"[has(object.metadata.labels) ? {add} : {anew}]",
        failurePolicy="Ignore",
        matchConstraints={"resourceRules": [{**rule, "operations": ["CREATE", "UPDATE"]}]},
        matchConditions=[{"name": "ours", "expression": is_ours}],
    )


def _is_limited(testbed: cluster.Testbed, model: str) -> bool:
    """Try to create a pod as the application; delete it if it was admitted."""
    text, who = json.dumps(pod(model)), f"--as={user(model)}"
    said = testbed.kubectl("create", "-f", "-", who, text=text, check=False)
    if not said.returncode:
        testbed.kubectl("delete", "-f", "-", text=text)
    return "dry run only" in said.stderr


def user(model: str) -> str:
    """The name that API servers know the application by."""
    return f"system:serviceaccount:{model}:{APP}"


def pod(namespace: str, name: str = "real", account: str = APP, **metadata: Any) -> dict[str, Any]:
    """A pod that runs as the application."""
    spec = {"serviceAccountName": account, "automountServiceAccountToken": False}
    return kubernetes_objects.pod(name, namespace, metadata, **spec)

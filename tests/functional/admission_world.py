"""Namespaces, settings and pods for the table of cases on a real API server."""

import contextlib
import dataclasses
import json
import re
from typing import Any

import msgspec

from integrator_contract import pods
from tests import waiting
from tests.api import Api, ApiError
from tests.functional import admission_cases as table
from tests.kubernetes_objects import namespace_of

OUT_OF_SCOPE = {
    "plain": {},
    "disabled": {
        "app.kubernetes.io/part-of": "kubeflow-profile",
        f"{table.PREFIX}served": "disabled",
    },
    "controller": {f"{table.PREFIX}served": "enabled", "controller.juju.is/id": "x"},
}
INJECTED = {"istio-injection": "enabled"}
IN_SCOPE = {
    "profiles": {"app.kubernetes.io/part-of": "kubeflow-profile"},
    "labelled": {f"{table.PREFIX}served": "enabled"},
}


def wanted(name: str, model: str) -> pods.Settings:
    """Put one of the table's settings into the charm's words."""
    values = {**table.SETTINGS[name], "model": model, "application": table.APPLICATION}
    return msgspec.convert(pods.to_fields(values), pods.Settings)


@dataclasses.dataclass(frozen=True)
class World:
    """The namespaces that webhooks serve."""

    api: Api
    prefix: str
    # Whether an injector acts in them, as the settings' membership says.
    meshed: bool = False

    def model(self, settings: str) -> str:
        return f"{self.prefix}-{settings}"

    def namespace(self, case: table.Case) -> str:
        """Return the namespace of a case's pod; only `model` has other settings than the first."""
        if case.namespace == "model":
            return self.model(case.settings)
        assert case.settings == "hold"
        return f"{self.prefix}-{case.namespace}"

    def twin(self, membership: str) -> str:
        """A namespace that only the injector serves: as a `whole`, or for `selected` pods."""
        return f"{self.prefix}-twin-{membership}"

    def twin_of(self, case: table.Case) -> str:
        """Return a namespace in which only the injector changes the pod, as it does here."""
        selected = "membership" in table.SETTINGS[case.settings]
        return self.twin("selected" if selected else "whole")

    def create_namespaces(self) -> None:
        injected = INJECTED if self.meshed else {}
        names = {
            self.model(name): {} if "membership" in values else injected
            for name, values in table.SETTINGS.items()
        }
        others = {**IN_SCOPE, **OUT_OF_SCOPE}
        names |= {f"{self.prefix}-{name}": labels | injected for name, labels in others.items()}
        if self.meshed:
            names |= {self.twin("selected"): {}, self.twin("whole"): injected}
        for name, labels in names.items():
            self.api.create(namespace_of(name, **labels))

    def delete_namespaces(self) -> None:
        for namespace in self.api.list("Namespace"):
            if namespace["metadata"]["name"].startswith(f"{self.prefix}-"):
                self.api.delete(namespace)

    def try_pod(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Have a pod created without keeping it."""
        return self.api.create(pod, dry_run=True)

    def outcome(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Tell what became of a pod, without what differs by time and place."""
        try:
            created = self.try_pod(json.loads(json.dumps(pod)))
        except ApiError as error:
            return {"refused": error.message}
        for field in ("uid", "creationTimestamp", "managedFields"):
            created["metadata"].pop(field, None)
        text = re.sub(r"kube-api-access-\w+", "kube-api-access", json.dumps(created))
        return json.loads(text.replace(pod["metadata"]["namespace"], "NAMESPACE"))

    def wait_until_mutated(self, namespace: str) -> None:
        """Wait until the API server has noticed what was applied."""
        labels = {"app.kubernetes.io/name": table.APPLICATION}
        pod = table.Case(id="", labels=labels).pod(namespace)

        def is_mutated() -> bool:
            # An API server that just started answers 503 until it has its schemas.
            with contextlib.suppress(ApiError):
                return table.APPLIED in self.try_pod(pod)["metadata"].get("annotations", {})
            return False

        assert waiting.eventually(is_mutated), f"no pods of {namespace} are mutated"

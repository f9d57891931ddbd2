"""The files of rbac/, for the names of a test, as their heads say to change them.

`scenarios.yaml` names for each right of the roles the test that uses it.
"""

import itertools
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import yaml

_FOLDER = pathlib.Path(__file__).parents[1] / "rbac"
APPLICATION = "istio-integrator"


def roles(model: str, application: str = APPLICATION) -> str:
    """Write what an application without trust may do."""
    return _named("roles.yaml", MODEL=model, APPLICATION=application)


def gateway_namespace(
    model: str, namespace: str, service: str, application: str = APPLICATION
) -> str:
    """Write what it may do beside that, in the namespace of a gateway."""
    names = {"NAMESPACE": namespace, "SERVICE": service}
    return _named("gateway-namespace.yaml", MODEL=model, APPLICATION=application, **names)


def admission_policy(model: str, application: str = APPLICATION) -> str:
    """Write the policy that holds an application to what it is for."""
    return _named("admission-policy.yaml", MODEL=model, APPLICATION=application)


class Grant(NamedTuple):
    """A verb that a role grants on a resource, with the placeholders of the file."""

    role: str
    namespace: str
    """Empty: the whole cluster."""
    group: str
    resource: str
    name: str
    """Empty: every object."""
    verb: str

    @property
    def target(self) -> str:
        """The resource and the name, as the file of scenarios has them."""
        return f"{self.resource}{self.group and f'.{self.group}'} {self.name}".strip()


def grants() -> Iterator[Grant]:
    """Yield every verb of the roles."""
    for file in ("roles.yaml", "gateway-namespace.yaml"):
        for role in yaml.safe_load_all((_FOLDER / file).read_text()):
            about = role["metadata"]
            for rule in role.get("rules", ()):
                parts = rule["apiGroups"], rule["resources"], rule.get("resourceNames") or [""]
                for each in itertools.product(*parts, rule["verbs"]):
                    yield Grant(about["name"], about.get("namespace", ""), *each)


def tests_by_right() -> dict[tuple[str, str, str], str]:
    """Return the test that uses a right, by role, target and verb."""
    file = yaml.safe_load((_FOLDER / "scenarios.yaml").read_text())
    return {
        (role, target, verb): file["scenarios"][scenario]
        for role, targets in file["roles"].items()
        for target, scenarios in targets.items()
        for scenario, verbs in scenarios.items()
        for verb in verbs
    }


def of_scenario(test: str) -> set[tuple[str, str, str]]:
    """Return the rights for which the file names a test."""
    return {right for right, user in tests_by_right().items() if user == test}


def used(log: pathlib.Path, **names: str) -> set[tuple[str, str, str]]:
    """Find the rights by which an API server allowed requests of a model's application.

    Args:
        log: The audit log of the API server.
        names: What the placeholders stand for; MODEL must be among them.

    Returns:
        The role, target and verb of each.
    """
    names = {"APPLICATION": APPLICATION, **names}
    account = f"system:serviceaccount:{names['MODEL']}:{names['APPLICATION']}"
    # The API server may be writing the last one.
    whole, _, _ = log.read_text().rpartition("\n")
    lines = [line for line in whole.splitlines() if account in line]
    asked = {each for line in lines for each in _asked(json.loads(line), account)}
    found: set[tuple[str, str, str]] = set()
    for each in grants():
        place, name = (_replaced(text, names) for text in (each.namespace, each.name))
        for verb, group, resource, namespace, which in asked:
            is_same = (verb, group, resource) == (each.verb, each.group, each.resource)
            # The gateway's namespace and Service are those of the test.
            is_its_place = place == "NAMESPACE" and namespace != names["MODEL"]
            is_there = place in {"", namespace} or is_its_place
            if is_same and is_there and name in {"", "SERVICE", which}:
                found.add((each.role, each.target, each.verb))
    return found


def _asked(event: dict, account: str) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield the attributes of the permissions that a request needed and had."""
    is_allowed = event["annotations"].get("authorization.k8s.io/decision") == "allow"
    if event["user"]["username"] != account or not is_allowed or "objectRef" not in event:
        return
    about, verb = event["objectRef"], event["verb"]
    resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
    name = "" if verb == "create" else about.get("name", "")
    place = about.get("apiGroup", ""), resource, about.get("namespace", "")
    yield verb, *place, name
    # Applying an object that is not there, and opening a WebSocket since Kubernetes 1.35.
    is_created = verb == "patch" and event.get("responseStatus", {}).get("code") == 201
    if is_created or resource in ("pods/portforward", "pods/exec"):
        yield "create", *place, name


def _named(file: str, **names: str) -> str:
    return _replaced((_FOLDER / file).read_text(), names)


def _replaced(text: str, names: Mapping[str, str]) -> str:
    for placeholder, name in names.items():
        text = text.replace(placeholder, name)
    return text

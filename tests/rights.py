"""The files of rbac/, for the names of a test, as their heads say to change them."""

import pathlib

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


def _named(file: str, **names: str) -> str:
    text = (_FOLDER / file).read_text()
    for placeholder, name in names.items():
        text = text.replace(placeholder, name)
    return text

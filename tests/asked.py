"""What the workload answers when the charm asks it."""

import dataclasses
from typing import Any

from ops import testing

from integrator_contract import answers, schema

PROGRAM = "/usr/bin/sidecar-lifecycle"


def version(contract: str | None = schema.SCHEMA) -> testing.Exec:
    """Answer as an image of a contract; None: as one from before there was any."""
    keeps_to = "" if contract is None else f" (contract {contract})"
    stdout = f"sidecar-lifecycle 0.1.0{keeps_to}\n"
    return testing.Exec((PROGRAM, "--version"), stdout=stdout)


def of_image(container: testing.Container, contract: str | None) -> testing.Container:
    """Return a container with another image in it."""
    others = {each for each in container.execs if "--version" not in each.command_prefix}
    return dataclasses.replace(container, execs={*others, version(contract)})


def proxy(namespace: str, name: str, decision: str = "wait", **more: Any) -> answers.ProxyAnswer:
    """Answer about the proxy of a pod."""
    said = {"reason": "X", "message": "as it is", "containers": (), **more}
    return answers.ProxyAnswer(
        namespace=namespace, name=name, decision=answers.Action(decision), **said
    )
